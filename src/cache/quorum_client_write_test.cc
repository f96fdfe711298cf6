// Writes: how many replicas it takes, what becomes of the others, and what is refused.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/quorum_client_testing.h"

namespace tailcast::cache {
namespace {

INSTANTIATE_TEST_SUITE_P(Fabric, QuorumClientTest, AllFabrics(), FabricName);

TEST_P(QuorumClientTest, OneDeadReplicaCostsNoReadAndNoWrite) {
  World world(GetParam());
  for (uint64_t n = 0; n < 20; ++n) ASSERT_TRUE(world.Write(n, 4096).ok());
  world.Kill(1);
  for (uint64_t n = 0; n < 20; ++n) EXPECT_EQ(world.ReadText(n, 4096), Final(n));
  for (uint64_t n = 20; n < 40; ++n) ASSERT_TRUE(world.Write(n, 4096).ok());
  for (uint64_t n = 0; n < 40; ++n) EXPECT_EQ(world.ReadText(n, 4096), Final(n));
  EXPECT_EQ(world.client->counters().misses, 0u);
  EXPECT_TRUE(world.Mutate({{KeyOf(100), MergeRule::kMaxLanes, false, Lanes({5})}}).ok());
  EXPECT_EQ(**world.ReadValue(KeyOf(100)), Lanes({5}));
}

TEST_P(QuorumClientTest, TwoDeadReplicasFailWritesAndReadsGoOnWithTheThird) {
  World world(GetParam());
  for (uint64_t n = 0; n < 5; ++n) ASSERT_TRUE(world.Write(n, 4096).ok());
  world.Kill(0);
  world.Kill(2);
  EXPECT_TRUE(IsUnavailable(world.Write(10, 100)));
  EXPECT_GE(world.client->counters().mutation_failures, 1u);
  for (uint64_t n = 0; n < 5; ++n) EXPECT_EQ(world.ReadText(n, 4096), Final(n));
  world.Kill(1);
  EXPECT_EQ(world.ReadText(1, 4096), "");
  EXPECT_TRUE(IsUnavailable(world.ReadValue(KeyOf(1)).status()));
}

TEST_P(QuorumClientTest, SilentServerNeverDelaysTheOthersWrites) {
  World world(GetParam());
  ASSERT_TRUE(world.Write(1, 10).ok());
  world.processes[1].loop->Pause();  // SIGSTOP: its calls run into their deadline
  const MonotonicTime start = world.time.now();
  EXPECT_TRUE(
      world.Mutate({{KeyOf(1), MergeRule::kLongerWins, false, Final(1)}}, Duration::Seconds(5))
          .ok());
  EXPECT_LT((world.time.now() - start).millis(), 50);
  world.time.RunFor(Duration::Seconds(6));
  world.processes[1].loop->Resume();
  world.time.RunFor(Duration::Seconds(1));
}

TEST_P(QuorumClientTest, DrainWaitsForTheReplicaThatTheOthersDidNotWaitFor) {
  const Scope scope;
  World world(GetParam());
  int drained = 0;
  const auto drain = [&] { world.client->Drain(scope.Bind([&] { ++drained; })); };
  drain();
  EXPECT_EQ(drained, 0) << "called back inside the call";
  world.time.RunFor(Duration::Millis(1));
  EXPECT_EQ(drained, 1) << "nothing was under way";

  world.processes[1].loop->Pause();
  ASSERT_TRUE(world.Write(1, 100).ok());
  drain();
  world.time.RunFor(Duration::Millis(100));
  EXPECT_EQ(drained, 1);
  world.processes[1].loop->Resume();
  world.time.RunFor(Duration::Millis(1));
  EXPECT_EQ(drained, 2);
  EXPECT_TRUE(world.processes[1].server->core()->Get({world.time.now(), WallTime()}, KeyOf(1)));

  // One that stays silent: until the call's time-out, whatever is written after.
  world.processes[1].loop->Pause();
  ASSERT_TRUE(world.Write(2, 100).ok());
  drain();
  world.time.RunFor(Duration::Millis(400));
  ASSERT_TRUE(world.Write(3, 100).ok());
  EXPECT_EQ(drained, 2);
  world.time.RunFor(Duration::Millis(110));
  EXPECT_EQ(drained, 3);
}

TEST_P(QuorumClientTest, RestartedReplicaIsRepairedWithTheRemainingTimeToLive) {
  World world(GetParam(), 4);
  for (uint64_t n = 0; n < 200; ++n) ASSERT_TRUE(world.Write(n, 1000 + n).ok());
  ASSERT_TRUE(world.Mutate({{KeyOf(500), MergeRule::kMaxLanes, false, Lanes({7, 8})}}).ok());
  const uint64_t live = world.processes[2].server->core()->stats().live;
  world.time.RunFor(Duration::Seconds(20));
  world.Kill(2);
  world.time.RunFor(Duration::Millis(500));
  world.StartServer(2);
  world.Publish();
  world.time.RunFor(Duration::Seconds(3));
  const Server& server = *world.processes[2].server;
  EXPECT_TRUE(server.repaired());
  EXPECT_EQ(server.counters().repaired_values, live);
  EXPECT_EQ(server.core()->stats().live, live);
  const uint64_t repaired = server.counters().repaired_bytes;
  EXPECT_GT(repaired, live * 1000);
  int checked = 0;
  for (uint64_t n = 0; n < 200; ++n) {
    const auto value = server.core()->Get({world.time.now(), WallTime()}, KeyOf(n));
    if (!value.has_value()) continue;
    ++checked;
    EXPECT_EQ(value->bytes, Final(n).substr(0, 1000 + n));
    EXPECT_LT(value->remaining.seconds(), 40);
    EXPECT_GT(value->remaining.seconds(), 30);
  }
  EXPECT_GT(checked, 100);
  for (uint64_t n = 0; n < 200; ++n)
    EXPECT_EQ(world.ReadText(n, 1000), Final(n).substr(0, 1000 + n));
}

TEST_P(QuorumClientTest, ContradictionsAndRefusalsHaveTheirCodes) {
  World world(GetParam());
  ASSERT_TRUE(world.Write(1, 100).ok());
  EXPECT_TRUE(
      IsDataLoss(world.Mutate({{KeyOf(1), MergeRule::kLongerWins, false, std::string(200, 'x')}})));
  EXPECT_EQ(world.ReadText(1, 1), "");
  EXPECT_TRUE(IsResourceExhausted(
      world.Mutate({{KeyOf(2), MergeRule::kLongerWins, false, std::string(70000, 'x')}})));
  EXPECT_GE(world.client->counters().mismatches(), 2u);
  EXPECT_TRUE(world.Mutate({}).ok());
}

TEST(QuorumClientBulkTest, LargeBulksBecomeSeveralCallsAndWhatIsUnderWayIsBounded) {
  QuorumClientOptions options;
  options.request_bytes_max = 16 << 10;
  World world(FabricKind::kImmediate, 3, 1, options);
  std::vector<Mutation> mutations;
  for (uint64_t n = 0; n < 64; ++n) {
    mutations.push_back({KeyOf(n), MergeRule::kLongerWins, false, Final(n)});
  }
  ASSERT_TRUE(world.Mutate(mutations).ok());
  EXPECT_GE(world.processes[0].server->counters().mutate_calls, 13u);
  for (uint64_t n = 0; n < 64; ++n) EXPECT_EQ(world.ReadText(n, 4096), Final(n));

  options.inflight_bytes_max = 40 << 10;
  World narrow(FabricKind::kImmediate, 3, 1, options);
  EXPECT_TRUE(IsUnavailable(narrow.Mutate(mutations))) << "more than may be under way at once";
  narrow.time.RunFor(Duration::Seconds(1));
  mutations.resize(8);
  EXPECT_TRUE(narrow.Mutate(mutations).ok()) << "what was answered is under way no more";
}

TEST_P(QuorumClientTest, EraseReachesTheReplicas) {
  World world(GetParam());
  ASSERT_TRUE(world.Write(1, 100).ok());
  ASSERT_TRUE(world.Mutate({{KeyOf(1), MergeRule::kLongerWins, true, ""}}).ok());
  world.time.RunFor(Duration::Millis(10));
  EXPECT_EQ(world.ReadText(1, 1), "");
}

}  // namespace
}  // namespace tailcast::cache
