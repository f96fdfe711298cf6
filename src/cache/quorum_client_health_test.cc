// Replicas that stall and come back: who is asked meanwhile.
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/quorum_client_testing.h"

namespace tailcast::cache {
namespace {

// Reads go out one after the other; their server stalls and each times out on its own.
TEST(QuorumClientBackoffTest, AStallIsOneStepAndThenOneReadFindsOutWhetherItIsOver) {
  const Scope scope;
  QuorumClientOptions options;
  options.hedge_delay = Duration::Seconds(1);  // so that a read that is asked there is a miss
  World world(false, 3, 1, options);
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

}  // namespace
}  // namespace tailcast::cache
