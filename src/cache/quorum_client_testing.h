// Several cache servers and one QuorumClient in virtual time, for the tests of the client.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/log.h"
#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/quorum_client.h"
#include "tailcast/cache/ring.h"
#include "tailcast/cache/server.h"
#include "tailcast/cache/test_fabric.h"
#include "tailcast/cache/wire.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/sim/sim_rpc.h"

namespace tailcast::cache {

inline std::string Lanes(std::vector<uint64_t> lanes) {
  return std::string(reinterpret_cast<const char*>(lanes.data()), lanes.size() * 8);
}
inline Key KeyOf(uint64_t n) {
  Rng rng(n + 99);
  return {rng.Next(), rng.Next()};
}
// The final bytes of the chunk of a key.
inline std::string Final(uint64_t n, size_t length = 4096) {
  std::string bytes(length, '\0');
  Rng rng(n * 3 + 1);
  for (size_t i = 0; i < length; i += 8) {
    const uint64_t word = rng.Next();
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, length - i));
  }
  return bytes;
}

inline const bool kQuiet = SetLogLevels("off").ok();

// How a client reads.
enum class FabricKind : uint8_t {
  kImmediate,  // inside the call
  kDelayed,    // one-sided, each step a round trip
  kScanning,   // the server's driver finds the key
  kTrying,     // inside the call, values also inside the client's call
};

// Several servers and one client in virtual time.
struct World {
  explicit World(FabricKind kind, int servers = 3, uint64_t seed = 1,
                 QuorumClientOptions client_options = {}, ServerCoreOptions core_options = {})
      : time(seed), network(time, Rng(seed)), net(seed), core(std::move(core_options)) {
    EXPECT_TRUE(kQuiet);
    net.immediate = kind == FabricKind::kImmediate || kind == FabricKind::kTrying;
    tries = kind == FabricKind::kTrying;
    net.scans = kind == FabricKind::kScanning;
    config.configuration_id = ConfigurationId{1};
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
    ProcessIncarnation incarnation = ProcessIncarnation::kNone;
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
    process.incarnation = ProcessIncarnation{++generations * 1000 + static_cast<uint64_t>(i)};
    options.incarnation = process.incarnation;
    options.core = core;
    options.stall_max = stall_max;
    process.server = std::make_unique<Server>(process.loop.get(), process.exporter.get(),
                                              process.rpc.get(), process.connector.get(), options);
    process.fabric_addresses = *process.server->Start();
    if (process.rpc_address.empty()) process.rpc_address = "host:" + std::to_string(100 + i);
    process.rpc_address = *process.rpc->Start(process.rpc_address);
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
    config.configuration_id = Successor(config.configuration_id);
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
                EXPECT_TRUE(reply.ok()) << reply.status();
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
  Result<ValueAnswer> ReadAnswer(const Key& key, MergeRule rule = MergeRule::kMaxLanes,
                                 ReadMode mode = ReadMode::kConsistent) {
    const Client::ValueRead read{key, rule, mode};
    if (Values inside; tries && client->TryReadValues(std::span(&read, 1), inside)) {
      return inside[0];
    }
    std::optional<Result<Values>> result;
    client->ReadValues({read}, Duration::Millis(500),
                       scope.Bind([&](auto values) { result = std::move(values); }));
    EXPECT_FALSE(result.has_value());
    EXPECT_TRUE(time.RunUntil([&] { return result.has_value(); }, Duration::Seconds(10)));
    if (!result->ok()) return result->status();
    return (**result)[0];
  }
  Result<std::optional<std::string>> ReadValue(const Key& key,
                                               MergeRule rule = MergeRule::kMaxLanes) {
    const auto answer = ReadAnswer(key, rule);
    if (!answer.ok()) return answer.status();
    return answer->bytes;
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

  bool tries = false;  // to read values inside the call
  const Scope scope;
  uint64_t memory_bytes = 16 << 20;
  uint64_t generations = 0;
  sim::VirtualTime time;
  sim::Network network;
  TestFabric net;
  ServerCoreOptions core;
  Duration stall_max = Duration::Infinite();
  RingConfig config;
  std::vector<Process> processes;
  std::unique_ptr<sim::SimLoop> client_loop;
  std::unique_ptr<TestConnector> client_connector;
  std::unique_ptr<rpc::Connector> client_rpc;
  std::unique_ptr<QuorumClient> client;
  std::vector<std::unique_ptr<std::string>> buffers;
};

// Chunks of 500 bytes in one bucket of each replica, more than it has places for. Returns the keys.
inline std::vector<Key> OverflowBucket(World& world) {
  const layout::Geometry geometry = world.processes[0].server->core()->geometry();
  std::vector<Key> keys;
  std::vector<Mutation> mutations;
  for (uint64_t n = 0; keys.size() < 12; ++n) {
    keys.push_back({KeyOf(n).hi, n});  // bucket 0
    EXPECT_EQ(layout::BucketOf(keys.back(), geometry.bucket_count), 0u);
    mutations.push_back({keys.back(), MergeRule::kLongerWins, false, Final(n).substr(0, 500)});
  }
  EXPECT_TRUE(world.Mutate(mutations).ok());
  return keys;
}

class QuorumClientTest : public testing::TestWithParam<FabricKind> {};
inline auto AllFabrics() {
  return testing::Values(FabricKind::kImmediate, FabricKind::kDelayed, FabricKind::kScanning,
                         FabricKind::kTrying);
}
inline std::string FabricName(const testing::TestParamInfo<FabricKind>& info) {
  switch (info.param) {
    case FabricKind::kImmediate:
      return "Immediate";
    case FabricKind::kDelayed:
      return "Delayed";
    case FabricKind::kScanning:
      return "Scanning";
    case FabricKind::kTrying:
      return "Trying";
  }
  return "";
}

}  // namespace tailcast::cache
