// The real client while the ring changes: from the replicas 0, 1 and 2 to 3, 4 and 5.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/scope.h"
#include "tailcast/cache/quorum_client.h"
#include "tailcast/cache/quorum_client_testing.h"
#include "tailcast/cache/server.h"

namespace tailcast::cache {
namespace {

class QuorumClientChangeTest : public QuorumClientTest {
 protected:
  QuorumClientChangeTest() {
    all_ = world_.config;
    Publish(Old());
  }
  RingConfig Ring(ConfigurationId id, bool old_read, bool new_read, bool changing) const {
    RingConfig config = all_;
    config.configuration_id = id;
    for (size_t i = 0; i < config.replicas.size(); ++i) {
      Replica& replica = config.replicas[i];
      replica.in_ring = i < 3 ? old_read : new_read;
      replica.in_other = changing && !replica.in_ring;
      replica.votes_in_other = replica.in_other;
    }
    std::erase_if(config.replicas, [](const Replica& r) { return !r.in_ring && !r.in_other; });
    return config;
  }
  RingConfig Old() const { return Ring(IdOf(3, RingPhase::kSettled), true, false, false); }
  RingConfig Both() const { return Ring(IdOf(3, RingPhase::kBoth), true, false, true); }
  RingConfig New() const { return Ring(IdOf(3, RingPhase::kNew), false, true, true); }
  RingConfig Settled() const { return Ring(IdOf(4, RingPhase::kSettled), false, true, false); }
  void ToServers(const RingConfig& config) {
    for (auto& process : world_.processes) {
      if (process.server != nullptr) process.server->UpdateRing(config);
    }
    world_.time.RunFor(Duration::Millis(300));  // buckets are sealed in several turns
  }
  void Publish(const RingConfig& config) {
    ToServers(config);
    world_.client->UpdateRing(config);
    world_.time.RunFor(Duration::Millis(50));
  }
  // How many of the replicas [from, to) have the key.
  int Holders(const Key& key, int from, int to) {
    const Instant now{world_.client_loop->Now(), world_.client_loop->WallNow()};
    int holders = 0;
    for (int i = from; i < to; ++i) {
      if (world_.processes[i].server == nullptr) continue;
      holders += world_.processes[i].server->core()->Get(now, key).has_value() ? 1 : 0;
    }
    return holders;
  }
  static std::vector<Mutation> One(const Key& key, uint64_t value) {
    return {{key, MergeRule::kMaxLanes, false, Lanes({value})}};
  }

  World world_{GetParam(), 6};
  RingConfig all_;
};

TEST_P(QuorumClientChangeTest, AWriteNeedsTwoOfEachRing) {
  Publish(Both());
  ASSERT_TRUE(world_.Mutate(One(KeyOf(1), 7)).ok());
  world_.time.RunFor(Duration::Millis(50));
  EXPECT_EQ(Holders(KeyOf(1), 0, 6), 6);
  world_.Kill(3);
  EXPECT_TRUE(world_.Mutate(One(KeyOf(2), 7)).ok());
  world_.Kill(4);
  EXPECT_TRUE(IsUnavailable(world_.Mutate(One(KeyOf(3), 7))));
}

// Spec Merge: wr.late, planted late_votes.
TEST_P(QuorumClientChangeTest, WhoBecomesWholeDuringAWriteHasNoVoteOnIt) {
  const Scope scope;
  RingConfig one = Old();
  for (const int i : {1, 2}) one.replicas[i].whole = false;
  Publish(one);
  std::optional<Status> result;
  world_.client->Mutate(One(KeyOf(1), 7), Duration::Seconds(1),
                        scope.Bind([&](Status status) { result = std::move(status); }));
  world_.client->UpdateRing(Old());
  world_.time.RunFor(Duration::Seconds(2));
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(IsUnavailable(*result)) << *result;
  EXPECT_EQ(Holders(KeyOf(1), 0, 3), 3);
  EXPECT_TRUE(world_.Mutate(One(KeyOf(1), 7)).ok());
}

// A chunk that they lack is found elsewhere.
TEST_P(QuorumClientChangeTest, AChunkWaitsForNoneOfThoseThatCome) {
  for (int i = 3; i < 6; ++i) world_.Kill(i);
  for (int i = 0; i < 3; ++i) world_.processes[i].server->UpdateRing(Both());
  world_.client->UpdateRing(Both());
  const MonotonicTime before = world_.time.now();
  EXPECT_TRUE(
      world_.Mutate({{KeyOf(1), MergeRule::kLongerWins, false, Final(1)}}, Duration::Seconds(1))
          .ok());
  EXPECT_LT(world_.time.now() - before, Duration::Millis(50));
}

TEST_P(QuorumClientChangeTest, ThoseThatComeAreConnectedToWithinASecond) {
  ASSERT_EQ(world_.client->ready_replicas(), 3u);
  ToServers(Both());
  world_.client->UpdateRing(Both());
  world_.time.RunFor(Duration::Millis(50));
  EXPECT_LT(world_.client->ready_replicas(), 6u) << "all at once";
  world_.time.RunFor(Duration::Millis(1050));
  EXPECT_EQ(world_.client->ready_replicas(), 6u);
}

TEST_P(QuorumClientChangeTest, ViewsThatComeMeanwhilePutThatOffForNobody) {
  ToServers(Both());
  for (int i = 0; i < 12; ++i) {
    world_.client->UpdateRing(Both());
    world_.time.RunFor(Duration::Millis(100));
  }
  EXPECT_EQ(world_.client->ready_replicas(), 6u);
}

TEST_P(QuorumClientChangeTest, AndAtOnceWhenTheyAreRead) {
  ToServers(Both());
  world_.client->UpdateRing(Both());
  world_.client->UpdateRing(New());
  world_.time.RunFor(Duration::Millis(50));
  EXPECT_EQ(world_.client->ready_replicas(), 6u);
}

// Its chunks are read behind those of the new one, which come only slowly.
TEST_P(QuorumClientChangeTest, ThoseThatGoAreConnectedToAtOnceByWhoHearsOfThemInTheMiddle) {
  ToServers(New());
  QuorumClient late(world_.client_loop.get(), world_.client_connector.get(),
                    world_.client_rpc.get(), {.seed = 7}, New());
  world_.time.RunFor(Duration::Millis(50));
  EXPECT_EQ(late.ready_replicas(), 6u);
}

TEST_P(QuorumClientChangeTest, AWriteThatIsRefusedForAnOlderRingIsMadeAgainUnderTheNewer) {
  const Scope scope;
  ToServers(Both());
  std::optional<Status> result;
  bool drained = false;
  world_.client->Mutate(One(KeyOf(1), 7), Duration::Seconds(1),
                        scope.Bind([&](Status status) { result = std::move(status); }));
  world_.client->Drain(scope.Bind([&] { drained = true; }));
  world_.time.RunFor(Duration::Millis(100));
  EXPECT_FALSE(result.has_value()) << "it waits for the newer ring";
  EXPECT_FALSE(drained);
  EXPECT_EQ(Holders(KeyOf(1), 0, 6), 0);
  world_.client->UpdateRing(Both());
  world_.time.RunFor(Duration::Millis(100));
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->ok()) << *result;
  EXPECT_TRUE(drained);
  EXPECT_EQ(Holders(KeyOf(1), 0, 6), 6);
}

TEST_P(QuorumClientChangeTest, AWriterWhoNeverHearsOfTheNewerRingIsToldAtItsDeadline) {
  ToServers(Both());
  const MonotonicTime before = world_.time.now();
  EXPECT_TRUE(IsUnavailable(world_.Mutate(One(KeyOf(1), 7), Duration::Millis(500))));
  EXPECT_GE(world_.time.now() - before, Duration::Millis(500));
}

TEST_P(QuorumClientChangeTest, AWriteSurvivesThatThoseWhoLeaveHearOfTheEndFirst) {
  const Scope scope;
  Publish(New());
  std::optional<Status> result;
  for (int i = 0; i < 3; ++i) world_.processes[i].server->UpdateRing(Settled());
  world_.client->Mutate(One(KeyOf(1), 7), Duration::Seconds(1),
                        scope.Bind([&](Status status) { result = std::move(status); }));
  world_.time.RunFor(Duration::Millis(100));
  EXPECT_FALSE(result.has_value());
  Publish(Settled());
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->ok()) << *result;
  EXPECT_EQ(Holders(KeyOf(1), 3, 6), 3);
}

TEST_P(QuorumClientChangeTest, AWriteReachesThoseThatComeBeforeTheyHaveHeardOfIt) {
  for (int i = 0; i < 3; ++i) world_.processes[i].server->UpdateRing(Both());
  world_.client->UpdateRing(Both());
  EXPECT_TRUE(world_.Mutate(One(KeyOf(1), 7)).ok());
  EXPECT_EQ(Holders(KeyOf(1), 3, 6), 3);
}

TEST_P(QuorumClientChangeTest, WhatAServerOfALaterRingSaysIsALowerBound) {
  Publish(Both());
  ASSERT_TRUE(world_.Mutate(One(KeyOf(1), 7)).ok());
  auto answer = world_.ReadAnswer(KeyOf(1));
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->complete);
  ToServers(New());
  answer = world_.ReadAnswer(KeyOf(1));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_FALSE(answer->complete);
  EXPECT_EQ(**answer, Lanes({7}));
  world_.client->UpdateRing(New());
  world_.time.RunFor(Duration::Millis(50));
  answer = world_.ReadAnswer(KeyOf(1));
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->complete);
}

// The owners are those of the ring that the read began with.
TEST_P(QuorumClientChangeTest, HearingOfTheNewRingInTheMiddleMakesNoAnswerOfTheOldOneComplete) {
  const Scope scope;
  Publish(Both());
  ASSERT_TRUE(world_.Mutate(One(KeyOf(1), 7)).ok());
  ToServers(New());
  std::optional<Result<Values>> result;
  world_.client->ReadValues({{KeyOf(1)}}, Duration::Millis(300),
                            scope.Bind([&](auto values) { result = std::move(values); }));
  world_.client->UpdateRing(New());
  world_.time.RunFor(Duration::Millis(400));
  ASSERT_TRUE(result.has_value());
  ASSERT_TRUE(result->ok()) << result->status();
  EXPECT_FALSE((**result)[0].complete);
}

TEST_P(QuorumClientChangeTest, ChunksOfTheRingThatGoesAreFound) {
  for (int i = 0; i < 3; ++i) {
    world_.WriteAt(i, KeyOf(1), MergeRule::kLongerWins, Final(1).substr(0, 300));
  }
  Publish(New());
  EXPECT_EQ(world_.ReadText(1, 300), Final(1).substr(0, 300));
  Publish(Settled());
  EXPECT_EQ(world_.ReadText(1, 300), "");
}

TEST_P(QuorumClientChangeTest, WatchersAreToldToLookWhenAnotherRingIsRead) {
  const Scope scope;
  ASSERT_TRUE(world_.Mutate(One(KeyOf(1), 7)).ok());
  ASSERT_TRUE(world_.ReadValue(KeyOf(1)).ok());
  int notified = 0;
  world_.client->WatchValue(KeyOf(1), Duration::Seconds(50),
                            scope.Bind([&](bool watched) { notified += watched ? 1 : 0; }));
  Publish(Both());
  EXPECT_EQ(notified, 0);
  Publish(New());
  EXPECT_EQ(notified, 1);
}

INSTANTIATE_TEST_SUITE_P(Fabrics, QuorumClientChangeTest, AllFabrics(), FabricName);

}  // namespace
}  // namespace tailcast::cache
