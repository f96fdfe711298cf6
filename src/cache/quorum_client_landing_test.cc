// Scans: a chunk in one round trip, landing in the caller's memory; and who may write there, when.
// The fabric of these tests writes what is to land twice: when it is asked for and when it answers.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/key_scan.h"
#include "tailcast/cache/quorum_client_testing.h"

namespace tailcast::cache {
namespace {

class LandingTest : public testing::Test {
 protected:
  TestFabric::Host& host(int server) { return world_.net.hosts["cache-" + std::to_string(server)]; }
  // Reads that all servers were asked for, and the bytes that they sent.
  std::pair<uint64_t, uint64_t> Traffic() {
    std::pair<uint64_t, uint64_t> sum;
    for (const auto& [name, one] : world_.net.hosts) {
      sum.first += one.reads;
      sum.second += one.bytes;
    }
    return sum;
  }
  // What was read is gone from its memory for good: `read` has ended.
  void ExpectNothingLandsAnyMore(const ChunkRead& read) {
    std::memset(read.destination, '#', read.capacity);
    world_.time.RunFor(Duration::Seconds(2));
    EXPECT_EQ(std::count(read.destination, read.destination + read.capacity, '#'), read.capacity);
  }
  void ExpectBytes(const ChunkRead& read, uint64_t n, size_t length) {
    ASSERT_EQ(read.length, length);
    EXPECT_TRUE(Final(n).starts_with(std::string_view(read.destination, length)));
    EXPECT_EQ(read.crc, Crc32cExtend(0, read.destination, length));
  }
  // Puts a longer value at one server only, past the client.
  void Grow(int server, uint64_t n, size_t length) {
    world_.WriteAt(server, KeyOf(n), MergeRule::kLongerWins, Final(n).substr(0, length));
  }

  World world_{FabricKind::kScanning};
};

TEST_F(LandingTest, AChunkTakesOneRoundTripAndOnlyTheSuffixMoves) {
  ASSERT_TRUE(world_.Write(1, 4000).ok());
  ChunkRead read = world_.Chunk(1, 4000);
  auto before = Traffic();
  read = world_.Read(read);
  ExpectBytes(read, 1, 4000);
  EXPECT_EQ(Traffic().first, before.first + 1);
  EXPECT_EQ(Traffic().second, before.second + 128 + 64 + 4000);
  ASSERT_TRUE(world_.Write(1, 4096).ok());
  before = Traffic();
  read.have = read.length;
  read.length = 0;
  read.want = 4096;
  read = world_.Read(read);
  ExpectBytes(read, 1, 4096);
  EXPECT_EQ(Traffic().first, before.first + 1);
  EXPECT_EQ(Traffic().second, before.second + 128 + 64 + 96);
}

TEST_F(LandingTest, AHedgeBringsTheChunkAndTheFirstAskIsReleased) {
  ASSERT_TRUE(world_.Write(1, 4096).ok());
  host(world_.FirstChoice(1)).delay = Duration::Millis(390);
  const ChunkRead read = world_.Read(world_.Chunk(1, 4096));
  ExpectBytes(read, 1, 4096);
  EXPECT_EQ(world_.client->counters().hedges, 1u);
  ExpectNothingLandsAnyMore(read);
}

TEST_F(LandingTest, ADeadlineReleasesWhatWasToLand) {
  ASSERT_TRUE(world_.Write(1, 4096).ok());
  for (int server : {0, 1, 2}) host(server).delay = Duration::Millis(300);
  const ChunkRead read =
      world_.Read(world_.Chunk(1, 4096), ReadMode::kRelaxed, Duration::Millis(20));
  EXPECT_EQ(read.length, 0u);
  ExpectNothingLandsAnyMore(read);
}

TEST_F(LandingTest, ALostConnectionReleasesWhatWasToLand) {
  const Scope scope;
  ASSERT_TRUE(world_.Write(1, 4096).ok());
  const int first = world_.FirstChoice(1);
  host(first).delay = Duration::Millis(300);
  ChunkRead read = world_.Chunk(1, 4096);
  bool done = false;
  world_.client->ReadChunks(std::span(&read, 1), ReadMode::kRelaxed, Duration::Millis(400),
                            scope.Bind([&] { done = true; }));
  world_.time.RunFor(Duration::Millis(5));
  // It leaves the ring with the read under way.
  world_.config.replicas.erase(world_.config.replicas.begin() + first);
  world_.config.configuration_id = Successor(world_.config.configuration_id);
  world_.client->UpdateRing(world_.config);
  ASSERT_TRUE(world_.time.RunUntil([&] { return done; }, Duration::Seconds(1)));
  ExpectBytes(read, 1, 4096);
  ExpectNothingLandsAnyMore(read);
}

// The second replica has less: its bytes enter the chunk and stay whole, though the first one's
// were to land there. The first is asked again and brings the rest.
TEST_F(LandingTest, AShortHedgeIsKeptAndTheFirstIsAskedAgain) {
  ASSERT_TRUE(world_.Write(1, 10).ok());
  const int first = world_.FirstChoice(1);
  for (const int server : {0, 1, 2}) Grow(server, 1, server == first ? 4096 : 1000);
  host(first).delay = Duration::Millis(100);
  ChunkRead read = world_.Chunk(1, 4096);
  const auto before = host(first).reads;
  const Scope scope;
  bool done = false;
  world_.client->ReadChunks(std::span(&read, 1), ReadMode::kRelaxed, Duration::Millis(400),
                            scope.Bind([&] { done = true; }));
  world_.time.RunFor(Duration::Millis(60));  // hedged, and answered
  EXPECT_FALSE(done);
  ExpectBytes(read, 1, 1000);
  ASSERT_TRUE(world_.time.RunUntil([&] { return done; }, Duration::Seconds(1)));
  ExpectBytes(read, 1, 4096);
  EXPECT_EQ(host(first).reads, before + 2);
  ExpectNothingLandsAnyMore(read);
}

TEST_F(LandingTest, AHedgeThatFindsNothingDoesNotReleaseTheFirst) {
  ASSERT_TRUE(world_.Write(1, 4096).ok());
  const int first = world_.FirstChoice(1);
  for (const int server : {0, 1, 2}) {
    if (server == first) continue;
    auto* const core = const_cast<ServerCore*>(world_.processes[server].server->core());
    std::vector<uint64_t> doorbells;
    core->Erase({world_.time.now(), WallTime()}, KeyOf(1), doorbells);
  }
  host(first).delay = Duration::Millis(100);
  const auto before = host(first).reads;
  const ChunkRead read = world_.Read(world_.Chunk(1, 4096));
  ExpectBytes(read, 1, 4096);
  EXPECT_EQ(host(first).reads, before + 1);
}

TEST_F(LandingTest, AChunkThatGrowsWhileItIsOnItsWayIsReadToItsEnd) {
  const Scope scope;
  ASSERT_TRUE(world_.Write(1, 3000).ok());
  const int first = world_.FirstChoice(1);
  host(first).delay = Duration::Millis(10);
  ChunkRead read = world_.Chunk(1, 3000);
  bool done = false;
  world_.client->ReadChunks(std::span(&read, 1), ReadMode::kRelaxed, Duration::Millis(400),
                            scope.Bind([&] { done = true; }));
  ASSERT_TRUE(world_.Write(1, 4096).ok());
  EXPECT_FALSE(done);
  ASSERT_TRUE(world_.time.RunUntil([&] { return done; }, Duration::Seconds(1)));
  // Its header came with the longer value; the bytes between were asked for.
  ExpectBytes(read, 1, 4096);
  EXPECT_EQ(world_.client->counters().torn_retries, 0u);
}

TEST_F(LandingTest, AValueLongerThanTheCallersMemoryIsValidatedElsewhereAndCut) {
  ASSERT_TRUE(world_.Write(1, 4096).ok());
  auto guarded = std::make_unique<std::string>(1100, '#');
  ChunkRead read{KeyOf(1), 0, 1000, 1000, guarded->data()};
  read = world_.Read(read);
  ExpectBytes(read, 1, 1000);
  EXPECT_EQ(guarded->substr(1000), std::string(100, '#'));
}

TEST_F(LandingTest, ValuesComeInOneRoundTripAndLongOnesOnceTheirLengthIsKnown) {
  const Key key = KeyOf(9);
  for (const size_t lanes : {128u, 1000u}) {
    const std::string value = Lanes(std::vector<uint64_t>(lanes, 7));
    ASSERT_TRUE(world_.Mutate({{key, MergeRule::kMaxLanes, false, value}}).ok());
    for (int round = 0; round < 2; ++round) {
      const auto before = Traffic();
      EXPECT_EQ(world_.ReadValue(key).value(), value);
      const uint64_t trips = lanes > 256 && round == 0 ? 2 : 1;
      EXPECT_EQ(Traffic().first, before.first + 2 * trips) << lanes;  // of each of two replicas
    }
  }
}

// Whatever the server's engine says it found is only where to look.
TEST_F(LandingTest, AServerThatFindsTheWrongThingIsReadWithoutItsHelp) {
  ASSERT_TRUE(world_.Write(1, 4096).ok());
  ASSERT_TRUE(world_.Write(2, 4096).ok());
  const fabric::Scanner honest = host(0).scanner;
  using fabric::ScanPlan;
  using fabric::ScanRequest;
  using Views = std::span<const std::span<const char>>;
  const std::map<std::string, fabric::Scanner> liars = {
      {"nothing at all", [](const ScanRequest&, Views) { return ScanPlan{}; }},
      {"no entry",
       [=](const ScanRequest& request, Views views) {
         ScanPlan plan = honest(request, views);
         plan.count = 1;
         return plan;
       }},
      {"no payload",
       [=](const ScanRequest& request, Views views) {
         ScanPlan plan = honest(request, views);
         plan.count = 2;
         return plan;
       }},
      {"another key", [=](const ScanRequest&,
                          Views views) { return honest(EncodeKeyScan(KeyOf(2), 0, 4096), views); }},
      {"another entry",
       [=](const ScanRequest& request, Views views) {
         ScanPlan plan = honest(request, views);
         const ScanPlan other = honest(EncodeKeyScan(KeyOf(2), 0, 4096), views);
         for (const size_t part : {kScannedHeader, kScannedPayload}) {
           plan.ranges[part] = other.ranges[part];
         }
         return plan;
       }},
      {"another payload",
       [=](const ScanRequest& request, Views views) {
         ScanPlan plan = honest(request, views);
         plan.ranges[kScannedPayload].offset += 8;
         return plan;
       }},
      {"a shorter bucket",
       [=](const ScanRequest& request, Views views) {
         ScanPlan plan = honest(request, views);
         plan.ranges[kScannedBucket].length = 64;
         return plan;
       }},
      {"less payload",
       [=](const ScanRequest& request, Views views) {
         ScanPlan plan = honest(request, views);
         plan.ranges[kScannedPayload].length -= 100;
         return plan;
       }},
  };
  for (const auto& [what, liar] : liars) {
    for (const int server : {0, 1, 2}) host(server).scanner = liar;
    EXPECT_TRUE(world_.ReadText(1, 4096) == Final(1)) << what;
    EXPECT_EQ(world_.ReadText(3, 4096), "") << what;
  }
}

TEST_F(LandingTest, APlantedSkippedPayloadCheckIsCaughtOnThisPath) {
  ASSERT_TRUE(world_.Write(1, 4096).ok());
  const fabric::Scanner honest = host(0).scanner;
  for (const int server : {0, 1, 2}) {
    host(server).scanner = [=](const fabric::ScanRequest& request, auto views) {
      fabric::ScanPlan plan = honest(request, views);
      plan.ranges[kScannedPayload].offset += 8;
      return plan;
    };
  }
  EXPECT_TRUE(world_.ReadText(1, 4096) == Final(1));
  const PlantedFault fault("cache.skip_payload_check");
  const ChunkRead read = world_.Read(world_.Chunk(1, 4096));
  EXPECT_FALSE(std::string(read.destination, read.length) == Final(1));
}

}  // namespace
}  // namespace tailcast::cache
