#include "tailcast/cache/client_metrics.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/cache/quorum_client_testing.h"
#include "tailcast/cache/replica_link.h"

namespace tailcast::cache {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Moved = std::map<std::string, uint64_t>;

// The causes of failures that were counted since `before`, and how often.
Moved Failures(const ClientCounters& counters, const ClientCounters& before = {}) {
  Moved moved;
  for (const ClientMetric& metric : ClientMetrics()) {
    if (metric.name != std::string("failures_total")) continue;
    const uint64_t more = (counters.*(metric.count)).value() - (before.*(metric.count)).value();
    if (more > 0) moved[metric.key] = more;
  }
  return moved;
}

TEST(ClientMetricsTest, EachHasANameOfItsOwn) {
  std::set<std::string> keys;
  std::set<std::vector<std::string>> names;
  for (const ClientMetric& metric : ClientMetrics()) {
    EXPECT_TRUE(keys.insert(metric.key).second) << metric.key;
    std::vector<std::string> name{metric.name};
    for (const char* word : {metric.label, metric.value, metric.label2, metric.value2}) {
      if (word != nullptr) name.emplace_back(word);
    }
    EXPECT_TRUE(names.insert(name).second) << metric.key;
  }
}

TEST(ClientMetricsTest, ARegistryShowsWhatAClientCounts) {
  MetricRegistry registry;
  ClientCounters data, metadata;
  const MetricSource a = ExportClient(registry, "data", data, true);
  const MetricSource b = ExportClient(registry, "metadata", metadata, true);
  ++data.write_timeout;
  metadata.bytes_read += 500;
  data.ready_replicas += 3;
  const std::string prefix = kClientPrefix;
  EXPECT_EQ(registry.Value(prefix + "failures_total",
                           {{"cache", "data"}, {"operation", "write"}, {"cause", "timeout"}}),
            1);
  EXPECT_EQ(registry.Total(prefix + "failures_total"), 1);
  EXPECT_EQ(registry.Value(prefix + "read_bytes_total", {{"cache", "metadata"}}), 500);
  EXPECT_EQ(registry.Value(prefix + "ready_replicas", {{"cache", "data"}}), 3);
}

// ---- Each cause moves its counter and no other ----

// A server that answers calls of one method with `reply`. It ends before its world does.
std::unique_ptr<rpc::Server> Answering(World& world, const std::string& method,
                                       const std::string& reply) {
  auto server = world.network.MakeServer(*world.client_loop, "host");
  server->Handle(
      std::string("/") + kDataService + "/" + method,
      world.scope.Bind([reply](const std::string&, rpc::Responder respond) { respond(reply); }));
  EXPECT_TRUE(server->Start("host:900").ok());
  return server;
}

TEST(ClientFailuresTest, NothingIsCountedWhereNothingFails) {
  World world(FabricKind::kImmediate);
  ASSERT_TRUE(world.Write(1, 100).ok());
  EXPECT_EQ(world.ReadText(1, 100), Final(1).substr(0, 100));
  EXPECT_EQ(world.ReadText(2, 100), "") << "a miss is no failure";
  EXPECT_THAT(Failures(world.client->counters()), ElementsAre());
  EXPECT_EQ(world.client->counters().ready_replicas, 3u);
}

TEST(ClientFailuresTest, WritesToAReplicaThatIsGoneCountAsUnreachable) {
  World world(FabricKind::kImmediate);
  world.Kill(1);
  EXPECT_TRUE(world.Write(1, 100).ok());
  world.time.RunFor(Duration::Seconds(1));
  EXPECT_THAT(Failures(world.client->counters()), ElementsAre(Pair("write_unreachable", 1)));
}

TEST(ClientFailuresTest, WritesToAReplicaThatStandsStillCountAsTimeouts) {
  World world(FabricKind::kImmediate);
  world.processes[1].loop->Pause();
  EXPECT_TRUE(world.Write(1, 100).ok());
  world.time.RunFor(Duration::Seconds(1));
  EXPECT_THAT(Failures(world.client->counters()), ElementsAre(Pair("write_timeout", 1)));
}

TEST(ClientFailuresTest, WritesToAnotherLifeOfAReplicaCountAsThat) {
  World world(FabricKind::kImmediate);
  world.Kill(1);
  world.StartServer(1);
  world.processes[1].server->UpdateRing(world.config);
  EXPECT_TRUE(world.Write(1, 100).ok());
  world.time.RunFor(Duration::Millis(10));
  EXPECT_THAT(Failures(world.client->counters()), ElementsAre(Pair("write_other_incarnation", 1)));
}

TEST(ClientFailuresTest, WritesThatAreRefusedForAnOldRingCountAsThat) {
  World world(FabricKind::kImmediate);
  RingConfig next = world.config;
  next.configuration_id = Successor(next.configuration_id);
  for (auto& process : world.processes) process.server->UpdateRing(next);
  EXPECT_TRUE(IsUnavailable(world.Write(1, 100)));
  world.time.RunFor(Duration::Millis(10));
  EXPECT_THAT(Failures(world.client->counters()), ElementsAre(Pair("write_old_ring", 3)));
}

TEST(ClientFailuresTest, WritesThatAreRefusedForAnOldEpochCountAsThat) {
  World world(FabricKind::kImmediate);
  RingConfig next = world.config;
  next.epoch = CacheEpoch{7};
  for (auto& process : world.processes) process.server->UpdateRing(next);
  EXPECT_TRUE(IsUnavailable(world.Write(1, 100)));
  world.time.RunFor(Duration::Millis(10));
  EXPECT_THAT(Failures(world.client->counters()), ElementsAre(Pair("write_old_epoch", 3)));
  EXPECT_EQ(world.processes[0].server->counters().old_epochs, 1u);
  EXPECT_EQ(world.processes[0].server->counters().old_rings, 0u);
}

// By the time that the refusals come the client has the ring that they are refused for.
TEST(ClientFailuresTest, WritesThatANewRingOvertakesCountAsOfAnOldRing) {
  const Scope scope;
  World world(FabricKind::kImmediate);
  std::optional<Status> written;
  world.client->Mutate({{KeyOf(1), MergeRule::kLongerWins, false, Final(1).substr(0, 100)}},
                       Duration::Millis(500),
                       scope.Bind([&](Status status) { written = std::move(status); }));
  world.Publish();
  ASSERT_TRUE(world.time.RunUntil([&] { return written.has_value(); }, Duration::Seconds(1)));
  EXPECT_TRUE(written->ok()) << *written;
  world.time.RunFor(Duration::Millis(10));
  EXPECT_THAT(Failures(world.client->counters()), ElementsAre(Pair("write_old_ring", 3)));
}

TEST(ClientFailuresTest, WritesToOneThatWaitsForTheRegistryCountAsThat) {
  World world(FabricKind::kImmediate);
  ASSERT_TRUE(world.Write(1, 50).ok());
  world.processes[1].server->Confirm({.asked = world.time.now(),
                                      .lease = Duration::Millis(50),
                                      .configuration = world.config.configuration_id});
  world.time.RunFor(Duration::Millis(100));
  EXPECT_TRUE(world.Write(1, 100).ok());
  world.time.RunFor(Duration::Seconds(1));
  const auto failures = Failures(world.client->counters());
  EXPECT_EQ(failures.count("write_other_incarnation"), 0u);
  EXPECT_EQ(failures.at("write_not_serving"), 1u);
  EXPECT_EQ(world.processes[1].server->counters().no_lease, 1u);
}

TEST(ClientFailuresTest, WritesBeyondTheWindowCountAsThat) {
  QuorumClientOptions options;
  options.inflight_bytes_max = 1000;
  World world(FabricKind::kImmediate, 3, 1, options);
  EXPECT_TRUE(IsUnavailable(world.Write(1, 4000)));
  EXPECT_THAT(Failures(world.client->counters()), ElementsAre(Pair("write_window_full", 3)));
}

TEST(ClientFailuresTest, WritesToAReplicaThatIsNotThereCountAsThat) {
  World world(FabricKind::kImmediate);
  world.config.replicas[1].rpc_address.clear();
  world.config.configuration_id = Successor(world.config.configuration_id);
  world.client->UpdateRing(world.config);
  for (auto& process : world.processes) process.server->UpdateRing(world.config);
  EXPECT_TRUE(world.Write(1, 100).ok());
  EXPECT_THAT(Failures(world.client->counters()), ElementsAre(Pair("write_no_address", 1)));
}

TEST(ClientFailuresTest, AnswersToWritesThatAreNoneCountAsBad) {
  // No message; results of two keys.
  for (const std::string reply : {"\xff\xff", "\x0a\x02\x01\x01"}) {
    World world(FabricKind::kImmediate);
    const auto server = Answering(world, "Mutate", reply);
    world.config.replicas[1].rpc_address = "host:900";
    world.config.configuration_id = Successor(world.config.configuration_id);
    world.client->UpdateRing(world.config);
    for (auto& process : world.processes) process.server->UpdateRing(world.config);
    EXPECT_TRUE(world.Write(1, 100).ok());
    world.time.RunFor(Duration::Millis(10));
    EXPECT_THAT(Failures(world.client->counters()), ElementsAre(Pair("write_bad_reply", 1)));
  }
}

// A ring with one replica that can't be connected to.
Moved ConnectTo(World& world, const Replica& replica) {
  RingConfig ring = world.config;
  ring.configuration_id = Successor(ring.configuration_id);
  ring.replicas = {replica};
  const ClientCounters before = world.client->counters();
  world.client->UpdateRing(ring);
  world.time.RunFor(Duration::Millis(1));
  return Failures(world.client->counters(), before);
}

TEST(ClientFailuresTest, EachWayNotToConnectHasItsCause) {
  World world(FabricKind::kDelayed);
  Replica replica = world.config.replicas[0];
  replica.name = "other";
  replica.fabric_addresses = {"test:nobody"};
  EXPECT_THAT(ConnectTo(world, replica), ElementsAre(Pair("connect_failed", 1)));

  TestExporter small(&world.net, "small");
  ASSERT_TRUE(small.AddRegion(0, 4096).ok());
  ASSERT_TRUE(small.Listen().ok());
  replica.fabric_addresses = {"test:small"};
  world.config.configuration_id = Successor(world.config.configuration_id);
  EXPECT_THAT(ConnectTo(world, replica), ElementsAre(Pair("connect_not_a_cache", 1)));

  TestExporter foreign(&world.net, "foreign");
  ASSERT_TRUE(foreign.AddRegion(0, 8192).ok());
  ASSERT_TRUE(foreign.AddRegion(1, 8192).ok());
  ASSERT_TRUE(foreign.Listen().ok());
  replica.fabric_addresses = {"test:foreign"};
  world.config.configuration_id = Successor(world.config.configuration_id);
  EXPECT_THAT(ConnectTo(world, replica), ElementsAre(Pair("connect_not_a_cache", 1)));

  replica.fabric_addresses = world.config.replicas[0].fabric_addresses;
  replica.incarnation = ProcessIncarnation{77};
  world.config.configuration_id = Successor(world.config.configuration_id);
  EXPECT_THAT(ConnectTo(world, replica), ElementsAre(Pair("connect_other_incarnation", 1)));
  EXPECT_EQ(world.client->counters().ready_replicas, 0u);
}

TEST(ClientFailuresTest, WhoWaitsForAConnectionThatFailsCountsToo) {
  World world(FabricKind::kDelayed);
  RingConfig ring = world.config;
  ring.configuration_id = Successor(ring.configuration_id);
  ring.replicas.resize(1);
  ring.replicas[0].name = "other";
  ring.replicas[0].fabric_addresses = {"test:nobody"};
  world.client->UpdateRing(ring);
  EXPECT_EQ(world.ReadText(1, 100), "");
  EXPECT_THAT(Failures(world.client->counters()),
              UnorderedElementsAre(Pair("connect_failed", 1), Pair("read_not_connected", 1)));
}

TEST(ClientFailuresTest, EachWayOfAReadToFailHasItsCause) {
  const std::map<fabric::ReadStatus, std::string> causes = {
      {fabric::ReadStatus::kOutOfRange, "read_out_of_range"},
      {fabric::ReadStatus::kStaleRegion, "read_stale_region"},
      {fabric::ReadStatus::kUnreachable, "read_unreachable"},
      {fabric::ReadStatus::kTimeout, "read_timeout"},
      {fabric::ReadStatus::kOverloaded, "read_overloaded"}};
  for (const auto& [status, cause] : causes) {
    World world(FabricKind::kDelayed);
    ClientContext context(*world.client_loop, {});
    ReplicaLink link(context, *world.client_connector, *world.client_rpc, world.config.replicas[0]);
    link.Connect();
    world.time.RunFor(Duration::Millis(1));
    EXPECT_EQ(context.counters.ready_replicas, 1u);
    link.OnReadError(status, world.client_loop->Now());
    EXPECT_THAT(Failures(context.counters), ElementsAre(Pair(cause, 1)));
  }
}

TEST(ClientFailuresTest, ReadsOfAMemoryThatDoesNotValidateCountAsTorn) {
  World world(FabricKind::kImmediate);
  ASSERT_TRUE(world.Write(1, 100).ok());
  for (auto& [name, host] : world.net.hosts) {
    auto& index = host.regions[layout::kIndexRegion];
    for (size_t i = layout::kHeaderPageBytes / 8; i < index.size(); ++i) index[i] ^= 0x5555;
  }
  EXPECT_EQ(world.ReadText(1, 100), "");
  EXPECT_THAT(Failures(world.client->counters()), ElementsAre(Pair("read_torn", 3)));
}

TEST(ClientFailuresTest, ReadsThatEndAtTheirDeadlineCountAsThat) {
  World world(FabricKind::kDelayed, 1);
  ASSERT_TRUE(world.Write(1, 100).ok());
  world.net.hosts["cache-0"].delay = Duration::Millis(300);
  EXPECT_EQ(world.Read(world.Chunk(1, 100), ReadMode::kRelaxed, Duration::Millis(10)).length, 0u);
  world.time.RunFor(Duration::Seconds(1));
  EXPECT_THAT(Failures(world.client->counters()), ElementsAre(Pair("read_deadline", 1)));
}

TEST(ClientFailuresTest, AServerThatIsWatchedAndStopsBeatingCountsAsThat) {
  World world(FabricKind::kImmediate, 1);
  ASSERT_TRUE(world.Mutate({{KeyOf(1), MergeRule::kMaxLanes, false, Lanes({7})}}).ok());
  ASSERT_TRUE(world.ReadValue(KeyOf(1)).ok());
  world.client->WatchValue(KeyOf(1), Duration::Seconds(60), world.scope.Bind([](bool) {}));
  world.processes[0].loop->Pause();
  world.time.RunFor(Duration::Seconds(3));
  EXPECT_THAT(Failures(world.client->counters()), ElementsAre(Pair("heartbeat_stopped", 1)));
}

TEST(ClientFailuresTest, ReadsOfOverflowedKeysCountTheFailuresOfTheirCalls) {
  const auto read = [](World& world, const Key& key) {
    const ClientCounters before = world.client->counters();
    ChunkRead chunk = world.Chunk(0, 500);
    chunk.key = key;
    world.Read(chunk, ReadMode::kRelaxed, Duration::Millis(400));
    world.time.RunFor(Duration::Seconds(1));
    return Failures(world.client->counters(), before);
  };
  World world(FabricKind::kImmediate, 1);
  const Key key = OverflowBucket(world).back();
  EXPECT_THAT(read(world, key), ElementsAre());
  EXPECT_GT(world.client->counters().overflow_reads, 0u);
  const std::string address = world.config.replicas[0].rpc_address;
  const auto at = [&](const std::string& rpc_address) {
    world.config.configuration_id = Successor(world.config.configuration_id);
    world.config.replicas[0].rpc_address = rpc_address;
    world.client->UpdateRing(world.config);
    world.time.RunFor(Duration::Millis(10));
    return read(world, key);
  };
  EXPECT_THAT(at("host:899"), ElementsAre(Pair("get_unreachable", 1)));
  EXPECT_THAT(at(""), ElementsAre(Pair("get_no_address", 1)));
  const auto server = Answering(world, "Get", "\xff\xff");
  EXPECT_THAT(at("host:900"), ElementsAre(Pair("get_bad_reply", 1)));
  EXPECT_THAT(at(address), ElementsAre());
}

TEST(CallFailureTest, IsToldByTheStatus) {
  EXPECT_EQ(CallFailureOf(DeadlineExceededError("")), CallFailure::kTimeout);
  EXPECT_EQ(CallFailureOf(UnavailableError("")), CallFailure::kUnreachable);
  EXPECT_EQ(CallFailureOf(FailedPreconditionError("")), CallFailure::kOtherIncarnation);
  EXPECT_EQ(CallFailureOf(NotFoundError("")), CallFailure::kNotServing);
  EXPECT_EQ(CallFailureOf(AbortedError("")), CallFailure::kOldRing);
  EXPECT_EQ(CallFailureOf(InvalidArgumentError("")), CallFailure::kBadReply);
  EXPECT_EQ(CallFailureOf(OkStatus()), CallFailure::kBadReply);
}

}  // namespace
}  // namespace tailcast::cache
