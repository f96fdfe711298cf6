// Replicas that stall, are slow, and come back: who is asked meanwhile.
#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/quorum_client_testing.h"

namespace tailcast::cache {
namespace {

// Reads go out one after the other; their server stalls and each times out on its own.
TEST(QuorumClientBackoffTest, AStallIsOneStepAndThenOneReadFindsOutWhetherItIsOver) {
  const Scope scope;
  QuorumClientOptions options;
  options.hedge_delay = Duration::Seconds(1);  // so that a read that is asked there is a miss
  World world(FabricKind::kDelayed, 3, 1, options);
  for (uint64_t n = 0; n < 60; ++n) ASSERT_TRUE(world.Write(n, 100).ok());
  const int server = world.FirstChoice(0);
  TestFabric::Host& host = world.net.hosts["cache-" + std::to_string(server)];
  std::vector<uint64_t> keys;
  for (uint64_t n = 0; n < 60 && keys.size() < 12; ++n) {
    if (world.FirstChoice(n) == server) keys.push_back(n);
  }
  ASSERT_EQ(keys.size(), 12u);
  std::vector<ChunkRead> reads;
  for (const uint64_t n : keys) reads.push_back(world.Chunk(n, 100));
  const auto read_all = [&] {
    const uint64_t before = world.client->counters().misses;
    for (ChunkRead& read : reads) read.length = read.crc = 0;
    bool done = false;
    world.client->ReadChunks(reads, ReadMode::kRelaxed, Duration::Millis(300),
                             scope.Bind([&] { done = true; }));
    EXPECT_TRUE(world.time.RunUntil([&] { return done; }, Duration::Seconds(1)));
    return world.client->counters().misses - before;
  };
  host.delay = Duration::Seconds(10);
  for (ChunkRead& read : reads) {
    world.client->ReadChunks(std::span(&read, 1), ReadMode::kRelaxed, Duration::Millis(100),
                             scope.Bind([] {}));
    world.time.RunFor(Duration::Millis(5));
  }
  world.time.RunFor(Duration::Millis(420));  // all have timed out, and it has rested
  EXPECT_EQ(read_all(), 1u) << "one read finds out";
  EXPECT_EQ(read_all(), 0u) << "it is not known yet how that one ends";
  // It times out 400 ms after it began: the second step, 40 ms.
  world.time.RunFor(Duration::Millis(90));
  host.delay = Duration();
  world.time.RunFor(Duration::Millis(55));
  uint64_t before = host.reads;
  EXPECT_EQ(read_all(), 0u);
  EXPECT_GT(host.reads, before) << "one read finds out";
  EXPECT_LT(host.reads - before, keys.size());
  before = host.reads;
  EXPECT_EQ(read_all(), 0u);
  EXPECT_GE(host.reads - before, keys.size()) << "and now all go there again";
}

// The reader is stopped; a second later the server is, for good, whose memory reads on. The reader
// finds a heartbeat that it has not seen, and moves its watch all the same.
TEST(QuorumClientHeartbeatTest, AReaderThatSleptMovesItsWatchesFromAServerThatDiedMeanwhile) {
  for (const FabricKind kind :
       {FabricKind::kDelayed, FabricKind::kImmediate, FabricKind::kScanning}) {
    ServerCoreOptions core;
    core.ttl = Duration::Seconds(3600);
    World world(kind, 3, 1, {}, core);
    ASSERT_TRUE(world.Mutate({{KeyOf(1), MergeRule::kMaxLanes, false, Lanes({7})}}).ok());
    ASSERT_TRUE(world.ReadAnswer(KeyOf(1)).ok());
    bool notified = false;
    world.client->WatchValue(KeyOf(1), Duration::Seconds(600),
                             world.scope.Bind([&](bool) { notified = true; }));
    world.time.RunFor(Duration::Seconds(2));
    const auto watched = [&](int server) {
      return !world.net.hosts["cache-" + std::to_string(server)].watches.empty();
    };
    int server = 0;
    while (server < 3 && !watched(server)) ++server;
    ASSERT_LT(server, 3);
    world.client_loop->Pause();
    world.time.RunFor(Duration::Seconds(1));
    world.processes[server].loop->Pause();
    world.time.RunFor(Duration::Seconds(60));
    world.client_loop->Resume();
    world.time.RunFor(Duration::Millis(740));
    EXPECT_TRUE(watched((server + 1) % 3) || watched((server + 2) % 3)) << static_cast<int>(kind);
    EXPECT_FALSE(notified);
    // The other one's doorbell works.
    world.WriteAt((server + 1) % 3, KeyOf(1), MergeRule::kMaxLanes, Lanes({8}));
    world.WriteAt((server + 2) % 3, KeyOf(1), MergeRule::kMaxLanes, Lanes({8}));
    world.time.RunFor(Duration::Millis(50));
    EXPECT_TRUE(notified);
  }
}

// A load of reads, one each millisecond, of keys that are all there.
class Load {
 public:
  static constexpr uint64_t kKeys = 60;
  explicit Load(World& world) : world_(world) {
    for (uint64_t n = 0; n < kKeys; ++n) EXPECT_TRUE(world.Write(n, 1000).ok());
  }
  // How long the 99th of a hundred reads took that begin in `span`.
  Duration P99For(Duration span) {
    latencies_.clear();
    for (int64_t ms = 0; ms < span.millis(); ++ms) {
      Begin();
      world_.time.RunFor(Duration::Millis(1));
    }
    EXPECT_TRUE(world_.time.RunUntil([&] { return running_ == 0; }, Duration::Seconds(1)));
    std::sort(latencies_.begin(), latencies_.end());
    EXPECT_EQ(latencies_.size(), static_cast<size_t>(span.millis()));
    return latencies_[latencies_.size() * 99 / 100];
  }

 private:
  struct OneRead {
    std::string buffer = std::string(1000, '#');
    ChunkRead read;
  };
  void Begin() {
    auto one = std::make_shared<OneRead>();
    one->read = {KeyOf(next_++ % kKeys), 0, 1000, 1000, one->buffer.data()};
    ++running_;
    world_.client->ReadChunks(std::span(&one->read, 1), ReadMode::kRelaxed, Duration::Millis(300),
                              scope_.Bind([this, one, begin = world_.time.now()] {
                                --running_;
                                EXPECT_EQ(one->read.length, 1000u);
                                latencies_.push_back(world_.time.now() - begin);
                              }));
  }

  World& world_;
  uint64_t next_ = 0, running_ = 0;
  std::vector<Duration> latencies_;
  const Scope scope_;
};

class QuorumClientSlowTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Millis, QuorumClientSlowTest, testing::Values(10, 100),
                         testing::PrintToStringParamName());

TEST_P(QuorumClientSlowTest, ASlowReplicaIsAskedLastUntilItIsWell) {
  World world(FabricKind::kDelayed);
  for (auto& [name, host] : world.net.hosts) host.delay = Duration::Millis(1);
  Load load(world);
  const Duration usual = load.P99For(Duration::Seconds(1));
  EXPECT_EQ(world.client->counters().slow_replicas, 0u);
  // The one that this client likes best.
  const std::string favourite = "cache-" + std::to_string(world.FirstChoice(0));
  TestFabric::Host& slow = world.net.hosts[favourite];
  const auto share = [&](Duration span, Duration* p99) {
    std::map<std::string, uint64_t> before;
    for (auto& [name, host] : world.net.hosts) before[name] = host.reads;
    *p99 = load.P99For(span);
    double all = 0;
    for (auto& [name, host] : world.net.hosts)
      all += static_cast<double>(host.reads - before[name]);
    return static_cast<double>(slow.reads - before[favourite]) / all;
  };
  Duration p99;
  EXPECT_GT(share(Duration::Seconds(1), &p99), 0.9);

  slow.delay = Duration::Millis(GetParam());
  load.P99For(Duration::Seconds(1));
  EXPECT_EQ(world.client->counters().slow_replicas, 1u);
  EXPECT_LT(share(Duration::Seconds(2), &p99), 0.05) << "it is probed";
  EXPECT_LE(p99, usual + Duration::Millis(1));
  EXPECT_GT(world.client->counters().probe_reads, 20u);
  EXPECT_GT(world.client->counters().avoiding_reads, 500u);

  slow.delay = Duration::Millis(1);
  load.P99For(Duration::Seconds(4));
  EXPECT_GT(share(Duration::Seconds(1), &p99), 0.9) << "it has its share back";
  EXPECT_LE(p99, usual + Duration::Millis(1));
}

TEST(QuorumClientSlowValueTest, ValuesComeFromTheFastOnesButFromWholeOnesFirst) {
  World world(FabricKind::kDelayed);
  for (auto& [name, host] : world.net.hosts) host.delay = Duration::Millis(1);
  Load load(world);
  ASSERT_TRUE(world.Mutate({{KeyOf(100), MergeRule::kMaxLanes, false, Lanes({7})}}).ok());
  const int slow = world.FirstChoice(0);
  world.net.hosts["cache-" + std::to_string(slow)].delay = Duration::Millis(25);
  load.P99For(Duration::Seconds(1));
  ASSERT_EQ(world.client->counters().slow_replicas, 1u);
  const auto read = [&] {
    const MonotonicTime begin = world.time.now();
    const auto answer = world.ReadAnswer(KeyOf(100));
    EXPECT_TRUE(answer.ok() && answer->complete);
    return world.time.now() - begin;
  };
  EXPECT_LT(read(), Duration::Millis(5));
  world.config.replicas[static_cast<size_t>(slow + 1) % 3].whole = false;
  world.config.configuration_id = Successor(world.config.configuration_id);
  world.client->UpdateRing(world.config);
  EXPECT_GT(read(), Duration::Millis(24)) << "the slow one is whole";
}

}  // namespace
}  // namespace tailcast::cache
