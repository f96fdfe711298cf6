// What a stream's configuration says about the edges of one cell, one after the other.
#include "tailcast/scheduler/stream_edges.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/scheduler/tree_testing.h"

namespace tailcast::scheduler {
namespace {

using stream::Layer;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The edges of one cell, and what happened to them, as text.
class Cell {
 public:
  Cell(const std::string& name, const v1::StreamConfig& config)
      : edges_(name, options_, config, out_) {}

  void Config(const v1::StreamConfig& config) { edges_.OnConfig(config, out_); }
  void Settled(const std::string& cell, uint64_t version) {
    edges_.OnSettled(cell, stream::TreeVersion{version}, out_);
  }
  void Look(const std::string& cell, int32_t shard, int64_t ms) {
    edges_.Find(cell)->Ask(At(ms), shard, 0, true);
    edges_.Find(cell)->OnAnswer(At(ms), shard);
    edges_.OnLook(cell, shard, {At(ms), 0, 0}, 0, out_);
  }
  // Since the last call.
  std::vector<std::string> Events() {
    std::vector<std::string> events;
    for (const EdgeEvent& e : std::exchange(out_.events, {})) {
      switch (e.kind) {
        case EdgeEvent::Kind::kBegun:
          events.push_back("begun " + e.cell);
          break;
        case EdgeEvent::Kind::kDropped:
          events.push_back("dropped " + e.cell);
          break;
        case EdgeEvent::Kind::kReleased:
          events.push_back("released " + e.cell + " " + std::to_string(e.shard) + " " +
                           std::string(stream::LayerName(e.layer)));
          break;
      }
    }
    return events;
  }
  std::vector<std::string> Steps() {
    std::vector<std::string> steps;
    for (const StepTaken& step : std::exchange(out_.steps, {})) {
      steps.push_back(std::string(copytree::StepKindName(step.kind)) + " " + step.from + ">" +
                      step.to);
    }
    return steps;
  }
  std::vector<std::string> States() const {
    std::vector<std::string> states;
    for (const auto& [cell, edge] : edges_.edges()) {
      states.push_back(cell + " " + std::string(EdgeStateName(edge.state())));
    }
    return states;
  }
  StreamEdges& edges() { return edges_; }

 private:
  const EdgeOptions options_;
  EdgeEvents out_;
  StreamEdges edges_;
};

const Edges kFlat = {{"a", "b"}, {"a", "c"}};
const Edges kChain = {{"a", "c"}, {"c", "b"}};

TEST(StreamEdgesTest, ATreeWithoutAChangeIsMade) {
  Cell a("a", Tree({{"a", "b"}, {"b", "c"}, {"a", "d"}}, 1));
  EXPECT_THAT(a.States(), ElementsAre("b made", "d made"));
  EXPECT_FALSE(a.edges().changing());
  EXPECT_EQ(a.edges().TermVersion("b"), stream::TreeVersion{1});
}

TEST(StreamEdgesTest, TheOldParentLetsGoWhenTheTargetIsSettled) {
  Cell a("a", Tree(kFlat, 1));
  a.Config(Change(kFlat, kChain, 2));
  EXPECT_THAT(a.States(), ElementsAre("b leaving", "c made"));
  EXPECT_EQ(a.edges().TermVersion("b"), stream::TreeVersion{1}) << "it must lose against c's";
  a.Settled("b", 1);
  EXPECT_THAT(a.Events(), IsEmpty()) << "that was for the tree before";
  a.Settled("b", 2);
  EXPECT_THAT(a.Events(), ElementsAre("dropped b"));
  EXPECT_THAT(a.Steps(), ElementsAre("remove-edge a>b"));
  EXPECT_THAT(a.States(), ElementsAre("c made"));
}

// It was away while the target was in no tree, gave its disk back, and came into the tree again.
TEST(StreamEdgesTest, AnEdgeThatWasGoneInATreeNeverHeardOfBeginsAnew) {
  v1::StreamConfig back = Change({{"a", "c"}}, kFlat, 3);
  Cell a("a", Tree(kFlat, 1));
  a.Config(back);
  EXPECT_THAT(a.States(), ElementsAre("b joining", "c made"));
  EXPECT_THAT(a.Events(), ElementsAre("begun b")) << "what was done is not";

  Cell heard("a", Tree(kFlat, 1));
  heard.Config(Change(kFlat, {{"a", "c"}}, 2));
  heard.Config(Change(kFlat, kFlat, 3));
  EXPECT_THAT(heard.States(), ElementsAre("b made", "c made"));
}

TEST(StreamEdgesTest, TheNewParentWaitsUntilItIsSettledItself) {
  Cell c("c", Tree({{"a", "b"}, {"b", "c"}}, 1));
  v1::StreamConfig change = Change({{"a", "b"}, {"b", "c"}}, kChain, 2);
  c.Config(change);
  EXPECT_THAT(c.States(), ElementsAre("b waiting"));
  EXPECT_THAT(c.Events(), ElementsAre("begun b"));
  EXPECT_THAT(c.Steps(), IsEmpty());
  EXPECT_TRUE(c.edges().changing());
  change.set_settled_version(2);
  c.Config(change);
  EXPECT_THAT(c.States(), ElementsAre("b joining"));
  EXPECT_THAT(c.Steps(), ElementsAre("add-edge c>b"));
}

TEST(StreamEdgesTest, WaitCaughtUpEndsWithTheLastShard) {
  v1::StreamConfig change = Change(kFlat, kChain, 2, 2);
  change.set_settled_version(2);
  Cell c("c", change);
  EXPECT_THAT(c.Steps(), ElementsAre("add-edge c>b"));
  EXPECT_THAT(c.Events(), IsEmpty()) << "no operation is known that has to be looked at again";
  for (const int32_t shard : {0, 1}) {
    EXPECT_THAT(c.Steps(), IsEmpty());
    c.Look("b", shard, 0);
    c.Look("b", shard, 300);
    const std::string released = "released b " + std::to_string(shard);
    EXPECT_THAT(c.Events(), ElementsAre(released + " primary", released + " cache"));
  }
  EXPECT_THAT(c.Steps(), ElementsAre("wait-caught-up c>b"));
  EXPECT_THAT(c.States(), ElementsAre("b made"));
  EXPECT_FALSE(c.edges().changing());
}

TEST(StreamEdgesTest, ATargetThatIsSettledAlreadyIsNotWaitedFor) {
  v1::StreamConfig change = Change(kFlat, kChain, 2);
  change.set_settled_version(2);
  Cell c("c", change);
  c.Settled("b", 2);
  EXPECT_THAT(c.Events(), ElementsAre("released b 0 primary", "released b 0 cache"));
  EXPECT_THAT(c.States(), ElementsAre("b made"));
  EXPECT_THAT(c.Steps(), ElementsAre("add-edge c>b")) << "another scheduler waited";
}

TEST(StreamEdgesTest, TheEndOfTheChangeEndsTheWait) {
  v1::StreamConfig change = Change(kFlat, kChain, 2);
  Cell c("c", change);
  change.clear_change();
  c.Config(change);
  EXPECT_THAT(c.Events(), ElementsAre("released b 0 primary", "released b 0 cache"));
  EXPECT_THAT(c.States(), ElementsAre("b made"));
}

TEST(StreamEdgesTest, ACellThatLeavesTheTreeIsFedUntilTheChangeIsOver) {
  Cell a("a", Tree(kFlat, 1));
  a.Config(Change(kFlat, {{"a", "c"}}, 2));
  a.Settled("b", 2);
  EXPECT_THAT(a.States(), ElementsAre("b leaving", "c made"));
  a.Config(Tree({{"a", "c"}}, 2));
  EXPECT_THAT(a.Events(), ElementsAre("dropped b"));
}

TEST(StreamEdgesTest, AnEdgeThatIsWantedAgainBeginsAnew) {
  Cell a("a", Tree(kFlat, 1));
  a.Config(Change(kFlat, kChain, 2));
  a.edges().Find("b")->Retire(0, Layer::kPrimary);
  v1::StreamConfig back = Change(kFlat, kFlat, 3);
  auto* abandoned = back.mutable_change()->add_abandoned();
  abandoned->set_from("c");
  abandoned->set_to("b");
  a.Config(back);
  EXPECT_THAT(a.Events(), ElementsAre("begun b"));
  EXPECT_THAT(a.States(), ElementsAre("b joining", "c made"));
  EXPECT_FALSE(a.edges().Find("b")->Retired(0, Layer::kPrimary));
}

TEST(StreamEdgesTest, AnOlderTreeIsIgnored) {
  Cell a("a", Tree(kFlat, 5));
  a.Config(Tree(kChain, 4));
  EXPECT_THAT(a.States(), ElementsAre("b made", "c made"));
  EXPECT_THAT(a.Events(), IsEmpty());
}

TEST(StreamEdgesTest, ASchedulerThatBeginsInTheMiddleHasBothEdges) {
  Cell a("a", Change(kFlat, kChain, 2));
  EXPECT_THAT(a.States(), ElementsAre("b leaving", "c made"));
  EXPECT_THAT(a.Steps(), IsEmpty());
}

}  // namespace
}  // namespace tailcast::scheduler
