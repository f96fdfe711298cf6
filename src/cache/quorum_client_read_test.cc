// Reads of chunks and values: what they give, what they cost, and when they end.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/hedge_core.h"
#include "tailcast/cache/quorum_client_testing.h"

namespace tailcast::cache {
namespace {

INSTANTIATE_TEST_SUITE_P(Fabric, QuorumClientTest, AllFabrics(), FabricName);

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
  World world(FabricKind::kImmediate);
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
  World delayed(FabricKind::kDelayed);
  ASSERT_TRUE(delayed.Write(1, 4096).ok());
  ChunkRead read = delayed.Chunk(1, 4096);
  EXPECT_FALSE(delayed.client->TryReadChunks(std::span(&read, 1)));
}

TEST(QuorumClientTryTest, ValuesAreReadInsideTheCallOrByAnother) {
  World world(FabricKind::kImmediate, 4);
  std::vector<Client::ValueRead> reads;
  for (uint64_t n = 0; n < 20; ++n) {
    reads.push_back({.key = KeyOf(n)});
    if (n % 2 == 1) continue;
    ASSERT_TRUE(world.Mutate({{KeyOf(n), MergeRule::kMaxLanes, false, Lanes({n, 7})}}).ok());
  }
  Values values;
  ASSERT_TRUE(world.client->TryReadValues(reads, values));
  ASSERT_EQ(values.size(), 20u);
  for (uint64_t n = 0; n < 20; ++n) {
    EXPECT_TRUE(values[n].complete);
    ASSERT_EQ(values[n].has_value(), n % 2 == 0);
    if (n % 2 == 0) {
      EXPECT_TRUE(values[n]->starts_with(Lanes({n, 7})));
    }
  }
  // What it read before is read into again.
  std::swap(reads[0], reads[1]);
  ASSERT_TRUE(world.client->TryReadValues(reads, values));
  EXPECT_FALSE(values[0].has_value());
  EXPECT_TRUE(values[1]->starts_with(Lanes({0, 7})));
  EXPECT_EQ(world.client->counters().value_reads, 40u);
  // Whether anybody is left is found out by who waits.
  world.Kill(0);
  world.Kill(1);
  world.Kill(2);
  EXPECT_FALSE(world.client->TryReadValues(reads, values));
  EXPECT_TRUE(world.client->TryReadValues({}, values));

  World delayed(FabricKind::kDelayed);
  EXPECT_FALSE(delayed.client->TryReadValues(std::span(reads).first(1), values));
  EXPECT_EQ(delayed.client->counters().value_reads, 0u);
}

TEST(QuorumClientTryTest, AllClientsOfAHostReadOneReplica) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    World world(FabricKind::kImmediate, 3, seed);
    for (uint64_t n = 0; n < 32; ++n) ASSERT_TRUE(world.Write(n, 4096).ok());
    for (uint64_t n = 0; n < 32; ++n) EXPECT_EQ(world.FirstChoice(n), 0) << "seed " << seed;
  }
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
    EXPECT_EQ(world.client->counters().widened_reads, 1u);
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

TEST(QuorumClientHedgeTest, SlowReplicaIsHedgedAfter30Milliseconds) {
  World world(FabricKind::kDelayed);
  ASSERT_TRUE(world.Write(1, 4096).ok());
  const int first = world.FirstChoice(1);
  world.net.hosts["cache-" + std::to_string(first)].delay = Duration::Millis(400);
  const MonotonicTime start = world.time.now();
  EXPECT_EQ(world.ReadText(1, 4096), Final(1));
  EXPECT_GE((world.time.now() - start).millis(), 29) << "nearly: a read before was faster";
  EXPECT_LT((world.time.now() - start).millis(), 40);
  EXPECT_EQ(world.client->counters().hedges, 1u);
  // The late completion lands in the client's memory, not in a chunk that its reader has given up.
  world.buffers.clear();
  world.time.RunFor(Duration::Seconds(1));
}

// Chunks that are read together, of replicas that all are slow, until nothing is left of what may
// be hedged: each batch as a whole or not at all.
TEST(QuorumClientHedgeTest, ABatchIsHedgedAsAWholeOrNotAtAll) {
  World world(FabricKind::kDelayed);
  constexpr uint64_t kChunks = 60;
  for (uint64_t n = 0; n < kChunks; ++n) ASSERT_TRUE(world.Write(n, 64).ok());
  for (auto& [name, host] : world.net.hosts) host.delay = Duration::Millis(100);
  const ClientCounters& counters = world.client->counters();
  const Scope scope;
  uint64_t hedged = 0, left = 0;
  for (int batch = 0; batch < 12; ++batch) {
    const uint64_t hedges_before = counters.hedges;
    std::vector<ChunkRead> reads;
    for (uint64_t n = 0; n < kChunks; ++n) reads.push_back(world.Chunk(n, 64));
    bool done = false;
    world.client->ReadChunks(reads, ReadMode::kRelaxed, Duration::Millis(450),
                             scope.Bind([&] { done = true; }));
    ASSERT_TRUE(world.time.RunUntil([&] { return done; }, Duration::Seconds(10)));
    for (const ChunkRead& read : reads) EXPECT_EQ(read.length, 64u);
    const uint64_t hedges = counters.hedges - hedges_before;
    EXPECT_TRUE(hedges % kChunks == 0) << hedges << " of batch " << batch;
    hedged += hedges;
    left += hedges == 0 ? 1 : 0;
    world.buffers.clear();
  }
  EXPECT_GT(hedged, 0u);
  EXPECT_LE(hedged, static_cast<uint64_t>(HedgeCore::kHedgesMax) + kChunks);
  EXPECT_GT(left, 6u);
}

TEST(QuorumClientHedgeTest, DeadlineEndsAReadWithWhatIsThere) {
  World world(FabricKind::kDelayed);
  ASSERT_TRUE(world.Write(1, 4096).ok());
  for (auto& [name, host] : world.net.hosts) host.delay = Duration::Millis(400);
  const MonotonicTime start = world.time.now();
  const ChunkRead read =
      world.Read(world.Chunk(1, 4096), ReadMode::kRelaxed, Duration::Millis(100));
  EXPECT_EQ(read.length, 0u);
  EXPECT_TRUE(read.late);
  EXPECT_EQ((world.time.now() - start).millis(), 100);
  world.buffers.clear();
  world.time.RunFor(Duration::Seconds(2));
  for (auto& [name, host] : world.net.hosts) host.delay = Duration();
  EXPECT_EQ(world.ReadText(1, 4096), Final(1));
  const ChunkRead absent =
      world.Read(world.Chunk(2, 4096), ReadMode::kRelaxed, Duration::Millis(100));
  EXPECT_FALSE(absent.late) << "nobody has it, and all have said so";
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

TEST_P(QuorumClientTest, RelaxedReadsOfAValueAskOneReplicaInTurns) {
  World world(GetParam());
  const Key key = KeyOf(1);
  const auto relaxed = [&] {
    return *world.ReadAnswer(key, MergeRule::kMaxLanes, ReadMode::kRelaxed);
  };
  const ValueAnswer none = relaxed();
  EXPECT_FALSE(none.has_value());
  EXPECT_TRUE(none.complete) << "that there is none, two have to say";

  ASSERT_TRUE(world.Mutate({{key, MergeRule::kMaxLanes, false, Lanes({5})}}).ok());
  world.time.RunFor(Duration::Millis(100));
  std::map<std::string, int> answered;
  for (int turn = 0; turn < 6; ++turn) {
    std::map<std::string, uint64_t> before;
    for (const auto& [name, host] : world.net.hosts) before[name] = host.reads;
    const ValueAnswer answer = relaxed();
    EXPECT_TRUE(answer->starts_with(Lanes({5})));
    EXPECT_FALSE(answer.complete);
    int asked = 0;
    for (const auto& [name, host] : world.net.hosts) {
      if (host.reads == before[name]) continue;
      ++asked;
      ++answered[name];
    }
    EXPECT_EQ(asked, 1);
  }
  EXPECT_EQ(answered, (std::map<std::string, int>{{"cache-0", 2}, {"cache-1", 2}, {"cache-2", 2}}));

  // What two of them acknowledged one of the next two reads sees.
  world.WriteAt(0, key, MergeRule::kMaxLanes, Lanes({9}));
  world.WriteAt(1, key, MergeRule::kMaxLanes, Lanes({9}));
  relaxed();
  EXPECT_TRUE(relaxed()->starts_with(Lanes({9})));
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

// Keys of one bucket: same lo, other hi.
std::vector<Key> KeysOfOneBucket(uint64_t count) {
  std::vector<Key> keys;
  for (uint64_t n = 0; n < count; ++n) keys.push_back({KeyOf(n).hi, 12345});
  return keys;
}
uint64_t GetCalls(const World& world) {
  uint64_t calls = 0;
  for (const auto& process : world.processes) calls += process.server->counters().get_calls;
  return calls;
}

TEST_P(QuorumClientTest, OverflowedKeysOfABatchAreOneCallToEachReplica) {
  const Scope scope;
  World world(GetParam());
  const std::vector<Key> keys = KeysOfOneBucket(60);
  std::vector<Mutation> mutations;
  for (uint64_t n = 0; n < keys.size(); ++n) {
    mutations.push_back({keys[n], MergeRule::kLongerWins, false, Final(n).substr(0, 500)});
  }
  ASSERT_TRUE(world.Mutate(mutations).ok());
  std::vector<ChunkRead> reads;
  for (uint64_t n = 0; n < keys.size(); ++n) {
    reads.push_back(world.Chunk(n, 500));
    reads.back().key = keys[n];
  }
  reads.push_back(world.Chunk(5, 500));  // one twice
  reads.back().key = keys[5];
  bool done = false;
  world.client->ReadChunks(reads, ReadMode::kRelaxed, Duration::Millis(300),
                           scope.Bind([&] { done = true; }));
  ASSERT_TRUE(world.time.RunUntil([&] { return done; }, Duration::Seconds(1)));
  for (uint64_t n = 0; n < keys.size(); ++n) {
    EXPECT_EQ(std::string(reads[n].destination, reads[n].length), Final(n).substr(0, 500)) << n;
  }
  EXPECT_EQ(reads.back().length, 500u);
  EXPECT_GT(world.client->counters().overflow_reads, 40u);
  EXPECT_LE(GetCalls(world), 3u);
  ChunkRead missing = world.Chunk(1000, 500);
  missing.key = {KeyOf(1000).hi, 12345};
  EXPECT_EQ(world.Read(missing).length, 0u);
}

// 100 values of 60 KB, of which the client does not know how long they are.
TEST_P(QuorumClientTest, WhatAnAnswerHasNoRoomForIsAskedForAgain) {
  const Scope scope;
  World world(GetParam(), 1);
  const std::vector<Key> keys = KeysOfOneBucket(100);
  std::vector<Mutation> mutations;
  for (uint64_t n = 0; n < keys.size(); ++n) {
    mutations.push_back({keys[n], MergeRule::kLongerWins, false, Final(n, 60'000)});
  }
  ASSERT_TRUE(world.Mutate(mutations).ok());
  std::vector<Client::ValueRead> reads;
  for (const Key& key : keys) reads.push_back({key, MergeRule::kLongerWins});
  std::optional<Result<Values>> values;
  world.client->ReadValues(reads, Duration::Millis(300),
                           scope.Bind([&](auto result) { values = std::move(result); }));
  ASSERT_TRUE(world.time.RunUntil([&] { return values.has_value(); }, Duration::Seconds(1)));
  ASSERT_TRUE(values->ok());
  for (uint64_t n = 0; n < keys.size(); ++n) {
    EXPECT_TRUE((**values)[n].complete) << n;
    EXPECT_EQ((**values)[n].bytes, Final(n, 60'000)) << n;
  }
  EXPECT_EQ(GetCalls(world), 2u);
}

// Chunks of 4 KB: the client knows that a thousand of them are no answer's.
TEST_P(QuorumClientTest, ABatchAsksForNoMoreThanAnAnswerHasRoomFor) {
  const Scope scope;
  QuorumClientOptions options;
  options.key_reads_max = 4096;
  World world(GetParam(), 1, 1, options);
  const std::vector<Key> keys = KeysOfOneBucket(1500);
  std::vector<Mutation> mutations;
  for (uint64_t n = 0; n < keys.size(); ++n) {
    mutations.push_back({keys[n], MergeRule::kLongerWins, false, Final(n)});
  }
  ASSERT_TRUE(world.Mutate(mutations).ok());
  std::vector<ChunkRead> reads;
  for (uint64_t n = 0; n < keys.size(); ++n) {
    reads.push_back(world.Chunk(n, 4096));
    reads.back().key = keys[n];
  }
  bool done = false;
  world.client->ReadChunks(reads, ReadMode::kRelaxed, Duration::Millis(300),
                           scope.Bind([&] { done = true; }));
  ASSERT_TRUE(world.time.RunUntil([&] { return done; }, Duration::Seconds(1)));
  for (uint64_t n = 0; n < keys.size(); ++n) EXPECT_EQ(reads[n].length, 4096u) << n;
  EXPECT_EQ(GetCalls(world), 2u);
  EXPECT_LT(world.client->counters().overflow_reads, keys.size()) << "none was left out";
}

// Two replicas are asked at once. The one that answers first has other bytes, fewer than wanted;
// the other one's suffix must not be put behind them.
TEST(QuorumClientContradictionTest, AChunkNeverHoldsBytesOfTwoReplicasThatContradictEachOther) {
  uint64_t mismatches = 0;
  for (int slow = 0; slow < 3; ++slow) {
    World world(FabricKind::kDelayed);
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
    mismatches += world.client->counters().mismatches();
  }
  EXPECT_GT(mismatches, 0u);
}

// All that is logged while it lives.
class ErrorLines {
 public:
  ErrorLines() {
    EXPECT_TRUE(SetLogLevels("error").ok());
    SetLogSink(
        [this](LogLevel, std::string_view, std::string_view text) { lines_.emplace_back(text); });
  }
  ~ErrorLines() {
    SetLogSink(nullptr);
    EXPECT_TRUE(SetLogLevels("off").ok());
  }
  // How many have all of these.
  int With(const std::vector<std::string>& parts) const {
    return static_cast<int>(std::count_if(lines_.begin(), lines_.end(), [&](const auto& line) {
      return std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
        return line.find(part) != std::string::npos;
      });
    }));
  }
  std::string Text() const {
    std::string all;
    for (const std::string& line : lines_) all += line + "\n";
    return all;
  }

 private:
  std::vector<std::string> lines_;
};

TEST(QuorumClientContradictionTest, EachIsSaidWithItsKeyTheReplicasAndTheLengths) {
  const ErrorLines lines;
  const Key key = KeyOf(1);
  uint64_t mismatches = 0;
  for (int slow = 0; slow < 3; ++slow) {
    World world(FabricKind::kDelayed);
    for (const int server : {0, 1, 2}) {
      world.WriteAt(server, key, MergeRule::kLongerWins,
                    server == slow ? Final(1) : std::string(1000, 'x'));
      world.net.hosts["cache-" + std::to_string(server)].delay =
          Duration::Millis(server == slow ? 10 : 1);
    }
    world.ReadText(1, 4096, ReadMode::kConsistent);
    mismatches += world.client->counters().chunk_mismatches;
  }
  EXPECT_GT(mismatches, 0u);
  EXPECT_EQ(lines.With({"DataLoss: " + TextOf(key), "4096 bytes of cache-",
                        " contradict 1000 bytes of cache-"}),
            static_cast<int>(mismatches))
      << lines.Text();
}

// One replica brings bytes, another one has fewer of the same, and the last one contradicts them.
TEST(QuorumClientContradictionTest, TheReplicaIsSaidThatBroughtTheBytesNotOneThatHasThemToo) {
  int said = 0;
  for (int last = 0; last < 3; ++last) {
    for (const int step : {1, 2}) {
      World world(FabricKind::kDelayed);
      const ErrorLines lines;
      const int first = (last + step) % 3, second = (last + 3 - step) % 3;
      const auto set = [&](int server, const std::string& value, int64_t millis) {
        world.WriteAt(server, KeyOf(1), MergeRule::kLongerWins, value);
        world.net.hosts["cache-" + std::to_string(server)].delay = Duration::Millis(millis);
      };
      set(first, std::string(1000, 'x'), 1);
      set(second, std::string(500, 'x'), 3);
      set(last, Final(1), 10);
      world.ReadText(1, 4096, ReadMode::kConsistent);
      const auto with = [&](int server) {
        return lines.With({"of cache-" + std::to_string(last) + " contradict 1000 bytes of cache-" +
                           std::to_string(server)});
      };
      said += with(first);
      EXPECT_EQ(with(second), 0) << lines.Text();
    }
  }
  EXPECT_GT(said, 0);
}

// What the reader has is the beginning of what two replicas have, and not of the third one's value.
TEST_P(QuorumClientTest, AValueThatDoesNotContinueWhatTheReaderHasIsCounted) {
  const Key key = KeyOf(1);
  const std::string other(1000, 'x');
  for (const uint32_t capacity : {4096u, 2000u}) {
    for (int third = 0; third < 3; ++third) {
      World world(GetParam());
      const ErrorLines lines;
      for (const int server : {0, 1, 2}) {
        world.WriteAt(server, key, MergeRule::kLongerWins, server == third ? Final(1) : other);
      }
      // The second time the client knows where the entry lies.
      for (uint64_t reads = 1; reads <= 2; ++reads) {
        ChunkRead read = world.Chunk(1, 2000, capacity);
        std::copy_n(other.data(), 1000, read.destination);
        read.have = 1000;
        read.crc = Crc32c(other);
        read = world.Read(read, ReadMode::kConsistent);
        EXPECT_EQ(read.length, 1000u);
        EXPECT_EQ(std::string(read.destination, 1000), other);
        EXPECT_EQ(read.crc, Crc32c(other));
        EXPECT_EQ(world.client->counters().chunk_mismatches, reads);
        EXPECT_EQ(world.client->counters().read_torn, 0u);
        EXPECT_EQ(
            lines.With({"DataLoss: " + TextOf(key), "4096 bytes of cache-" + std::to_string(third) +
                                                        " contradict 1000 bytes "}),
            static_cast<int>(reads))
            << lines.Text();
      }
    }
  }
}

TEST(QuorumClientContradictionTest, WhatIsDroppedIsSaidByWriterAndReplica) {
  World world(FabricKind::kImmediate);
  const ErrorLines lines;
  const Key key = KeyOf(1);
  for (const int server : {0, 1, 2}) {
    world.WriteAt(server, key, MergeRule::kLongerWins, std::string(1000, 'x'));
  }
  EXPECT_TRUE(
      IsDataLoss(world.Mutate({{key, MergeRule::kLongerWins, false, std::string(200, 'y')}})));
  world.time.RunFor(Duration::Seconds(1));
  EXPECT_EQ(world.client->counters().write_mismatches, 3u);
  for (const std::string name : {"cache-0", "cache-1", "cache-2"}) {
    EXPECT_EQ(lines.With({"DataLoss: " + TextOf(key), "200 bytes that were written", "of " + name}),
              1)
        << lines.Text();
    EXPECT_EQ(lines.With({"DataLoss: " + TextOf(key), name + ": 200 bytes of a writer contradict",
                          "1000 bytes here"}),
              1)
        << lines.Text();
  }
}

TEST(QuorumClientContradictionTest, OfManyInAShortTimeSomeAreLogged) {
  World world(FabricKind::kImmediate);
  const ErrorLines lines;
  for (uint64_t n = 0; n < 100; ++n) {
    for (const int server : {0, 1, 2}) {
      world.WriteAt(server, KeyOf(n), MergeRule::kLongerWins, std::string(100, 'a'));
    }
    EXPECT_TRUE(IsDataLoss(
        world.Mutate({{KeyOf(n), MergeRule::kLongerWins, false, std::string(200, 'y')}})));
  }
  world.time.RunFor(Duration::Seconds(11));
  EXPECT_EQ(world.client->counters().write_mismatches, 300u);
  EXPECT_LE(lines.With({"that were written"}), 2 * ContradictionLog::kLinesMax);
  world.WriteAt(0, KeyOf(1), MergeRule::kLongerWins, std::string(100, 'a'));
  EXPECT_TRUE(
      IsDataLoss(world.Mutate({{KeyOf(1), MergeRule::kLongerWins, false, std::string(200, 'y')}})));
  EXPECT_GE(lines.With({"that were written", " more before)"}), 1) << "what was left out is said";
}

TEST(QuorumClientContradictionTest, PlantedMixedChunksAreCaught) {
  const PlantedFault fault("cache.skip_prefix_check");
  int mixed = 0;
  for (int slow = 0; slow < 3; ++slow) {
    World world(FabricKind::kDelayed);
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

// All replicas hang, and reads come on: each of them ends, and what waits for a slot is bounded.
TEST(QuorumClientSlotsTest, ReadsBeyondThoseThatMayWaitFailAtOnce) {
  const Scope scope;
  QuorumClientOptions options;
  options.key_reads_max = 2;
  options.key_reads_waiting_max = 10;
  World world(FabricKind::kDelayed, 3, 1, options);
  ASSERT_TRUE(world.Write(1, 100).ok());
  for (auto& [name, host] : world.net.hosts) host.delay = Duration::Seconds(10);
  std::vector<ChunkRead> reads;
  for (int i = 0; i < 20; ++i) reads.push_back(world.Chunk(1, 100));
  bool done = false;
  world.client->ReadChunks(reads, ReadMode::kConsistent, Duration::Millis(300),
                           scope.Bind([&] { done = true; }));
  ASSERT_TRUE(world.time.RunUntil([&] { return done; }, Duration::Seconds(1)));
  EXPECT_EQ(world.client->counters().misses, 20u);
  EXPECT_GT(world.client->counters().read_no_slot, 20u);
  // The slots come back with the fabric's time-outs.
  for (auto& [name, host] : world.net.hosts) host.delay = Duration();
  world.time.RunFor(Duration::Seconds(2));
  EXPECT_EQ(world.ReadText(1, 100), Final(1).substr(0, 100));
}

// A read whose batch has ended still holds the only slot. Its replica leaves the configuration: the
// slot goes to whoever waits.
TEST(QuorumClientSlotsTest, ALostConnectionGivesItsSlotsToThoseThatWait) {
  const Scope scope;
  QuorumClientOptions options;
  options.key_reads_max = 1;
  options.hedge_delay = Duration::Seconds(1);
  World world(FabricKind::kDelayed, 4, 1, options);
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
  world.config.configuration_id = Successor(world.config.configuration_id);
  world.client->UpdateRing(world.config);
  world.time.RunFor(Duration::Millis(20));
  EXPECT_TRUE(done);
  EXPECT_EQ(waiting.length, 100u);
}

}  // namespace
}  // namespace tailcast::cache
