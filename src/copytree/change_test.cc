#include "tailcast/copytree/change.h"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tailcast/base/rng.h"

namespace tailcast::copytree {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Carries the steps out on a model of the running copies and checks what Diff promises after each.
// A cluster is fed over the edge that caught up last: that one has fenced the others.
class World {
 public:
  explicit World(const Tree& tree) : source_(tree.source) {
    for (const Edge& edge : tree.edges) {
      running_[edge.to].insert(edge.from);
      feed_[edge.to] = edge.from;
    }
  }

  void Apply(const Step& step) {
    switch (step.kind) {
      case StepKind::kAddEdge:
        ASSERT_TRUE(step.from == source_ || Fed(step.from)) << step.from << " has nothing to copy";
        ASSERT_FALSE(Above(step.from, step.to))
            << "a cycle: " << step.from << " is fed by " << step.to;
        adding_[step.to].insert(step.from);
        break;
      case StepKind::kWaitCaughtUp:
        ASSERT_TRUE(adding_[step.to].contains(step.from)) << "waits for an edge that was not added";
        adding_[step.to].erase(step.from);
        running_[step.to].insert(step.from);
        feed_[step.to] = step.from;
        break;
      case StepKind::kRemoveEdge:
        ASSERT_EQ(running_[step.to].erase(step.from) + adding_[step.to].erase(step.from), 1u)
            << "no edge " << step.from << " -> " << step.to;
        if (feed_[step.to] == step.from) feed_.erase(step.to);
        break;
      case StepKind::kSwitchConsumers:
        ASSERT_TRUE(step.to == source_ || Fed(step.to))
            << "consumers sent to a cluster without data";
        break;
    }
  }

  // A chain of caught-up copies leads here from the source.
  bool Fed(const std::string& cluster) const { return Above(cluster, source_); }

  // Is `cluster` fed, over any number of hops, by `upstream`?
  bool Above(std::string cluster, const std::string& upstream) const {
    for (size_t hops = 0; hops <= feed_.size(); ++hops) {
      if (cluster == upstream) return true;
      const auto at = feed_.find(cluster);
      if (at == feed_.end()) return false;
      cluster = at->second;
    }
    return false;
  }

  bool Runs(const std::string& from, const std::string& to) const {
    const auto at = running_.find(to);
    const auto adding = adding_.find(to);
    return (at != running_.end() && at->second.contains(from)) ||
           (adding != adding_.end() && adding->second.contains(from));
  }

  bool Is(const Tree& tree) const {
    std::set<std::pair<std::string, std::string>> wanted, have;
    for (const Edge& edge : tree.edges) wanted.emplace(edge.from, edge.to);
    for (const auto& [to, parents] : running_) {
      for (const std::string& from : parents) have.emplace(from, to);
    }
    return wanted == have;
  }

 private:
  std::string source_;
  std::map<std::string, std::set<std::string>> running_, adding_;
  std::map<std::string, std::string> feed_;
};

Tree RandomTree(int n, Rng& rng) {
  std::vector<int> order;
  for (int i = 1; i < n; ++i) order.push_back(i);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.Below(i)]);
  Tree tree{"c0", {}};
  std::vector<int> in{0};
  for (int v : order) {
    if (rng.Chance(0.15)) continue;  // not in this tree
    tree.edges.push_back({"c" + std::to_string(in[rng.Below(in.size())]), "c" + std::to_string(v)});
    in.push_back(v);
  }
  return tree;
}

void ExpectSafe(const Tree& before, const Tree& after) {
  const Result<std::vector<Step>> steps = Diff(before, after);
  ASSERT_TRUE(steps.ok()) << steps.status();
  World world(before);
  int wave = 0;
  for (const Step& step : *steps) {
    ASSERT_GE(step.wave, wave);
    wave = step.wave;
    world.Apply(step);
    if (::testing::Test::HasFatalFailure()) return;
    for (const Edge& edge : after.edges) {
      if (before.Contains(edge.to)) {
        ASSERT_TRUE(world.Fed(edge.to))
            << edge.to << " lost its feed after " << StepKindName(step.kind) << " " << step.from
            << " -> " << step.to;
      }
    }
  }
  EXPECT_TRUE(world.Is(after));
}

TEST(DiffTest, NeverLeavesAClusterWithoutAFeedNorClosesARing) {
  Rng rng(31);
  for (int round = 0; round < 3000; ++round) {
    const int n = static_cast<int>(rng.Between(2, 12));
    const Tree before = RandomTree(n, rng);
    const Tree after = RandomTree(n, rng);
    ExpectSafe(before, after);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

// A random order that keeps to what each step says it comes after, and to nothing else.
std::vector<Step> AnyOrder(const std::vector<Step>& steps, Rng& rng) {
  std::vector<Step> order;
  std::vector<bool> taken(steps.size());
  while (order.size() < steps.size()) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < steps.size(); ++i) {
      bool may = !taken[i];
      for (int before : steps[i].after) may = may && taken[static_cast<size_t>(before)];
      if (may) ready.push_back(i);
    }
    const size_t next = ready[rng.Below(ready.size())];
    taken[next] = true;
    order.push_back(steps[next]);
  }
  return order;
}

// c feeds n, and n is to feed c: the new edge runs for a while beside the old one in the other
// direction. That is no ring of feeds: n's files were taken over by its new feed before, so the old
// edge is fenced and appends nothing
// (PrimaryOperationCoreTest.AFenceInMidAppendEndsTheOperationAndSaysWhoItWas).
TEST(DiffTest, AnEdgeBesideItsReverseIsNeverTheFeedOfBothEnds) {
  Rng rng(41);
  int beside = 0;
  const auto carry_out = [&](const Tree& before, const Tree& after) {
    const Result<std::vector<Step>> steps = Diff(before, after);
    ASSERT_TRUE(steps.ok());
    World world(before);
    for (const Step& step : AnyOrder(*steps, rng)) {
      world.Apply(step);
      if (step.kind != StepKind::kAddEdge || !world.Runs(step.to, step.from)) continue;
      ++beside;
      ASSERT_FALSE(world.Above(step.from, step.to))
          << step.from << " is fed by " << step.to << ", which it is to feed";
    }
  };
  for (int round = 0; round < 20; ++round) {
    carry_out({"s", {{"s", "c"}, {"c", "n"}}}, {"s", {{"s", "n"}, {"n", "c"}}});
  }
  EXPECT_GT(beside, 0) << "the case of this test does not happen";
  for (int round = 0; round < 2000; ++round) {
    carry_out(RandomTree(8, rng), RandomTree(8, rng));
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(beside, 100);
}

TEST(DiffTest, WhatEachStepComesAfterIsEnoughInAnyOrder) {
  Rng rng(37);
  for (int round = 0; round < 5000; ++round) {
    const int n = static_cast<int>(rng.Between(3, 10));
    const Tree before = RandomTree(n, rng);
    const Tree after = RandomTree(n, rng);
    const Result<std::vector<Step>> steps = Diff(before, after);
    ASSERT_TRUE(steps.ok());
    World world(before);
    for (const Step& step : AnyOrder(*steps, rng)) {
      world.Apply(step);
      if (HasFatalFailure()) FAIL() << "round " << round;
      for (const Edge& edge : after.edges) {
        if (before.Contains(edge.to)) {
          ASSERT_TRUE(world.Fed(edge.to)) << "round " << round;
        }
      }
    }
    EXPECT_TRUE(world.Is(after));
  }
}

// The list is in an order in which it may be carried out.
TEST(DiffTest, TheListKeepsItsOwnConditions) {
  Rng rng(41);
  for (int round = 0; round < 1000; ++round) {
    const Tree before = RandomTree(8, rng);
    const Tree after = RandomTree(8, rng);
    const auto steps = *Diff(before, after);
    for (size_t i = 0; i < steps.size(); ++i) {
      for (int needed : steps[i].after) {
        ASSERT_LT(needed, static_cast<int>(i));
        ASSERT_LE(steps[static_cast<size_t>(needed)].wave, steps[i].wave);
      }
    }
  }
}

TEST(DiffTest, AParentIsSettledBeforeItFeedsAnotherCluster) {
  // The chain turns round: b may feed a only when b itself is fed by the source.
  const Tree before{"s", {{"s", "a"}, {"a", "b"}, {"b", "c"}}};
  const Tree after{"s", {{"s", "b"}, {"b", "a"}, {"b", "c"}}};
  const auto steps = Diff(before, after);
  ASSERT_TRUE(steps.ok());
  EXPECT_THAT(*steps, ElementsAre(Step{StepKind::kAddEdge, "s", "b", 0, false, {}},
                                  Step{StepKind::kWaitCaughtUp, "s", "b", 0, false, {0}},
                                  Step{StepKind::kRemoveEdge, "a", "b", 0, false, {1}},
                                  Step{StepKind::kAddEdge, "b", "a", 1, false, {1}},
                                  Step{StepKind::kWaitCaughtUp, "b", "a", 1, false, {3}},
                                  Step{StepKind::kRemoveEdge, "s", "a", 1, false, {4}}));
}

TEST(DiffTest, AClusterThatLeavesIsFedUntilThoseBelowItHaveMoved) {
  const Tree before{"s", {{"s", "x"}, {"x", "y"}, {"y", "c"}}};
  const Tree after{"s", {{"s", "c"}}};
  const auto steps = Diff(before, after);
  ASSERT_TRUE(steps.ok());
  EXPECT_THAT(*steps, ElementsAre(Step{StepKind::kAddEdge, "s", "c", 0, false, {}},
                                  Step{StepKind::kWaitCaughtUp, "s", "c", 0, false, {0}},
                                  Step{StepKind::kRemoveEdge, "y", "c", 0, false, {1}},
                                  Step{StepKind::kRemoveEdge, "x", "y", 1, false, {1}},
                                  Step{StepKind::kRemoveEdge, "s", "x", 2, false, {1}}));
}

// A change is replaced by another one in the middle: whichever of its steps were taken, the steps
// of the new one lead to the new tree, and no cluster is without a feed meanwhile.
TEST(DiffTest, AChangeThatIsReplacedInTheMiddleIsCleanedUp) {
  Rng rng(43);
  for (int round = 0; round < 3000; ++round) {
    const int n = static_cast<int>(rng.Between(3, 9));
    const Tree before = RandomTree(n, rng);
    const Tree between = RandomTree(n, rng);
    const Tree after = rng.Chance(0.3) ? before : RandomTree(n, rng);
    std::vector<Step> first = AnyOrder(*Diff(before, between), rng);
    first.resize(rng.Below(first.size() + 1));
    // Nobody leaves while a change may be replaced: those edges go last of all.
    std::erase_if(first, [&](const Step& step) {
      return step.kind == StepKind::kRemoveEdge && !between.Contains(step.to);
    });
    World world(before);
    for (const Step& step : first) world.Apply(step);
    const auto steps = Diff(before, after, {.abandoned = between.edges});
    ASSERT_TRUE(steps.ok());
    for (const Step& step : AnyOrder(*steps, rng)) {
      if (step.kind == StepKind::kRemoveEdge && !world.Runs(step.from, step.to)) continue;
      world.Apply(step);
      if (HasFatalFailure()) FAIL() << "round " << round;
      for (const Edge& edge : after.edges) {
        if (before.Contains(edge.to)) {
          ASSERT_TRUE(world.Fed(edge.to))
              << "round " << round << ": " << edge.to << " after " << StepKindName(step.kind) << " "
              << step.from << " -> " << step.to;
        }
      }
    }
    EXPECT_TRUE(world.Is(after)) << "round " << round;
  }
}

// The checker itself: each of these plans is wrong in a way that it must notice.
TEST(DiffTest, TheModelCatchesWrongPlans) {
  const Tree before{"s", {{"s", "a"}, {"a", "b"}}};
  World early(before);
  early.Apply({StepKind::kRemoveEdge, "a", "b", 0, false, {}});
  EXPECT_FALSE(early.Fed("b")) << "break before make";
  EXPECT_FATAL_FAILURE(
      {
        static World cycle(Tree{"s", {{"s", "a"}, {"a", "b"}}});
        cycle.Apply({StepKind::kAddEdge, "b", "a", 0, false, {}});
      },
      "a cycle");
  EXPECT_FATAL_FAILURE(
      {
        static World dry(Tree{"s", {{"s", "a"}}});
        dry.Apply({StepKind::kAddEdge, "b", "a", 0, false, {}});
      },
      "has nothing to copy");
}

TEST(DiffTest, SwitchesConsumersOfSickClustersFirstAndBackLast) {
  const Tree before{"s", {{"s", "a"}, {"a", "b"}}};
  const Tree after{"s", {{"s", "b"}, {"s", "a"}}};
  const auto steps =
      Diff(before, after, {.reroutes = {{"a", "b", 10}}, .reroutes_before = {{"b", "s", 5}}});
  ASSERT_TRUE(steps.ok());
  EXPECT_THAT(*steps, ElementsAre(Step{StepKind::kSwitchConsumers, "a", "b", 0, false, {}},
                                  Step{StepKind::kAddEdge, "s", "b", 1, false, {}},
                                  Step{StepKind::kWaitCaughtUp, "s", "b", 1, false, {1}},
                                  Step{StepKind::kRemoveEdge, "a", "b", 1, false, {2}},
                                  Step{StepKind::kSwitchConsumers, "b", "b", 2, false, {2}}));
  // Re-routed already: nothing to do.
  EXPECT_TRUE(
      Diff(before, before, {.reroutes = {{"a", "b", 10}}, .reroutes_before = {{"a", "b", 10}}})
          ->empty());
}

TEST(DiffTest, WaitsWithConsumersUntilTheirNewClusterHasJoined) {
  const Tree before{"s", {{"s", "a"}}};
  const Tree after{"s", {{"s", "a"}, {"s", "fresh"}}};
  const auto steps = Diff(before, after, {.reroutes = {{"a", "fresh", 1}}});
  ASSERT_TRUE(steps.ok());
  EXPECT_EQ(steps->back(), (Step{StepKind::kSwitchConsumers, "a", "fresh", 1, false, {1}}));
  EXPECT_TRUE(steps->front().rate_limited) << "it has to catch up";
}

TEST(DiffTest, RefusesTreesOfDifferentSources) {
  const auto steps = Diff({"a", {}}, {"b", {}});
  ASSERT_FALSE(steps.ok());
  EXPECT_THAT(steps.status().message(), HasSubstr("a stream keeps its source"));
}

TEST(ChangedClustersTest, ListsMovedJoinedAndLeft) {
  EXPECT_THAT(ChangedClusters({"s", {{"s", "a"}, {"a", "b"}, {"s", "gone"}}},
                              {"s", {{"s", "b"}, {"s", "a"}, {"b", "new"}}}),
              ElementsAre("b", "new", "gone"));
}

TEST(NormalizedTest, NamesWhatIsNoTree) {
  EXPECT_THAT(Normalized({"s", {{"a", "s"}}}).status().message(), HasSubstr("into its source"));
  EXPECT_THAT(Normalized({"s", {{"a", "b"}, {"b", "a"}}}).status().message(), HasSubstr("cycle"));
  EXPECT_THAT(Normalized({"s", {{"s", "a"}, {"b", "a"}}}).status().message(),
              HasSubstr("fed twice"));
}

}  // namespace
}  // namespace tailcast::copytree
