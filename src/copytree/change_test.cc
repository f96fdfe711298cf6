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
class World {
 public:
  explicit World(const Tree& tree) : source_(tree.source) {
    for (const Edge& edge : tree.edges) caught_up_[edge.to].insert(edge.from);
  }

  void Apply(const Step& step) {
    switch (step.kind) {
      case StepKind::kAddEdge:
        ASSERT_TRUE(step.from == source_ || Fed(step.from)) << step.from << " has nothing to copy";
        ASSERT_FALSE(Above(step.from, step.to))
            << "a ring: " << step.from << " is fed by " << step.to;
        ASSERT_TRUE(adding_[step.to].insert(step.from).second);
        break;
      case StepKind::kWaitCaughtUp:
        ASSERT_TRUE(adding_[step.to].contains(step.from)) << "waits for an edge that was not added";
        adding_[step.to].erase(step.from);
        caught_up_[step.to].insert(step.from);
        break;
      case StepKind::kRemoveEdge:
        ASSERT_EQ(caught_up_[step.to].erase(step.from), 1u)
            << "no edge " << step.from << " -> " << step.to;
        break;
      case StepKind::kSwitchConsumers:
        ASSERT_TRUE(step.to == source_ || Fed(step.to))
            << "consumers sent to a cluster without data";
        break;
    }
  }

  // A chain of caught-up copies leads here from the source.
  bool Fed(const std::string& cluster) const { return Above(cluster, source_); }

  // `above` lies on a path of copies towards `cluster` (or is it).
  bool Above(const std::string& cluster, const std::string& above) const {
    std::set<std::string> seen{cluster};
    std::vector<std::string> stack{cluster};
    while (!stack.empty()) {
      const std::string at = stack.back();
      stack.pop_back();
      if (at == above) return true;
      const auto found = caught_up_.find(at);
      if (found == caught_up_.end()) continue;
      for (const std::string& from : found->second) {
        if (seen.insert(from).second) stack.push_back(from);
      }
    }
    return false;
  }

  bool Is(const Tree& tree) const {
    std::set<std::pair<std::string, std::string>> wanted, have;
    for (const Edge& edge : tree.edges) wanted.emplace(edge.from, edge.to);
    for (const auto& [to, parents] : caught_up_) {
      for (const std::string& from : parents) have.emplace(from, to);
    }
    return wanted == have;
  }

 private:
  std::string source_;
  std::map<std::string, std::set<std::string>> caught_up_, adding_;
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

// Steps of one wave may run in any order between clusters.
TEST(DiffTest, WavesHoldInEveryOrder) {
  Rng rng(37);
  for (int round = 0; round < 500; ++round) {
    const int n = static_cast<int>(rng.Between(3, 10));
    const Tree before = RandomTree(n, rng);
    const Tree after = RandomTree(n, rng);
    const Result<std::vector<Step>> steps = Diff(before, after);
    ASSERT_TRUE(steps.ok());
    World world(before);
    size_t begin = 0;
    while (begin < steps->size()) {
      size_t end = begin;
      std::map<std::string, std::vector<Step>> by_cluster;
      while (end < steps->size() && (*steps)[end].wave == (*steps)[begin].wave) {
        by_cluster[(*steps)[end].to].push_back((*steps)[end]);
        ++end;
      }
      // Draw the next step among the clusters' own sequences.
      while (!by_cluster.empty()) {
        auto at = by_cluster.begin();
        std::advance(at, static_cast<long>(rng.Below(by_cluster.size())));
        world.Apply(at->second.front());
        at->second.erase(at->second.begin());
        if (at->second.empty()) by_cluster.erase(at);
        if (HasFatalFailure()) FAIL() << "round " << round;
        for (const Edge& edge : after.edges) {
          if (before.Contains(edge.to)) {
            ASSERT_TRUE(world.Fed(edge.to)) << "round " << round;
          }
        }
      }
      begin = end;
    }
    EXPECT_TRUE(world.Is(after));
  }
}

// The checker itself: each of these plans is wrong in a way that it must notice.
TEST(DiffTest, TheModelCatchesWrongPlans) {
  const Tree before{"s", {{"s", "a"}, {"a", "b"}}};
  World early(before);
  early.Apply({StepKind::kRemoveEdge, "a", "b"});
  EXPECT_FALSE(early.Fed("b")) << "break before make";
  EXPECT_FATAL_FAILURE(
      {
        static World ring(Tree{"s", {{"s", "a"}, {"a", "b"}}});
        ring.Apply({StepKind::kAddEdge, "b", "a"});
      },
      "a ring");
  EXPECT_FATAL_FAILURE(
      {
        static World dry(Tree{"s", {{"s", "a"}}});
        dry.Apply({StepKind::kAddEdge, "b", "a"});
      },
      "has nothing to copy");
}

TEST(DiffTest, SwitchesConsumersOfSickClustersFirstAndBackLast) {
  const Tree before{"s", {{"s", "a"}, {"a", "b"}}};
  const Tree after{"s", {{"s", "b"}, {"s", "a"}}};
  const auto steps = Diff(before, after, {}, {{"a", "b", 10}}, {{"b", "s", 5}});
  ASSERT_TRUE(steps.ok());
  EXPECT_THAT(*steps, ElementsAre(Step{StepKind::kSwitchConsumers, "a", "b", 0, false},
                                  Step{StepKind::kAddEdge, "s", "b", 1, false},
                                  Step{StepKind::kWaitCaughtUp, "s", "b", 1, false},
                                  Step{StepKind::kRemoveEdge, "a", "b", 1, false},
                                  Step{StepKind::kSwitchConsumers, "b", "b", 2, false}));
  // Re-routed already: nothing to do.
  EXPECT_TRUE(Diff(before, before, {}, {{"a", "b", 10}}, {{"a", "b", 10}})->empty());
}

TEST(DiffTest, WaitsWithConsumersUntilTheirNewClusterHasJoined) {
  const Tree before{"s", {{"s", "a"}}};
  const Tree after{"s", {{"s", "a"}, {"s", "fresh"}}};
  const auto steps = Diff(before, after, {}, {{"a", "fresh", 1}});
  ASSERT_TRUE(steps.ok());
  EXPECT_EQ(steps->back(), (Step{StepKind::kSwitchConsumers, "a", "fresh", 1, false}));
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
