#include "tailcast/cache/quorum_client.h"

#include <deque>
#include <map>
#include <set>

#include "gtest/gtest.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/merge.h"
#include "tailcast/cache/test_fabric.h"
#include "tailcast/cache/wire.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/sim/sim_rpc.h"

namespace tailcast::cache {
namespace {

std::string Lanes(std::vector<uint64_t> lanes) {
  return std::string(reinterpret_cast<const char*>(lanes.data()), lanes.size() * 8);
}
Key KeyOf(uint64_t n) {
  Rng rng(n + 99);
  return {rng.Next(), rng.Next()};
}
// The final bytes of the chunk of a key.
std::string Final(uint64_t n, size_t length = 4096) {
  std::string bytes(length, '\0');
  Rng rng(n * 3 + 1);
  for (size_t i = 0; i < length; i += 8) {
    const uint64_t word = rng.Next();
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, length - i));
  }
  return bytes;
}

const bool kQuiet = SetLogLevels("off").ok();

// Several servers and one client in virtual time.
struct World {
  explicit World(bool immediate, int servers = 3, uint64_t seed = 1,
                 QuorumClientOptions client_options = {}, ServerCoreOptions core_options = {})
      : time(seed), network(time, Rng(seed)), net(seed), core(std::move(core_options)) {
    EXPECT_TRUE(kQuiet);
    net.immediate = immediate;
    config.configuration_id = 1;
    for (int i = 0; i < servers; ++i) {
      processes.emplace_back();
      StartServer(i);
      config.replicas.push_back({"cache-" + std::to_string(i), processes[i].rpc_address,
                                 processes[i].fabric_addresses, processes[i].incarnation});
    }
    for (auto& process : processes) process.server->UpdateRing(config);
    time.RunFor(Duration::Seconds(1));
    client_loop = time.MakeLoop("client");
    client_connector = std::make_unique<TestConnector>(&net, client_loop.get());
    client_rpc = network.MakeConnector(*client_loop, "host");
    if (client_options.seed == 0) client_options.seed = seed + 1000;
    client = std::make_unique<QuorumClient>(client_loop.get(), client_connector.get(),
                                            client_rpc.get(), client_options, config);
    time.RunFor(Duration::Millis(10));
  }
  ~World() {
    client.reset();
    for (auto& process : processes) process.server.reset();
  }

  struct Process {
    std::unique_ptr<sim::SimLoop> loop;
    std::unique_ptr<TestExporter> exporter;
    std::unique_ptr<rpc::Connector> connector;
    std::unique_ptr<rpc::Server> rpc;
    std::unique_ptr<Server> server;
    std::string rpc_address;
    std::vector<std::string> fabric_addresses;
    uint64_t incarnation = 0;
  };

  void StartServer(int i) {
    Process& process = processes[i];
    const std::string name = "cache-" + std::to_string(i);
    process.loop = time.MakeLoop(name);
    process.exporter = std::make_unique<TestExporter>(&net, name);
    process.connector = network.MakeConnector(*process.loop, "host");
    process.rpc = network.MakeServer(*process.loop, "host");
    ServerOptions options;
    options.name = name;
    options.memory_bytes = memory_bytes;
    options.generation = ++generations * 1000 + static_cast<uint64_t>(i);
    options.core = core;
    process.server = std::make_unique<Server>(process.loop.get(), process.exporter.get(),
                                              process.rpc.get(), process.connector.get(), options);
    process.fabric_addresses = *process.server->Start();
    if (process.rpc_address.empty()) process.rpc_address = "host:" + std::to_string(100 + i);
    process.rpc_address = *process.rpc->Start(process.rpc_address);
    ++process.incarnation;
  }
  void Kill(int i) {
    Process& process = processes[i];
    net.Kill("cache-" + std::to_string(i));
    network.Disconnect(*process.loop);
    process.loop->Kill();
    process.server.reset();
    process.rpc.reset();
    process.connector.reset();
    process.exporter.reset();
    process.loop.reset();
  }
  // As the registry would do after a restart.
  void Publish() {
    ++config.configuration_id;
    for (size_t i = 0; i < processes.size() && i < config.replicas.size(); ++i) {
      config.replicas[i].incarnation = processes[i].incarnation;
    }
    for (auto& process : processes) {
      if (process.server != nullptr) process.server->UpdateRing(config);
    }
    client->UpdateRing(config);
  }

  Status Mutate(std::vector<Mutation> mutations, Duration timeout = Duration::Millis(500)) {
    std::optional<Status> result;
    client->Mutate(std::move(mutations), timeout,
                   scope.Bind([&](Status status) { result = status; }));
    EXPECT_FALSE(result.has_value());
    EXPECT_TRUE(time.RunUntil([&] { return result.has_value(); }, Duration::Seconds(10)));
    return result.value_or(OkStatus());
  }
  Status Write(uint64_t n, size_t length) {
    return Mutate({{KeyOf(n), MergeRule::kLongerWins, false, Final(n).substr(0, length)}});
  }
  // Straight into one server's memory, past the client.
  void WriteAt(int server, const Key& key, MergeRule rule, const std::string& value) {
    v1::CacheMutateRequest request;
    wire::Append(*request.mutable_batch(), key, rule, false, value);
    auto one = client_rpc->MakeClient(processes[server].rpc_address, "");
    bool done = false;
    one->Call(std::string("/") + kDataService + "/Mutate", request.SerializeAsString(),
              Duration::Seconds(1), scope.Bind([&](Result<std::string> reply) {
                EXPECT_TRUE(reply.ok());
                done = true;
              }));
    EXPECT_TRUE(time.RunUntil([&] { return done; }, Duration::Seconds(2)));
  }
  ChunkRead Chunk(uint64_t n, uint32_t want, uint32_t capacity = 4096) {
    buffers.push_back(std::make_unique<std::string>(capacity, '#'));
    return {KeyOf(n), 0, want, capacity, buffers.back()->data()};
  }
  ChunkRead Read(ChunkRead read, ReadMode mode = ReadMode::kRelaxed,
                 Duration timeout = Duration::Millis(500)) {
    bool done = false;
    client->ReadChunks(std::span(&read, 1), mode, timeout, scope.Bind([&] { done = true; }));
    EXPECT_FALSE(done) << "called back inside the call";
    EXPECT_TRUE(time.RunUntil([&] { return done; }, Duration::Seconds(10)));
    return read;
  }
  std::string ReadText(uint64_t n, uint32_t want, ReadMode mode = ReadMode::kRelaxed) {
    const ChunkRead read = Read(Chunk(n, want), mode);
    EXPECT_EQ(read.crc, Crc32cExtend(0, read.destination, read.length));
    return std::string(read.destination, read.length);
  }
  Result<std::optional<std::string>> ReadValue(const Key& key,
                                               MergeRule rule = MergeRule::kMaxLanes) {
    std::optional<Result<std::vector<std::optional<std::string>>>> result;
    client->ReadValues({{key, rule}}, Duration::Millis(500),
                       scope.Bind([&](auto values) { result = std::move(values); }));
    EXPECT_FALSE(result.has_value());
    EXPECT_TRUE(time.RunUntil([&] { return result.has_value(); }, Duration::Seconds(10)));
    if (!result->ok()) return result->status();
    return (**result)[0];
  }
  // Servers of a key in the client's order, found by reading which host is read first.
  std::vector<int> OwnersOf(const Key& key) {
    const HashRing ring(config);
    const Owners owners = ring.OwnersOf(key);
    std::vector<int> servers(owners.replica.begin(), owners.replica.begin() + owners.count);
    return servers;
  }
  int FirstChoice(uint64_t n) {
    std::map<std::string, uint64_t> before;
    for (auto& [name, host] : net.hosts) before[name] = host.reads;
    Read(Chunk(n, 1));
    for (int i = 0; i < static_cast<int>(processes.size()); ++i) {
      const std::string name = "cache-" + std::to_string(i);
      if (net.hosts[name].reads != before[name]) return i;
    }
    return -1;
  }

  const Scope scope;
  uint64_t memory_bytes = 16 << 20;
  uint64_t generations = 0;
  sim::VirtualTime time;
  sim::Network network;
  TestFabric net;
  ServerCoreOptions core;
  RingConfig config;
  std::vector<Process> processes;
  std::unique_ptr<sim::SimLoop> client_loop;
  std::unique_ptr<TestConnector> client_connector;
  std::unique_ptr<rpc::Connector> client_rpc;
  std::unique_ptr<QuorumClient> client;
  std::vector<std::unique_ptr<std::string>> buffers;
};

class QuorumClientTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Fabric, QuorumClientTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Immediate" : "Delayed"; });

TEST_P(QuorumClientTest, ReadsBackWhatWasWritten) {
  World world(GetParam(), 4);
  for (uint64_t n = 0; n < 50; ++n) ASSERT_TRUE(world.Write(n, 100 + n * 80).ok());
  for (uint64_t n = 0; n < 50; ++n) {
    const auto length = static_cast<uint32_t>(100 + n * 80);
    EXPECT_EQ(world.ReadText(n, length), Final(n).substr(0, length));
    EXPECT_EQ(world.ReadText(n, length, ReadMode::kConsistent), Final(n).substr(0, length));
    EXPECT_EQ(world.ReadText(n, 10), Final(n).substr(0, length)) << "gives what is there";
  }
  EXPECT_EQ(world.client->counters().hits, 150u);
  EXPECT_EQ(world.client->counters().torn_retries, 0u);
}

TEST_P(QuorumClientTest, GrowingChunkCostsOneShortReadOfItsSuffix) {
  World world(GetParam());
  ASSERT_TRUE(world.Write(1, 3000).ok());
  ChunkRead read = world.Read(world.Chunk(1, 3000));
  ASSERT_EQ(read.length, 3000u);
  ASSERT_TRUE(world.Write(1, 3100).ok());
  read.have = read.length;
  read.length = 0;
  read.want = 3100;
  const uint64_t before = world.client->counters().bytes_read;
  std::fill_n(read.destination, 3000, '!');
  read = world.Read(read);
  EXPECT_EQ(read.length, 3100u);
  EXPECT_EQ(std::string(read.destination + 3000, 100), Final(1).substr(3000, 100));
  EXPECT_EQ(std::string(read.destination, 3000), std::string(3000, '!')) << "not fetched again";
  EXPECT_EQ(read.crc, Crc32c(Final(1).substr(0, 3100)));
  EXPECT_LT(world.client->counters().bytes_read - before, 1400u);
}

TEST_P(QuorumClientTest, ValuesLongerThanTheRoomAreCutButValidated) {
  World world(GetParam());
  ASSERT_TRUE(world.Write(1, 4000).ok());
  ChunkRead read = world.Chunk(1, 100, 1000);
  read = world.Read(read);
  EXPECT_EQ(std::string(read.destination, read.length), Final(1).substr(0, 1000));
  EXPECT_EQ(read.crc, Crc32c(Final(1).substr(0, 1000)));
  read.have = read.length;
  read.want = 500;  // nothing to do
  EXPECT_EQ(world.Read(read).length, 1000u);
}

TEST(QuorumClientTryTest, FinishesInsideTheCallOrLeavesTheRestToReadChunks) {
  const Scope scope;
  World world(true);
  ASSERT_TRUE(world.Write(1, 4096).ok());
  ASSERT_TRUE(world.Write(2, 100).ok());
  ChunkRead reads[2] = {world.Chunk(1, 4096), world.Chunk(2, 200)};
  EXPECT_TRUE(world.client->TryReadChunks(std::span(reads, 1)));
  EXPECT_EQ(std::string(reads[0].destination, reads[0].length), Final(1));
  reads[0].length = 0;
  reads[0].crc = 0;
  EXPECT_FALSE(world.client->TryReadChunks(reads));
  EXPECT_EQ(reads[0].length, 4096u);
  bool done = false;
  world.client->ReadChunks(reads, ReadMode::kRelaxed, Duration::Millis(100),
                           scope.Bind([&] { done = true; }));
  ASSERT_TRUE(world.time.RunUntil([&] { return done; }, Duration::Seconds(1)));
  EXPECT_EQ(reads[1].length, 100u);
  EXPECT_EQ(std::string(reads[1].destination, 100), Final(2).substr(0, 100));
  EXPECT_EQ(world.client->counters().short_reads, 1u);
  World delayed(false);
  ASSERT_TRUE(delayed.Write(1, 4096).ok());
  ChunkRead read = delayed.Chunk(1, 4096);
  EXPECT_FALSE(delayed.client->TryReadChunks(std::span(&read, 1)));
}

// Fig 5: chunk 0 was extended on two replicas only; the reader begins with the third.
TEST_P(QuorumClientTest, Fig5LaggingReplicaCostsAConsistentReadNotAMiss) {
  for (uint64_t n = 0; n < 8; ++n) {
    World world(GetParam(), 3, n + 1);
    const Key key = KeyOf(n);
    for (const int server : {0, 1, 2}) {
      world.WriteAt(server, key, MergeRule::kLongerWins, Final(n).substr(0, 1000));
    }
    const int first = world.FirstChoice(n);
    for (const int server : {0, 1, 2}) {
      if (server != first) world.WriteAt(server, key, MergeRule::kLongerWins, Final(n));
    }
    EXPECT_EQ(world.ReadText(n, 4096), Final(n));
    EXPECT_EQ(world.client->counters().misses, 0u);
    EXPECT_EQ(world.client->counters().short_reads, 0u);
  }
}

TEST_P(QuorumClientTest, MissOnlyAfterAllReplicasAnswered) {
  World world(GetParam());
  std::map<std::string, uint64_t> before;
  for (auto& [name, host] : world.net.hosts) before[name] = host.reads;
  EXPECT_EQ(world.ReadText(7, 100), "");
  EXPECT_EQ(world.client->counters().misses, 1u);
  for (auto& [name, host] : world.net.hosts) EXPECT_GT(host.reads, before[name]) << name;
}

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

TEST(QuorumClientHedgeTest, SlowReplicaIsHedgedAfter30Milliseconds) {
  World world(false);
  ASSERT_TRUE(world.Write(1, 4096).ok());
  const int first = world.FirstChoice(1);
  world.net.hosts["cache-" + std::to_string(first)].delay = Duration::Millis(400);
  const MonotonicTime start = world.time.now();
  EXPECT_EQ(world.ReadText(1, 4096), Final(1));
  EXPECT_GE((world.time.now() - start).millis(), 30);
  EXPECT_LT((world.time.now() - start).millis(), 40);
  EXPECT_EQ(world.client->counters().hedges, 1u);
  // The late completion lands in the client's memory, not in a chunk that its reader has given up.
  world.buffers.clear();
  world.time.RunFor(Duration::Seconds(1));
}

TEST(QuorumClientHedgeTest, DeadlineEndsAReadWithWhatIsThere) {
  World world(false);
  ASSERT_TRUE(world.Write(1, 4096).ok());
  for (auto& [name, host] : world.net.hosts) host.delay = Duration::Millis(400);
  const MonotonicTime start = world.time.now();
  const ChunkRead read =
      world.Read(world.Chunk(1, 4096), ReadMode::kRelaxed, Duration::Millis(100));
  EXPECT_EQ(read.length, 0u);
  EXPECT_EQ((world.time.now() - start).millis(), 100);
  world.buffers.clear();
  world.time.RunFor(Duration::Seconds(2));
  for (auto& [name, host] : world.net.hosts) host.delay = Duration();
  EXPECT_EQ(world.ReadText(1, 4096), Final(1));
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
  EXPECT_FALSE(server.counters().repairing);
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

TEST_P(QuorumClientTest, ValuesAreJoinedOverReplicasAndNeverFall) {
  World world(GetParam());
  const Key key = KeyOf(1);
  world.WriteAt(0, key, MergeRule::kMaxLanes, Lanes({5, 1, 1}));
  world.WriteAt(1, key, MergeRule::kMaxLanes, Lanes({1, 6}));
  world.WriteAt(2, key, MergeRule::kMaxLanes, Lanes({5, 6}));
  // Any two replicas hold what two acknowledged.
  EXPECT_TRUE((**world.ReadValue(key)).starts_with(Lanes({5, 6})));
  for (uint64_t step = 10; step < 60; step += 10) {
    ASSERT_TRUE(world.Mutate({{key, MergeRule::kMaxLanes, false, Lanes({step, step})}}).ok());
    const int victim = static_cast<int>(step / 10 % 3);
    world.Kill(victim);
    EXPECT_TRUE((**world.ReadValue(key)).starts_with(Lanes({step, step}))) << step;
    world.StartServer(victim);
    world.Publish();
    EXPECT_TRUE((**world.ReadValue(key)).starts_with(Lanes({step, step}))) << step;
    world.time.RunFor(Duration::Seconds(2));
  }
  // Everything lost and an old value written again: this client does not go back.
  for (int i = 0; i < 3; ++i) {
    world.Kill(i);
    world.StartServer(i);
  }
  world.Publish();
  world.time.RunFor(Duration::Seconds(2));
  EXPECT_EQ(*world.ReadValue(key), std::nullopt);
  ASSERT_TRUE(world.Mutate({{key, MergeRule::kMaxLanes, false, Lanes({3, 3})}}).ok());
  EXPECT_TRUE((**world.ReadValue(key)).starts_with(Lanes({50, 50})));
}

TEST_P(QuorumClientTest, ContradictionsAndRefusalsHaveTheirCodes) {
  World world(GetParam());
  ASSERT_TRUE(world.Write(1, 100).ok());
  EXPECT_TRUE(
      IsDataLoss(world.Mutate({{KeyOf(1), MergeRule::kLongerWins, false, std::string(200, 'x')}})));
  EXPECT_EQ(world.ReadText(1, 1), "");
  EXPECT_TRUE(IsResourceExhausted(
      world.Mutate({{KeyOf(2), MergeRule::kLongerWins, false, std::string(70000, 'x')}})));
  EXPECT_GE(world.client->counters().mismatches, 2u);
  EXPECT_TRUE(world.Mutate({}).ok());
}

TEST(QuorumClientBulkTest, LargeBulksBecomeSeveralCallsAndWhatIsUnderWayIsBounded) {
  QuorumClientOptions options;
  options.request_bytes_max = 16 << 10;
  World world(true, 3, 1, options);
  std::vector<Mutation> mutations;
  for (uint64_t n = 0; n < 64; ++n) {
    mutations.push_back({KeyOf(n), MergeRule::kLongerWins, false, Final(n)});
  }
  ASSERT_TRUE(world.Mutate(mutations).ok());
  EXPECT_GE(world.processes[0].server->counters().mutate_calls, 13u);
  for (uint64_t n = 0; n < 64; ++n) EXPECT_EQ(world.ReadText(n, 4096), Final(n));

  options.inflight_bytes_max = 40 << 10;
  World narrow(true, 3, 1, options);
  EXPECT_TRUE(IsUnavailable(narrow.Mutate(mutations))) << "more than may be under way at once";
  narrow.time.RunFor(Duration::Seconds(1));
  mutations.resize(8);
  EXPECT_TRUE(narrow.Mutate(mutations).ok()) << "what was answered is under way no more";
}

TEST_P(QuorumClientTest, OlderConfigurationsAreIgnored) {
  World world(GetParam(), 4);
  RingConfig old = world.config;
  old.configuration_id = 0;
  old.replicas.clear();
  world.client->UpdateRing(old);
  EXPECT_EQ(world.client->ready_replicas(), 4u);
}

TEST_P(QuorumClientTest, EraseReachesTheReplicas) {
  World world(GetParam());
  ASSERT_TRUE(world.Write(1, 100).ok());
  ASSERT_TRUE(world.Mutate({{KeyOf(1), MergeRule::kLongerWins, true, ""}}).ok());
  world.time.RunFor(Duration::Millis(10));
  EXPECT_EQ(world.ReadText(1, 1), "");
}

TEST_P(QuorumClientTest, OverflowedKeysAreServedByRpc) {
  ServerCoreOptions core;
  World world(GetParam(), 3, 1, {}, core);
  // All in one bucket: same lo, other hi.
  std::vector<Mutation> mutations;
  std::vector<Key> keys;
  for (uint64_t n = 0; n < 12; ++n) {
    keys.push_back({KeyOf(n).hi, 12345});
    mutations.push_back({keys.back(), MergeRule::kLongerWins, false, Final(n).substr(0, 500)});
  }
  ASSERT_TRUE(world.Mutate(mutations).ok());
  for (uint64_t n = 0; n < 12; ++n) {
    ChunkRead read = world.Chunk(n, 500);
    read.key = keys[n];
    read = world.Read(read);
    EXPECT_EQ(std::string(read.destination, read.length), Final(n).substr(0, 500));
    read = world.Chunk(n, 500);
    read.key = keys[n];
    std::memcpy(read.destination, Final(n).data(), 200);
    read.have = 200;
    read.crc = Crc32c(Final(n).substr(0, 200));
    read = world.Read(read);
    EXPECT_EQ(std::string(read.destination, read.length), Final(n).substr(0, 500));
    EXPECT_EQ(**world.ReadValue(keys[n], MergeRule::kLongerWins), Final(n).substr(0, 500));
  }
  EXPECT_GT(world.client->counters().overflow_reads, 0u);
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
  const Scope scope;
  World world(GetParam());
  ASSERT_TRUE(world.Write(1, 100).ok());
  std::vector<uint64_t> stale;
  world.client->SetStaleCallback(scope.Bind([&](uint64_t id) { stale.push_back(id); }));
  RingConfig newer = world.config;
  newer.configuration_id = 9;
  for (auto& process : world.processes) process.server->UpdateRing(newer);
  EXPECT_EQ(world.ReadText(1, 100), Final(1).substr(0, 100));
  world.time.RunFor(Duration::Millis(1));
  EXPECT_EQ(stale, std::vector<uint64_t>{9}) << "once";
  EXPECT_EQ(world.ReadText(1, 100), Final(1).substr(0, 100));
  EXPECT_EQ(stale.size(), 1u);
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
  world.processes[1].incarnation = 0;
  ++world.config.configuration_id;
  world.client->UpdateRing(world.config);
  ASSERT_TRUE(world.time.RunUntil([&] { return done; }, Duration::Seconds(1)));
  EXPECT_EQ(world.client->counters().misses, 0u);
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

// ---- Replicas that contradict each other ----

// Two replicas are asked at once. The one that answers first has other bytes, fewer than wanted;
// the other one's suffix must not be put behind them.
TEST(QuorumClientContradictionTest, AChunkNeverHoldsBytesOfTwoReplicasThatContradictEachOther) {
  uint64_t mismatches = 0;
  for (int slow = 0; slow < 3; ++slow) {
    World world(false);
    const Key key = KeyOf(1);
    const std::string other(1000, 'x');
    for (const int server : {0, 1, 2}) {
      world.WriteAt(server, key, MergeRule::kLongerWins, server == slow ? Final(1) : other);
      world.net.hosts["cache-" + std::to_string(server)].delay =
          Duration::Millis(server == slow ? 10 : 1);
    }
    const std::string read = world.ReadText(1, 4096, ReadMode::kConsistent);
    EXPECT_TRUE(read == Final(1).substr(0, read.size()) || read == other.substr(0, read.size()))
        << "slow " << slow << ": " << read.size() << " bytes, of both replicas";
    mismatches += world.client->counters().mismatches;
  }
  EXPECT_GT(mismatches, 0u);
}

TEST(QuorumClientContradictionTest, PlantedMixedChunksAreCaught) {
  const PlantedFault fault("cache.skip_prefix_check");
  int mixed = 0;
  for (int slow = 0; slow < 3; ++slow) {
    World world(false);
    for (const int server : {0, 1, 2}) {
      world.WriteAt(server, KeyOf(1), MergeRule::kLongerWins,
                    server == slow ? Final(1) : std::string(1000, 'x'));
      world.net.hosts["cache-" + std::to_string(server)].delay =
          Duration::Millis(server == slow ? 10 : 1);
    }
    ChunkRead read = world.Read(world.Chunk(1, 4096), ReadMode::kConsistent);
    mixed += read.length == 4096 && read.destination[0] == 'x' ? 1 : 0;
  }
  EXPECT_GT(mixed, 0);
}

// ---- The bound on reads under way ----

// A read whose batch has ended still holds the only slot. Its replica leaves the configuration: the
// slot goes to whoever waits.
TEST(QuorumClientSlotsTest, ALostConnectionGivesItsSlotsToThoseThatWait) {
  const Scope scope;
  QuorumClientOptions options;
  options.key_reads_max = 1;
  options.hedge_delay = Duration::Seconds(1);
  World world(false, 4, 1, options);
  for (uint64_t n = 0; n < 20; ++n) ASSERT_TRUE(world.Write(n, 100).ok());
  const int leaver = world.FirstChoice(0);
  uint64_t next = 1;
  while (world.FirstChoice(next) == leaver) ++next;
  world.net.hosts["cache-" + std::to_string(leaver)].delay = Duration::Millis(300);
  EXPECT_EQ(world.Read(world.Chunk(0, 100), ReadMode::kRelaxed, Duration::Millis(10)).length, 0u);

  ChunkRead waiting = world.Chunk(next, 100);
  bool done = false;
  world.client->ReadChunks(std::span(&waiting, 1), ReadMode::kRelaxed, Duration::Millis(400),
                           scope.Bind([&] { done = true; }));
  world.time.RunFor(Duration::Millis(20));
  EXPECT_FALSE(done) << "the slot is not taken";
  world.config.replicas.erase(world.config.replicas.begin() + leaver);
  ++world.config.configuration_id;
  world.client->UpdateRing(world.config);
  world.time.RunFor(Duration::Millis(20));
  EXPECT_TRUE(done);
  EXPECT_EQ(waiting.length, 100u);
}

// ---- A sweep: everything grows, moves and is torn at once ----

struct SweepResult {
  uint64_t wrong = 0, fell = 0, hits = 0, torn = 0, misses = 0;
};

struct SweepOptions {
  bool immediate = true;
  std::vector<const char*> faults;
  bool scribble = false;  // flip bytes of the servers' memory at random
};

SweepResult Sweep(uint64_t seed, SweepOptions sweep) {
  const Scope scope;
  std::deque<PlantedFault> faults;
  for (const char* name : sweep.faults) faults.emplace_back(name);
  ServerCoreOptions core;
  core.growth_floor_bytes = 512;
  World world(sweep.immediate, 3, seed, {}, core);
  Rng rng(seed);
  SweepResult result;
  constexpr uint64_t kKeys = 24;
  std::map<uint64_t, size_t> written;
  std::map<uint64_t, uint64_t> epoch_of_erase;
  std::vector<uint64_t> lanes_seen(4), lanes_written(4);
  const Key lanes_key = KeyOf(1000);
  std::vector<std::unique_ptr<std::string>> keep;
  uint64_t outstanding = 0;
  const auto write = [&] {
    if (rng.Chance(0.3)) {
      for (uint64_t& lane : lanes_written) lane += rng.Below(3);
      world.client->Mutate({{lanes_key, MergeRule::kMaxLanes, false, Lanes(lanes_written)}},
                           Duration::Millis(300), scope.Bind([](Status) {}));
      return;
    }
    const uint64_t n = rng.Below(kKeys);
    if (rng.Chance(0.15)) {
      // Forgotten and written anew: the slots change hands.
      written[n] = 0;
      world.client->Mutate({{KeyOf(n), MergeRule::kLongerWins, true, ""}}, Duration::Millis(300),
                           scope.Bind([](Status) {}));
      return;
    }
    written[n] = std::min<size_t>(4096, written[n] + 1 + rng.Below(700));
    world.client->Mutate(
        {{KeyOf(n), MergeRule::kLongerWins, false, Final(n).substr(0, written[n])}},
        Duration::Millis(300), scope.Bind([](Status) {}));
  };
  // What happens in the middle of an immediate read: a server changes.
  world.net.torn = 0.3;
  std::vector<uint64_t> doorbells;
  uint64_t reading = 0;
  const auto touch_server = [&](const std::string& host) {
    const int server = host.back() - '0';
    auto* core_there = const_cast<ServerCore*>(world.processes[server].server->core());
    const Instant now{world.time.now(), WallTime()};
    const uint64_t n = rng.Chance(0.8) ? reading : rng.Below(kKeys);
    if (rng.Chance(0.2)) {
      core_there->Erase(now, KeyOf(n), doorbells);
    } else {
      core_there->Apply(now, KeyOf(n), MergeRule::kLongerWins,
                        Final(n).substr(0, 1 + rng.Below(4096)), doorbells);
    }
    if (rng.Chance(0.3)) {
      for (uint64_t& lane : lanes_written) lane += rng.Below(2);
      core_there->Apply(now, lanes_key, MergeRule::kMaxLanes, Lanes(lanes_written), doorbells);
    }
  };
  world.net.between = [&](const std::string& host) {
    for (uint64_t i = 1 + rng.Below(3); i > 0; --i) touch_server(host);
  };
  for (int step = 0; step < 1500; ++step) {
    if (rng.Chance(0.4)) write();
    if (sweep.scribble && rng.Chance(0.2)) {
      auto& host = world.net.hosts["cache-" + std::to_string(rng.Below(3))];
      auto& region = host.regions[rng.Below(2)];
      const uint64_t area = std::min<uint64_t>(region.size(), 40000);
      region[rng.Below(area)] ^= rng.Next();
    }
    for (auto& [name, host] : world.net.hosts) host.delay = Duration::Micros(rng.Below(300));
    const uint64_t n = rng.Below(kKeys);
    reading = n;
    keep.push_back(std::make_unique<std::string>(4096, '#'));
    std::string* buffer = keep.back().get();
    auto read = std::make_shared<ChunkRead>();
    *read = {KeyOf(n), 0, static_cast<uint32_t>(1 + rng.Below(std::max<size_t>(written[n], 1))),
             4096, buffer->data()};
    // Some go on from a prefix that they have.
    if (rng.Chance(0.4) && read->want > 10) {
      read->have = read->want / 2;
      std::memcpy(buffer->data(), Final(n).data(), read->have);
      read->crc = Crc32cExtend(0, buffer->data(), read->have);
    }
    ++outstanding;
    const auto check = [&result, &outstanding, read, buffer, n] {
      --outstanding;
      const std::string truth = Final(n);
      if (read->length > 4096 || buffer->compare(0, read->length, truth, 0, read->length) != 0 ||
          read->crc != Crc32cExtend(0, truth.data(), read->length)) {
        ++result.wrong;
      }
    };
    if (world.client->TryReadChunks(std::span(read.get(), 1))) {
      check();
    } else {
      world.client->ReadChunks(std::span(read.get(), 1),
                               rng.Chance(0.2) ? ReadMode::kConsistent : ReadMode::kRelaxed,
                               Duration::Millis(200), scope.Bind(check));
    }
    if (rng.Chance(0.3)) {
      ++outstanding;
      world.client->ReadValues({{lanes_key, MergeRule::kMaxLanes}}, Duration::Millis(200),
                               scope.Bind([&](auto values) {
                                 --outstanding;
                                 if (!values.ok() || !(*values)[0].has_value()) return;
                                 const std::string& value = *(*values)[0];
                                 for (size_t lane = 0; lane < 4; ++lane) {
                                   uint64_t now = 0;
                                   if (value.size() >= 8 * lane + 8)
                                     std::memcpy(&now, value.data() + 8 * lane, 8);
                                   if (now > lanes_written[lane]) ++result.wrong;
                                   if (now < lanes_seen[lane]) ++result.fell;
                                   lanes_seen[lane] = std::max(lanes_seen[lane], now);
                                 }
                               }));
    }
    for (int turn = 0; turn < 4; ++turn) {
      world.time.RunFor(Duration::Micros(rng.Below(100)));
      if (!sweep.immediate) touch_server("cache-" + std::to_string(rng.Below(3)));
    }
  }
  world.net.between = nullptr;
  EXPECT_TRUE(world.time.RunUntil([&] { return outstanding == 0; }, Duration::Seconds(5)));
  result.hits = world.client->counters().hits;
  result.torn = world.client->counters().torn_retries;
  result.misses = world.client->counters().misses;
  return result;
}

TEST_P(QuorumClientTest, TornReadsNeverYieldAWrongByteOrAFallingValue) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const SweepResult result = Sweep(seed, {.immediate = GetParam()});
    EXPECT_EQ(result.wrong, 0u) << "seed " << seed;
    EXPECT_EQ(result.fell, 0u) << "seed " << seed;
    EXPECT_GT(result.hits, 500u) << "seed " << seed;
    EXPECT_GT(result.torn, 20u) << "the sweep tears nothing; seed " << seed;
  }
}

TEST_P(QuorumClientTest, GarbageInServerMemoryNeverYieldsAWrongByte) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const SweepResult result = Sweep(seed, {.immediate = GetParam(), .scribble = true});
    EXPECT_EQ(result.wrong, 0u) << "seed " << seed;
  }
}

TEST_P(QuorumClientTest, SweepCatchesPlantedSkippedChecksums) {
  uint64_t wrong = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    // Inside a call no slot changes hands, so it takes a second bug to see the first.
    SweepOptions sweep{.immediate = GetParam(), .faults = {"cache.skip_payload_check"}};
    if (GetParam()) sweep.faults.push_back("cache.reuse_at_once");
    wrong += Sweep(seed, sweep).wrong;
  }
  EXPECT_GT(wrong, 0u);
}

TEST_P(QuorumClientTest, SweepCatchesPlantedTrustInOldLocations) {
  uint64_t wrong = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    wrong += Sweep(seed, {.immediate = GetParam(),
                          .faults = {"cache.trust_location", "cache.reuse_at_once"}})
                 .wrong;
  }
  EXPECT_GT(wrong, 0u);
}

// A reader that got the address of a value, and then is slow: within the rest the old value is
// whole; reused at once, it is torn.
TEST(QuorumClientRestTest, SlowReaderOfASupersededValueIsNotTornBecauseSlotsRest) {
  const auto torn_with = [](bool reuse_at_once) {
    const Scope scope;
    std::optional<PlantedFault> fault;
    if (reuse_at_once) fault.emplace("cache.reuse_at_once");
    World world(false);
    const Key key = KeyOf(1);
    for (auto& [name, host] : world.net.hosts) host.delay = Duration::Millis(20);
    world.net.torn = 1;  // half of the words at the beginning, half at the end of the 20 ms
    world.net.torn_from_region = layout::kDataRegion;
    uint64_t step = 0;
    for (int round = 0; round < 20; ++round) {
      EXPECT_TRUE(world
                      .Mutate({{key, MergeRule::kMaxLanes, false,
                                Lanes(std::vector<uint64_t>(60, ++step))}})
                      .ok());
      bool done = false;
      world.client->ReadValues(
          {{key, MergeRule::kMaxLanes}}, Duration::Millis(500),
          scope.Bind([&](auto values) { done = values.ok() && (*values)[0].has_value(); }));
      // Seven changes while the reader is between bucket and entry.
      for (int i = 0; i < 7; ++i) {
        world.time.RunFor(Duration::Millis(5));
        world.client->Mutate(
            {{key, MergeRule::kMaxLanes, false, Lanes(std::vector<uint64_t>(60, ++step))}},
            Duration::Millis(500), scope.Bind([](Status) {}));
      }
      EXPECT_TRUE(world.time.RunUntil([&] { return done; }, Duration::Seconds(2)));
    }
    return world.client->counters().torn_retries;
  };
  EXPECT_EQ(torn_with(false), 0u);
  EXPECT_GT(torn_with(true), 0u);
}

// ---- The server's calls ----

TEST(CacheServerTest, RefusesMalformedRequestsAndGoesOn) {
  const Scope scope;
  World world(true);
  auto client = world.client_rpc->MakeClient(world.processes[0].rpc_address, "");
  const auto call = [&](const char* method, const std::string& request) {
    std::optional<Result<std::string>> result;
    client->Call(std::string("/") + kDataService + "/" + method, request, Duration::Seconds(1),
                 scope.Bind([&](Result<std::string> reply) { result = std::move(reply); }));
    EXPECT_TRUE(world.time.RunUntil([&] { return result.has_value(); }, Duration::Seconds(2)));
    return *result;
  };
  v1::CacheMutateRequest bad;
  wire::Append(*bad.mutable_batch(), KeyOf(1), MergeRule::kLongerWins, false, "abc");
  bad.mutable_batch()->set_payload("ab");
  EXPECT_TRUE(IsInvalidArgument(call("Mutate", bad.SerializeAsString()).status()));
  bad.mutable_batch()->set_payload("abc");
  bad.mutable_batch()->set_rules("\x07");
  EXPECT_TRUE(IsInvalidArgument(call("Mutate", bad.SerializeAsString()).status()));
  bad.mutable_batch()->set_rules(std::string(2, '\0'));
  EXPECT_TRUE(IsInvalidArgument(call("Mutate", bad.SerializeAsString()).status()));
  EXPECT_TRUE(IsInvalidArgument(call("Mutate", "\xff\xff garbage").status()));
  v1::CacheGetRequest get;
  get.set_keys("short");
  EXPECT_TRUE(IsInvalidArgument(call("Get", get.SerializeAsString()).status()));
  Rng rng(5);
  for (int i = 0; i < 2000; ++i) {
    std::string noise(rng.Below(60), '\0');
    for (char& c : noise) c = static_cast<char>(rng.Next());
    for (const char* method : {"Mutate", "Get", "Scan", "Stat"}) call(method, noise).ok();
  }
  v1::CacheScanRequest scan;
  scan.set_cursor(UINT64_MAX);
  EXPECT_TRUE(call("Scan", scan.SerializeAsString()).ok());
  EXPECT_TRUE(world.Write(1, 100).ok());
  EXPECT_EQ(world.ReadText(1, 100), Final(1).substr(0, 100));
  const auto stat = call("Stat", "");
  ASSERT_TRUE(stat.ok());
  v1::CacheStatReply reply;
  ASSERT_TRUE(reply.ParseFromString(*stat));
  EXPECT_EQ(reply.name(), "cache-0");
  EXPECT_EQ(reply.values().at("live"), 1u);
  EXPECT_GT(reply.values().at("bad_requests"), 4u);
}

TEST(CacheServerTest, RepairKeepsToItsRate) {
  World world(true, 4);
  std::vector<Mutation> mutations;
  for (uint64_t n = 0; n < 1000; ++n) {
    mutations.push_back({KeyOf(n), MergeRule::kLongerWins, false, Final(n)});
  }
  ASSERT_TRUE(world.Mutate(mutations, Duration::Seconds(5)).ok());
  world.Kill(2);
  world.StartServer(2);
  const MonotonicTime start = world.time.now();
  world.Publish();
  ASSERT_TRUE(world.time.RunUntil(
      [&] {
        const ServerCounters& counters = world.processes[2].server->counters();
        return counters.repaired_values > 0 && !counters.repairing;
      },
      Duration::Seconds(10)));
  // Each value comes from up to two peers, 200 MB/s by default.
  const double bytes = static_cast<double>(world.processes[2].server->counters().repaired_bytes);
  EXPECT_GT((world.time.now() - start).seconds(), bytes / 200e6 * 0.8);
}

}  // namespace
}  // namespace tailcast::cache
