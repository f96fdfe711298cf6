#include "tailcast/cache/key_read_core.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/cache/server_core.h"
#include "tailcast/cache/test_memory.h"

namespace tailcast::cache {
namespace {

using State = KeyReadCore::State;
using layout::kBucketBytes;
using layout::kEntryHeaderBytes;
using layout::Location;

// A server's memory, and a reader that copies from it what a core asks for.
struct Fixture {
  Fixture()
      : memory(16, 8),
        server(ServerCoreOptions{}, memory.index(), memory.data(), layout::Generation{77}) {}

  void Write(const std::string& value, MergeRule rule = MergeRule::kLongerWins) {
    server.Apply(now, key, rule, value, doorbells);
  }
  void Erase() { server.Erase(now, key, doorbells); }
  KeyReadCore CoreOf(ChunkRead& read) {
    return KeyReadCore(server.geometry(), 3, &read, read.capacity);
  }
  KeyReadCore ValueCore() { return KeyReadCore(server.geometry(), 3, key); }
  // Reads what is asked for and shows it to the core.
  void Step(KeyReadCore& core) {
    const KeyReadCore::Request& request = core.request();
    if (request.bucket) {
      std::memcpy(bucket, memory.index().data() + core.bucket_offset(), kBucketBytes);
    }
    if (request.header) {
      std::memcpy(header, memory.data().data() + request.entry, kEntryHeaderBytes);
    }
    std::copy_n(memory.data().data() + request.entry + kEntryHeaderBytes + request.from,
                request.to - request.from, payload.begin() + (request.from - core.from()));
    asked += request.to - request.from;
    ++steps;
    core.OnRead({bucket, header, payload.data()});
  }
  KeyOutcome Run(KeyReadCore& core) {
    while (!core.done()) Step(core);
    return core.answer().outcome;
  }
  ChunkRead Chunk(uint32_t want, uint32_t capacity = 4096) {
    destination.assign(capacity, '#');
    return {key, 0, want, capacity, destination.data()};
  }
  // Where the key's entry is now, as a reader would remember it.
  Location Place() {
    ChunkRead read = Chunk(1);
    KeyReadCore core = CoreOf(read);
    core.Start(nullptr, false);
    EXPECT_EQ(Run(core), KeyOutcome::kFound);
    steps = asked = 0;
    return core.location();
  }
  std::string Got(const ChunkRead& read) const { return {read.destination, read.length}; }

  const Key key{7, 9};
  TestMemory memory;
  ServerCore server;
  const Instant now{MonotonicTime::FromMicros(1), WallTime::FromMicros(1)};
  std::vector<uint64_t> doorbells;
  char bucket[kBucketBytes];
  char header[kEntryHeaderBytes];
  std::vector<char> payload = std::vector<char>(layout::kValueBytesMax);
  std::string destination;
  uint64_t steps = 0, asked = 0;
};

std::string Text(size_t length) {
  std::string text(length, '\0');
  for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>('a' + i * i % 26);
  return text;
}

TEST(KeyReadCoreTest, BucketThenEntry) {
  Fixture f;
  f.Write(Text(3000));
  ChunkRead read = f.Chunk(3000);
  KeyReadCore core = f.CoreOf(read);
  core.Start(nullptr, false);
  EXPECT_EQ(core.state(), State::kBucket);
  f.Step(core);
  EXPECT_EQ(core.state(), State::kEntry);
  f.Step(core);
  EXPECT_EQ(core.answer().outcome, KeyOutcome::kFound);
  EXPECT_EQ(core.answer().generation, layout::Generation{77});
  EXPECT_EQ(core.answer().bytes_added, 3000u);
  EXPECT_EQ(f.Got(read), Text(3000));
  EXPECT_EQ(read.crc, Crc32c(Text(3000)));
}

TEST(KeyReadCoreTest, AKeyThatIsNotThereIsAbsentAfterItsBucket) {
  Fixture f;
  ChunkRead read = f.Chunk(10);
  KeyReadCore core = f.CoreOf(read);
  core.Start(nullptr, false);
  f.Step(core);
  EXPECT_EQ(core.answer().outcome, KeyOutcome::kAbsent);
}

TEST(KeyReadCoreTest, AKeyBeyondTheWaysOfItsBucketIsOverflowed) {
  Fixture f;
  for (uint64_t n = 0; n < layout::kBucketEntries + 1; ++n) {
    f.server.Apply(f.now, {n + 100, f.key.lo}, MergeRule::kLongerWins, "x", f.doorbells);
  }
  KeyReadCore core = f.ValueCore();
  core.Start(nullptr, true);
  EXPECT_EQ(f.Run(core), KeyOutcome::kOverflowed);
  EXPECT_TRUE(core.answer().saw_bucket);
}

TEST(KeyReadCoreTest, ARememberedChunkOfEnoughBytesNeedsNoBucket) {
  Fixture f;
  f.Write(Text(3000));
  const Location place = f.Place();
  ChunkRead read = f.Chunk(2000);
  KeyReadCore core = f.CoreOf(read);
  core.Start(&place, false);
  EXPECT_EQ(core.state(), State::kRemembered);
  EXPECT_EQ(f.Run(core), KeyOutcome::kFound);
  EXPECT_EQ(f.steps, 1u);
  EXPECT_FALSE(core.answer().saw_bucket);
  EXPECT_EQ(f.Got(read), Text(3000));
}

TEST(KeyReadCoreTest, ARememberedChunkThatGrewCostsItsRest) {
  Fixture f;
  f.Write(Text(1000));
  const Location place = f.Place();
  f.Write(Text(1500));
  ChunkRead read = f.Chunk(1500);
  KeyReadCore core = f.CoreOf(read);
  core.Start(&place, false);
  f.Step(core);
  EXPECT_EQ(core.state(), State::kRest);
  f.Step(core);
  EXPECT_EQ(core.answer().outcome, KeyOutcome::kFound);
  EXPECT_EQ(f.asked, 1500u);
  EXPECT_EQ(f.Got(read), Text(1500));
}

TEST(KeyReadCoreTest, ARememberedPlaceThatIsShortOrTakenIsLookedUpWithoutARetry) {
  for (const bool taken : {false, true}) {
    Fixture f;
    f.Write(Text(1000));
    const Location place = f.Place();
    if (taken) f.Erase();
    ChunkRead read = f.Chunk(2000);
    KeyReadCore core = f.CoreOf(read);
    core.Start(&place, false);
    f.Step(core);
    EXPECT_EQ(core.state(), State::kBucket);
    EXPECT_EQ(f.Run(core), taken ? KeyOutcome::kAbsent : KeyOutcome::kFound);
    EXPECT_EQ(core.torn_retries(), 0u);
    EXPECT_EQ(f.asked, 1000u) << "what was found stays found";
    EXPECT_EQ(f.Got(read), taken ? "" : Text(1000));
  }
}

TEST(KeyReadCoreTest, ARememberedValueCountsOnlyIfTheBucketStillPointsToIt) {
  Fixture f;
  f.Write(std::string(16, '\1'), MergeRule::kMaxLanes);
  KeyReadCore before = f.ValueCore();
  before.Start(nullptr, true);
  ASSERT_EQ(f.Run(before), KeyOutcome::kFound);
  const Location place = before.location();
  for (const bool moved : {false, true}) {
    if (moved) f.Write(std::string(16, '\2'), MergeRule::kMaxLanes);
    KeyReadCore core = f.ValueCore();
    core.Start(&place, true);
    f.steps = 0;
    EXPECT_EQ(f.Run(core), KeyOutcome::kFound);
    EXPECT_EQ(f.steps, moved ? 2u : 1u);
    EXPECT_EQ(std::string(f.payload.data(), 16), std::string(16, moved ? '\2' : '\1'));
  }
}

TEST(KeyReadCoreTest, AValueLongerThanTheRoomIsAskedForAnewAndCut) {
  Fixture f;
  f.Write(Text(4000));
  ChunkRead read = f.Chunk(100, 1000);
  std::copy_n(Text(50).data(), 50, read.destination);
  read.have = 50;
  read.crc = Crc32c(Text(50));
  KeyReadCore core = f.CoreOf(read);
  core.Start(nullptr, false);
  f.Step(core);
  f.Step(core);
  EXPECT_EQ(core.state(), State::kRest);
  EXPECT_EQ(core.request().from, 50u);
  EXPECT_GT(core.request().to, read.capacity);
  f.Step(core);
  EXPECT_EQ(core.answer().outcome, KeyOutcome::kFound);
  EXPECT_EQ(f.Got(read), Text(1000));
  EXPECT_EQ(read.crc, Crc32c(Text(1000)));
}

TEST(KeyReadCoreTest, OnlyTheSuffixOfAGrowingChunkIsRead) {
  Fixture f;
  f.Write(Text(3000));
  ChunkRead read = f.Chunk(3000);
  std::copy_n(Text(2900).data(), 2900, read.destination);
  read.have = 2900;
  read.crc = Crc32c(Text(2900));
  KeyReadCore core = f.CoreOf(read);
  core.Start(nullptr, false);
  EXPECT_EQ(f.Run(core), KeyOutcome::kFound);
  EXPECT_EQ(f.asked, 100u);
  EXPECT_EQ(f.Got(read), Text(3000));
}

TEST(KeyReadCoreTest, WhatNeverValidatesIsTornAfterTheRetries) {
  for (const bool bucket : {false, true}) {
    Fixture f;
    f.Write(Text(1000));
    const Location place = f.Place();
    if (bucket) {
      KeyReadCore any = f.ValueCore();
      f.memory.index()[any.bucket_offset() + 20] ^= 1;
    } else {
      f.memory.data()[place.offset + kEntryHeaderBytes + 500] ^= 1;
    }
    ChunkRead read = f.Chunk(1000);
    KeyReadCore core = f.CoreOf(read);
    core.Start(nullptr, false);
    EXPECT_EQ(f.Run(core), KeyOutcome::kTorn);
    EXPECT_EQ(core.torn_retries(), 3u);
    EXPECT_EQ(f.Got(read), "");
  }
}

TEST(KeyReadCoreTest, ATornCopyIsReadAgainFromTheBucketOn) {
  Fixture f;
  f.Write(Text(1000));
  ChunkRead read = f.Chunk(1000);
  KeyReadCore core = f.CoreOf(read);
  core.Start(nullptr, false);
  f.Step(core);
  f.memory.data()[core.request().entry + kEntryHeaderBytes] ^= 1;
  f.Step(core);
  EXPECT_EQ(core.state(), State::kBucket);
  f.Step(core);
  f.memory.data()[core.request().entry + kEntryHeaderBytes] ^= 1;
  EXPECT_EQ(f.Run(core), KeyOutcome::kFound);
  EXPECT_EQ(core.torn_retries(), 1u);
  EXPECT_EQ(f.Got(read), Text(1000));
}

// Another replica brought other bytes while this one was being read.
TEST(KeyReadCoreTest, AValueWhosePrefixIsNotTheChunksIsAContradiction) {
  Fixture f;
  f.Write(Text(3000));
  ChunkRead read = f.Chunk(3000);
  KeyReadCore core = f.CoreOf(read);
  core.Start(nullptr, false);
  f.Step(core);
  const std::string other(1000, 'x');
  ASSERT_TRUE(AppendValidated(read, {0, 0, other.data(), 1000, Crc32c(other)}));
  f.Step(core);
  EXPECT_EQ(core.answer().outcome, KeyOutcome::kContradicts);
  EXPECT_EQ(f.Got(read), other);
  EXPECT_EQ(read.crc, Crc32c(other));
  EXPECT_EQ(AnswerByRpc(&read, Text(3000)).outcome, KeyOutcome::kContradicts);
  EXPECT_EQ(f.Got(read), other);
}

// The suffix alone validates behind no other prefix, as if it were torn.
TEST(KeyReadCoreTest, AValueThatDoesNotContinueWhatTheReaderHadIsAContradiction) {
  for (const bool remembered : {false, true}) {
    Fixture f;
    f.Write(Text(3000));
    const Location place = f.Place();
    ChunkRead read = f.Chunk(3000);
    const std::string other(1000, 'x');
    std::copy_n(other.data(), 1000, read.destination);
    read.have = 1000;
    read.crc = Crc32c(other);
    const std::string before = f.destination;
    KeyReadCore core = f.CoreOf(read);
    core.Start(remembered ? &place : nullptr, false);
    EXPECT_EQ(f.Run(core), KeyOutcome::kContradicts) << remembered;
    EXPECT_EQ(core.answer().length, 3000u);
    EXPECT_LE(core.torn_retries(), 1u);
    EXPECT_EQ(core.answer().bytes_added, 0u);
    EXPECT_EQ(f.destination, before);
    EXPECT_EQ(read.length, 0u);
    EXPECT_EQ(read.crc, Crc32c(other));
  }
}

TEST(KeyReadCoreTest, ASuffixThatIsTornIsNoContradiction) {
  for (const bool heals : {false, true}) {
    Fixture f;
    f.Write(Text(3000));
    const Location place = f.Place();
    char& byte = f.memory.data()[place.offset + kEntryHeaderBytes + 2000];
    const char whole = std::exchange(byte, '#');
    ChunkRead read = f.Chunk(3000);
    std::copy_n(Text(1000).data(), 1000, read.destination);
    read.have = 1000;
    read.crc = Crc32c(Text(1000));
    KeyReadCore core = f.CoreOf(read);
    core.Start(nullptr, false);
    while (!core.done()) {
      if (heals && core.from() == 0) byte = whole;
      f.Step(core);
    }
    EXPECT_EQ(core.answer().outcome, heals ? KeyOutcome::kFound : KeyOutcome::kTorn);
    EXPECT_EQ(read.length, heals ? 3000u : 0u);
    EXPECT_EQ(std::string(read.destination, 1000), Text(1000));
    EXPECT_EQ(read.crc, Crc32c(Text(heals ? 3000 : 1000)));
    EXPECT_EQ(f.Got(read), heals ? Text(3000) : "");
  }
}

TEST(KeyReadCoreTest, BytesThatOthersBroughtMeanwhileAreTakenOnce) {
  Fixture f;
  f.Write(Text(3000));
  ChunkRead read = f.Chunk(3000);
  KeyReadCore core = f.CoreOf(read);
  core.Start(nullptr, false);
  f.Step(core);
  ASSERT_EQ(AnswerByRpc(&read, Text(1000)).outcome, KeyOutcome::kFound);
  f.Step(core);
  EXPECT_EQ(core.answer().outcome, KeyOutcome::kFound);
  EXPECT_EQ(core.answer().bytes_added, 2000u);
  EXPECT_EQ(f.Got(read), Text(3000));
  EXPECT_EQ(read.crc, Crc32c(Text(3000)));
}

}  // namespace
}  // namespace tailcast::cache
