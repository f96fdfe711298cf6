#include "tailcast/scheduler/edge_change.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::scheduler {
namespace {

using stream::Layer;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

class EdgeChangeTest : public ::testing::Test {
 protected:
  EdgeChange Edge(EdgeState state, int32_t shards = 1, bool newcomer = false) {
    return {options_, {state, newcomer}, shards};
  }
  // Asks at `ms`, and the answer comes at once. True: a stage further.
  static bool Look(EdgeChange& edge, int64_t ms, int64_t source, int64_t target, bool fenced = true,
                   int64_t newest = 1, int32_t shard = 0) {
    EXPECT_TRUE(edge.Ask(At(ms), shard, newest, fenced));
    edge.OnAnswer(At(ms), shard);
    return edge.OnLook(shard, {At(ms), source, target}, newest);
  }
  const EdgeOptions options_{.caught_up_bytes = 10};
};

TEST_F(EdgeChangeTest, OperationsWaitForTheStageOfTheirLayer) {
  EdgeChange edge = Edge(EdgeState::kJoining);
  EXPECT_TRUE(edge.Waits(0, Layer::kPrimary));
  EXPECT_TRUE(edge.Waits(0, Layer::kCache));
  ASSERT_TRUE(Look(edge, 0, 90, 100));
  EXPECT_EQ(edge.stage(0), Stage::kTakenOver);
  EXPECT_FALSE(edge.Waits(0, Layer::kPrimary));
  EXPECT_TRUE(edge.Waits(0, Layer::kCache));
  ASSERT_TRUE(Look(edge, 300, 100, 100));
  EXPECT_FALSE(edge.Waits(0, Layer::kCache));
  EXPECT_EQ(edge.state(), EdgeState::kMade);
}

TEST_F(EdgeChangeTest, ASourceThatIsFarBehindTakesNothingOver) {
  EdgeChange edge = Edge(EdgeState::kJoining);
  EXPECT_FALSE(Look(edge, 0, 89, 100));
  EXPECT_EQ(edge.stage(0), Stage::kBehind);
}

TEST_F(EdgeChangeTest, ALongerPathTakesOverIfItHasWhatTheTargetHadASecondAgo) {
  EdgeChange edge = Edge(EdgeState::kJoining);
  EXPECT_FALSE(Look(edge, 0, 0, 1000));
  EXPECT_TRUE(Look(edge, 900, 1000, 2000));
  EdgeChange slow = Edge(EdgeState::kJoining);
  EXPECT_FALSE(Look(slow, 0, 0, 1000));
  EXPECT_FALSE(Look(slow, 1100, 1000, 2000)) << "that was longer ago";
}

TEST_F(EdgeChangeTest, OnlyALookAfterTheFenceSaysThatAShardHasCaughtUp) {
  EdgeChange edge = Edge(EdgeState::kJoining);
  ASSERT_TRUE(Look(edge, 0, 100, 100));
  EXPECT_FALSE(Look(edge, 300, 100, 100, false)) << "the old edge could append meanwhile";
  EXPECT_FALSE(Look(edge, 600, 99, 100)) << "and it did";
  EXPECT_TRUE(Look(edge, 900, 100, 100));
}

TEST_F(EdgeChangeTest, AFileOpenedAfterTheQuestionMakesItLookAgain) {
  EdgeChange edge = Edge(EdgeState::kJoining);
  ASSERT_TRUE(Look(edge, 0, 100, 100));
  ASSERT_TRUE(edge.Ask(At(300), 0, 1, true));
  edge.OnAnswer(At(310), 0);
  EXPECT_FALSE(edge.OnLook(0, {At(310), 100, 100}, 2));
  EXPECT_TRUE(Look(edge, 600, 100, 100, true, 2));
}

TEST_F(EdgeChangeTest, ANewcomerHasToComeNearItsSourceItself) {
  EdgeChange edge = Edge(EdgeState::kJoining, 1, true);
  ASSERT_TRUE(Look(edge, 0, 1000, 0)) << "nobody else feeds it";
  EXPECT_FALSE(Look(edge, 300, 1000, 500));
  EXPECT_TRUE(Look(edge, 600, 2000, 1000)) << "it has what the source had a moment ago";
}

TEST_F(EdgeChangeTest, TheEdgeIsMadeWhenAllShardsHaveCaughtUp) {
  EdgeChange edge = Edge(EdgeState::kJoining, 2);
  Look(edge, 0, 5, 5, true, 1, 0);
  Look(edge, 300, 5, 5, true, 1, 0);
  EXPECT_EQ(edge.state(), EdgeState::kJoining);
  Look(edge, 0, 0, 0, true, 0, 1);
  EXPECT_EQ(edge.state(), EdgeState::kJoining);
  Look(edge, 300, 0, 0, true, 0, 1);
  EXPECT_EQ(edge.state(), EdgeState::kMade);
}

TEST_F(EdgeChangeTest, OneQuestionIsOutAndTheNextComesAfterAPause) {
  EdgeChange edge = Edge(EdgeState::kMade);
  EXPECT_TRUE(edge.Ask(At(0), 0, 1, true));
  EXPECT_TRUE(edge.asking(0));
  EXPECT_FALSE(edge.Ask(At(1000), 0, 1, true));
  edge.OnAnswer(At(1000), 0);
  EXPECT_EQ(edge.ask_at(0), At(1200));
  EXPECT_FALSE(edge.Ask(At(1199), 0, 1, true));
  EXPECT_TRUE(edge.Ask(At(1200), 0, 1, true));
}

TEST_F(EdgeChangeTest, ItBeginsWhenItMayAndStopsBeginningWhenItMayNot) {
  EdgeChange edge = Edge(EdgeState::kWaiting);
  EXPECT_FALSE(edge.MayBegin(false));
  EXPECT_TRUE(edge.MayBegin(true)) << "this is add-edge";
  EXPECT_EQ(edge.state(), EdgeState::kJoining);
  EXPECT_FALSE(edge.MayBegin(true));
  EXPECT_FALSE(edge.MayBegin(false));
  EXPECT_EQ(edge.state(), EdgeState::kWaiting);
  EdgeChange made = Edge(EdgeState::kMade);
  EXPECT_FALSE(made.MayBegin(true));
  EXPECT_FALSE(made.MayBegin(false));
  EXPECT_EQ(made.state(), EdgeState::kMade);
}

TEST_F(EdgeChangeTest, SettledIsCaughtUpInAllShards) {
  EdgeChange edge = Edge(EdgeState::kJoining, 3);
  Look(edge, 0, 5, 5, true, 1, 1);
  Look(edge, 300, 5, 5, true, 1, 1);
  EXPECT_THAT(edge.Settle(), ElementsAre(0, 2));
  EXPECT_EQ(edge.state(), EdgeState::kMade);
  EXPECT_FALSE(edge.Waits(0, Layer::kCache));
}

TEST_F(EdgeChangeTest, AnEdgeLeavesFromAnyState) {
  for (const EdgeState state :
       {EdgeState::kWaiting, EdgeState::kJoining, EdgeState::kMade, EdgeState::kLeaving}) {
    EdgeChange edge = Edge(state);
    edge.Leave();
    EXPECT_EQ(edge.state(), EdgeState::kLeaving);
    EXPECT_FALSE(edge.Waits(0, Layer::kPrimary)) << "it goes on as it is";
  }
}

TEST_F(EdgeChangeTest, LayersOfAShardAreRetiredOneByOne) {
  EdgeChange edge = Edge(EdgeState::kLeaving, 2);
  edge.Retire(1, Layer::kPrimary);
  EXPECT_TRUE(edge.Retired(1, Layer::kPrimary));
  EXPECT_FALSE(edge.Retired(1, Layer::kCache));
  EXPECT_FALSE(edge.Retired(0, Layer::kPrimary));
}

using EdgeChangeDeathTest = EdgeChangeTest;

TEST_F(EdgeChangeDeathTest, ATransitionThatIsNotDrawnIsOurBug) {
  EdgeChange leaving = Edge(EdgeState::kLeaving);
  EXPECT_DEATH(leaving.Settle(), "leaving can't be made");
  EdgeChange waiting = Edge(EdgeState::kWaiting);
  EXPECT_DEATH(waiting.OnLook(0, {}, 0), "joins");
}

}  // namespace
}  // namespace tailcast::scheduler
