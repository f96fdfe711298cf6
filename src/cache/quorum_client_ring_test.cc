// Watches and rings: where a client watches, what it does when replicas come and go, and how it
// ends.
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/quorum_client_testing.h"

namespace tailcast::cache {
namespace {

INSTANTIATE_TEST_SUITE_P(Fabric, QuorumClientTest, AllFabrics(), FabricName);

TEST_P(QuorumClientTest, OlderConfigurationsAreIgnored) {
  World world(GetParam(), 4);
  RingConfig old = world.config;
  old.configuration_id = ConfigurationId{0};
  old.replicas.clear();
  world.client->UpdateRing(old);
  EXPECT_EQ(world.client->ready_replicas(), 4u);
}

TEST_P(QuorumClientTest, DoorbellNotifiesForChangesSinceTheLastRead) {
  const Scope scope;
  World world(GetParam());
  const Key key = KeyOf(1);
  ASSERT_TRUE(world.Mutate({{key, MergeRule::kMaxLanes, false, Lanes({1})}}).ok());
  int notifications = 0, refused = 0;
  const auto notify = [&](bool watched) { ++(watched ? notifications : refused); };
  world.client->WatchValue(key, Duration::Seconds(5), scope.Bind(notify));
  world.time.RunFor(Duration::Millis(5));
  EXPECT_EQ(refused, 1) << "never read on this client: poll";
  ASSERT_TRUE(world.ReadValue(key).ok());
  world.client->WatchValue(key, Duration::Seconds(5), scope.Bind(notify));
  world.time.RunFor(Duration::Seconds(1));
  EXPECT_EQ(notifications, 0);
  ASSERT_TRUE(world.Mutate({{key, MergeRule::kMaxLanes, false, Lanes({2})}}).ok());
  world.time.RunFor(Duration::Millis(5));
  EXPECT_EQ(notifications, 1);
  // A change between read and watch notifies at once.
  ASSERT_TRUE(world.ReadValue(key).ok());
  ASSERT_TRUE(world.Mutate({{key, MergeRule::kMaxLanes, false, Lanes({3})}}).ok());
  world.time.RunFor(Duration::Millis(5));
  world.client->WatchValue(key, Duration::Seconds(5), scope.Bind(notify));
  world.time.RunFor(Duration::Millis(5));
  EXPECT_EQ(notifications, 2);
  // The time-out notifies; a cancelled one does not.
  ASSERT_TRUE(world.ReadValue(key).ok());
  world.client->WatchValue(key, Duration::Seconds(1), scope.Bind(notify));
  world.client->CancelWatch(
      world.client->WatchValue(key, Duration::Seconds(1), scope.Bind(notify)));
  world.time.RunFor(Duration::Seconds(3));
  EXPECT_EQ(notifications, 3);
  EXPECT_EQ(refused, 1);
}

TEST_P(QuorumClientTest, WatchesMoveToAnotherReplicaWhenTheirServerDiesOrStops) {
  const Scope scope;
  for (const bool stop : {false, true}) {
    for (uint64_t seed = 1; seed < 6; ++seed) {
      World world(GetParam(), 3, seed);
      const Key key = KeyOf(1);
      ASSERT_TRUE(world.Mutate({{key, MergeRule::kMaxLanes, false, Lanes({1})}}).ok());
      world.time.RunFor(Duration::Millis(50));
      ASSERT_TRUE(world.ReadValue(key).ok());
      int notifications = 0, refused = 0;
      world.client->WatchValue(key, Duration::Seconds(50), scope.Bind([&](bool watched) {
        ++(watched ? notifications : refused);
      }));
      int watched_at = -1;
      for (int i = 0; i < 3; ++i) {
        if (!world.net.hosts["cache-" + std::to_string(i)].watches.empty()) watched_at = i;
      }
      ASSERT_NE(watched_at, -1);
      if (stop) {
        world.processes[watched_at].loop->Pause();
      } else {
        world.Kill(watched_at);
      }
      world.time.RunFor(Duration::Seconds(3));
      EXPECT_EQ(notifications + refused, 0) << "moved, not notified";
      ASSERT_TRUE(world.Mutate({{key, MergeRule::kMaxLanes, false, Lanes({2})}}).ok());
      world.time.RunFor(Duration::Millis(10));
      EXPECT_EQ(notifications, 1) << "stop " << stop << " seed " << seed;
      if (stop) world.processes[watched_at].loop->Resume();
    }
  }
}

TEST_P(QuorumClientTest, RefusedWatchesAreSaidSo) {
  const Scope scope;
  World world(GetParam());
  for (auto& [name, host] : world.net.hosts) host.watchable = false;
  ASSERT_TRUE(world.ReadValue(KeyOf(1)).ok());
  int refused = 0;
  world.client->WatchValue(KeyOf(1), Duration::Seconds(5),
                           scope.Bind([&](bool w) { refused += w ? 0 : 1; }));
  EXPECT_EQ(refused, 0);
  world.time.RunFor(Duration::Millis(1));
  EXPECT_EQ(refused, 1);
}

TEST_P(QuorumClientTest, ClientOnAnOldConfigurationFindsOut) {
  World world(GetParam());
  ASSERT_TRUE(world.Write(1, 100).ok());
  RingConfig newer = world.config;
  newer.configuration_id = ConfigurationId{9};
  for (auto& process : world.processes) process.server->UpdateRing(newer);
  EXPECT_EQ(world.ReadText(1, 100), Final(1).substr(0, 100));
  EXPECT_EQ(world.client->counters().newer_rings, 1u);
  EXPECT_EQ(world.ReadText(1, 100), Final(1).substr(0, 100));
  EXPECT_EQ(world.client->counters().newer_rings, 1u) << "once";
}

TEST_P(QuorumClientTest, NewRingKeepsConnectionsOfThoseThatStay) {
  const Scope scope;
  World world(GetParam(), 3);
  for (uint64_t n = 0; n < 30; ++n) ASSERT_TRUE(world.Write(n, 4096).ok());
  world.processes.emplace_back();
  world.StartServer(3);
  world.config.replicas.push_back({"cache-3", world.processes[3].rpc_address,
                                   world.processes[3].fabric_addresses,
                                   world.processes[3].incarnation});
  world.Publish();
  world.time.RunFor(Duration::Seconds(2));
  EXPECT_GT(world.processes[3].server->counters().repaired_values, 5u);
  // Keys that moved among the old ones, because the newcomer stands between them, are theirs too.
  for (uint64_t n = 0; n < 30; ++n) {
    for (const int owner : world.OwnersOf(KeyOf(n))) {
      EXPECT_TRUE(world.processes[owner].server->core()->Get({world.time.now(), {}}, KeyOf(n)));
    }
  }
  EXPECT_EQ(world.client->ready_replicas(), 4u);
  for (uint64_t n = 0; n < 30; ++n) EXPECT_EQ(world.ReadText(n, 4096), Final(n));
  // A removed one is asked no more, even in the middle of a read.
  ChunkRead read = world.Chunk(1, 4096);
  bool done = false;
  world.client->ReadChunks(std::span(&read, 1), ReadMode::kConsistent, Duration::Millis(100),
                           scope.Bind([&] { done = true; }));
  world.config.replicas.erase(world.config.replicas.begin() + 1);
  world.processes[1].incarnation = ProcessIncarnation::kNone;
  world.config.configuration_id = Successor(world.config.configuration_id);
  world.client->UpdateRing(world.config);
  ASSERT_TRUE(world.time.RunUntil([&] { return done; }, Duration::Seconds(1)));
  EXPECT_EQ(world.client->counters().misses, 0u);
}

TEST_P(QuorumClientTest, AReplicaThatIsNotWholeHasNoVoteAndNoAbsence) {
  World world(GetParam());
  const Key key = KeyOf(1000);
  ASSERT_TRUE(world.Mutate({{key, MergeRule::kMaxLanes, false, Lanes({7})}}).ok());
  // One begins anew; nobody repairs it, because the ring says that the others are excused.
  world.Kill(0);
  world.StartServer(0);
  for (Replica& replica : world.config.replicas) replica.excused = true;
  world.config.replicas[0].whole = false;
  world.config.replicas[1].rpc_address = world.config.replicas[2].rpc_address = "host:1";
  world.Publish();
  world.config.replicas[1].rpc_address = world.processes[1].rpc_address;
  world.config.replicas[2].rpc_address = world.processes[2].rpc_address;
  world.Publish();
  world.time.RunFor(Duration::Millis(100));
  auto answer = world.ReadAnswer(key);
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->complete);
  EXPECT_EQ(answer->bytes, Lanes({7}));

  // A second one is gone: an empty one and a whole one are no quorum, neither of answers nor votes.
  world.Kill(1);
  world.time.RunFor(Duration::Millis(10));
  answer = world.ReadAnswer(KeyOf(2000));
  ASSERT_TRUE(answer.ok());
  EXPECT_FALSE(answer->has_value());
  EXPECT_FALSE(answer->complete) << "nobody has it, as far as one can see";
  EXPECT_TRUE(
      IsUnavailable(world.Mutate({{KeyOf(2000), MergeRule::kMaxLanes, false, Lanes({1})}})));
  EXPECT_TRUE(world.Write(1, 100).ok()) << "a chunk is found wherever it is";
  EXPECT_EQ(world.client->counters().partial_values, 1u);
}

TEST_P(QuorumClientTest, AWriteOfAnEarlierEpochIsNotAcknowledged) {
  World world(GetParam());
  for (auto& process : world.processes) process.loop->Pause();
  std::optional<Status> status;
  world.client->Mutate({{KeyOf(1000), MergeRule::kMaxLanes, false, Lanes({7})}},
                       Duration::Millis(500), world.scope.Bind([&](Status s) { status = s; }));
  world.config.epoch = Successor(world.config.epoch);
  world.client->UpdateRing(world.config);
  for (auto& process : world.processes) process.loop->Resume();
  ASSERT_TRUE(world.time.RunUntil([&] { return status.has_value(); }, Duration::Seconds(1)));
  EXPECT_TRUE(IsUnavailable(*status)) << *status;
  EXPECT_TRUE(world.Mutate({{KeyOf(1000), MergeRule::kMaxLanes, false, Lanes({7})}}).ok());
}

TEST_P(QuorumClientTest, CallsAndReadsThatMeanAnotherLifeAreRefused) {
  World world(GetParam());
  ASSERT_TRUE(world.Write(1, 100).ok());
  // The client knows the replicas of before; they stand at the same addresses.
  for (int i = 0; i < 3; ++i) {
    world.Kill(i);
    world.StartServer(i);
  }
  world.time.RunFor(Duration::Millis(100));
  EXPECT_TRUE(IsUnavailable(world.Write(1, 200)));
  EXPECT_EQ(world.processes[0].server->counters().other_incarnations, 1u);
  EXPECT_EQ(world.processes[0].server->core()->stats().live, 0u);
  EXPECT_FALSE(world.ReadAnswer(KeyOf(1000)).ok()) << "their memory is not that of the ring";
  world.Publish();
  world.time.RunFor(Duration::Seconds(2));
  EXPECT_TRUE(world.Write(1, 200).ok());
  EXPECT_EQ(world.ReadText(1, 200), Final(1).substr(0, 200));
}

TEST_P(QuorumClientTest, AWriterWithAnOlderRingIsRefusedAndFindsOut) {
  World world(GetParam());
  RingConfig next = world.config;
  next.configuration_id = Successor(next.configuration_id);
  for (auto& process : world.processes) process.server->UpdateRing(next);
  EXPECT_TRUE(IsUnavailable(world.Write(1, 100)));
  EXPECT_EQ(world.processes[0].server->counters().old_rings, 1u);
  EXPECT_EQ(world.processes[0].server->core()->stats().live, 0u);
  EXPECT_EQ(world.client->counters().newer_rings, 1u);
  world.client->UpdateRing(next);
  EXPECT_TRUE(world.Write(1, 100).ok());
  // The same with one that has not heard of an epoch.
  next.epoch = Successor(next.epoch);
  for (auto& process : world.processes) process.server->UpdateRing(next);
  EXPECT_TRUE(IsUnavailable(world.Write(1, 200)));
  EXPECT_EQ(world.ReadText(1, 200), Final(1).substr(0, 100));
  world.client->UpdateRing(next);
  EXPECT_TRUE(world.Write(1, 200).ok());
}

TEST_P(QuorumClientTest, AReplicaThatTheRingDoesNotNameServesNoMore) {
  World world(GetParam(), 4);
  for (uint64_t n = 0; n < 20; ++n) ASSERT_TRUE(world.Write(n, 100).ok());
  RingConfig next = world.config;
  next.configuration_id = Successor(next.configuration_id);
  next.replicas.pop_back();
  world.processes[3].server->UpdateRing(next);
  // This client knows nothing yet.
  const uint64_t live = world.processes[3].server->core()->stats().live;
  ASSERT_GT(live, 0u);
  for (uint64_t n = 0; n < 20; ++n) {
    EXPECT_TRUE(world.Write(n, 200).ok()) << "the other two acknowledge";
    EXPECT_EQ(world.ReadText(n, 200), Final(n).substr(0, 200));
  }
  EXPECT_EQ(world.processes[3].server->core()->stats().live, live);
  const uint64_t reads = world.net.hosts["cache-3"].reads;
  world.time.RunFor(Duration::Seconds(3));
  for (uint64_t n = 0; n < 20; ++n) world.ReadText(n, 200);
  EXPECT_EQ(world.net.hosts["cache-3"].reads, reads) << "its memory is closed";
  // It is taken in again.
  next.configuration_id = Successor(next.configuration_id);
  next.replicas = world.config.replicas;
  world.config = next;
  world.Publish();
  world.time.RunFor(Duration::Seconds(2));
  EXPECT_EQ(world.client->ready_replicas(), 4u);
}

TEST_P(QuorumClientTest, DestroyedInTheMiddleCallsNobody) {
  const Scope scope;
  World world(GetParam());
  ASSERT_TRUE(world.Write(1, 4096).ok());
  for (auto& [name, host] : world.net.hosts) host.delay = Duration::Millis(5);
  bool called = false;
  ChunkRead read = world.Chunk(1, 4096);
  world.client->ReadChunks(std::span(&read, 1), ReadMode::kConsistent, Duration::Millis(100),
                           scope.Bind([&] { called = true; }));
  world.client->Mutate({{KeyOf(1), MergeRule::kLongerWins, false, "x"}}, Duration::Seconds(1),
                       scope.Bind([&](Status) { called = true; }));
  world.client->ReadValues({{KeyOf(1), MergeRule::kMaxLanes}}, Duration::Seconds(1),
                           scope.Bind([&](auto) { called = true; }));
  world.client.reset();
  world.buffers.clear();
  world.time.RunFor(Duration::Seconds(2));
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace tailcast::cache
