// The shadow of a file: chunks before lengths, lengths below the index, a backlog that never grows.
#include "tailcast/producer/shadow.h"

#include <gtest/gtest.h>

#include "tailcast/base/fault_point.h"
#include "tailcast/cache/memory_cache.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::producer {
namespace {

using stream::PairMetadata;
using stream::Part;

constexpr int64_t kChunk = 64;

class ShadowTest : public ::testing::Test {
 protected:
  void Make(ShadowOptions options = {}) {
    constexpr int64_t kFrom[2] = {0, 0};
    shadow = std::make_unique<ShadowFile>(
        stream::CellPorts{loop.get(), nullptr, &data_client, &metadata_client}, file, kChunk,
        storage::Epoch::kFirst, kFrom, options, &counters, nullptr);
  }
  // A flush of data with its one index record.
  void Flush(const std::string& bytes) {
    shadow->OnFlushed(Part::kData, data_end, bytes);
    data_end += static_cast<int64_t>(bytes.size());
    shadow->OnFlushed(Part::kIndex, index_end, std::string(stream::kIndexRecordSize, 'i'));
    index_end += stream::kIndexRecordSize;
    shadow->OnCommitted(data_end, index_end);
  }
  PairMetadata Published() const {
    const auto value = metadata.Get(keys.MetadataGroup(1));
    return value ? stream::DecodePairMetadata(1, *value) : PairMetadata();
  }
  // Bytes of the data part that the cache really has, from the beginning on.
  int64_t Cached(Part part = Part::kData) const {
    int64_t have = 0;
    for (int64_t number = 0;; ++number) {
      const auto chunk = data.Get(keys.Chunk(1, part, kChunk, number));
      if (!chunk) return have;
      have += static_cast<int64_t>(chunk->size());
      if (static_cast<int64_t>(chunk->size()) < kChunk) return have;
    }
  }

  sim::VirtualTime time{1};
  std::unique_ptr<sim::SimLoop> loop = time.MakeLoop("shadow");
  cache::MemoryStore data, metadata;
  cache::MemoryClient data_client{loop.get(), &data}, metadata_client{loop.get(), &metadata};
  const stream::FileId file{{{"s", stream::StreamIncarnation{3}}, 0}, {1, 1000, 0, 0}};
  const stream::KeyMaker keys{file.shard};
  ShadowCounters counters;
  int64_t data_end = 0, index_end = 0;
  std::unique_ptr<ShadowFile> shadow;
};

class LengthsTest : public ShadowTest {
 protected:
  bool EverPromisesTooMuch() {
    Make();
    data.SetFaults({.delay = Duration::Millis(3), .jitter = Duration::Millis(3)});
    bool too_much = false;
    for (int i = 0; i < 50; ++i) {
      Flush(std::string(static_cast<size_t>(30 + i), 'x'));
      for (int step = 0; step < 20; ++step) {
        time.RunFor(Duration::Micros(100));
        const PairMetadata published = Published();
        too_much |= published.cache_length[0] > Cached() ||
                    published.cache_length[1] > Cached(Part::kIndex);
      }
    }
    return too_much;
  }
};

TEST_F(LengthsTest, TheCachesLengthFollowsTheChunks) {
  // MemoryStore applies a mutation when it is acknowledged at the latest, so what was acknowledged
  // can be read.
  EXPECT_FALSE(EverPromisesTooMuch());
}

TEST_F(LengthsTest, PlantedLengthBeforeChunksIsCaught) {
  data.SetFaults({.failed_write = 1});
  const PlantedFault fault("producer.length_before_chunks");
  Make();
  Flush("hello");
  time.RunFor(Duration::Millis(100));
  EXPECT_GT(Published().cache_length[0], Cached()) << "the oracle must see it";
}

TEST_F(LengthsTest, AFailingDataCacheHoldsItsLengthBackAndNothingElse) {
  data.SetFaults({.failed_write = 1});
  Make();
  Flush("hello");
  time.RunFor(Duration::Millis(100));
  EXPECT_EQ(Published().cache_length[0], 0);
  EXPECT_EQ(Published().primary_length[0], 5);
  EXPECT_EQ(counters.primary_alone, 1);
  EXPECT_FALSE(shadow->idle());
  data.SetFaults({});
  time.RunFor(Duration::Seconds(2));
  EXPECT_EQ(Published().cache_length[0], 5) << "tried again";
  EXPECT_TRUE(shadow->idle());
}

TEST_F(ShadowTest, LengthsOfBothLayersGoInOneWrite) {
  Make();
  Flush("hello");
  time.RunFor(Duration::Millis(1));
  EXPECT_EQ(Published().cache_length[0], 5);
  EXPECT_EQ(Published().primary_length[0], 5);
  EXPECT_EQ(counters.publishes, 1);
}

TEST_F(ShadowTest, ThePrimarysLengthWaitsOnlySoLong) {
  ShadowOptions options;
  options.primary_length_delay = Duration::Millis(5);
  Make(options);
  data.SetFaults({.delay = Duration::Millis(50)});
  Flush("hello");
  time.RunFor(Duration::Millis(4));
  EXPECT_EQ(Published().primary_length[0], 0);
  time.RunFor(Duration::Millis(3));
  EXPECT_EQ(Published().primary_length[0], 5);
  EXPECT_EQ(Published().cache_length[0], 0);
}

TEST_F(ShadowTest, ChunksOfDataGoAheadOfTheIndexLengthsDoNot) {
  Make();
  shadow->OnFlushed(Part::kData, 0, "hello");
  time.RunFor(Duration::Millis(50));
  EXPECT_EQ(Cached(), 5);
  EXPECT_EQ(Published().cache_length[0], 0);
  EXPECT_EQ(Published().primary_length[0], 0);
}

TEST_F(ShadowTest, ABacklogThatOverflowsJumpsToTheChunkOfThePrimary) {  // §3 Start Position
  ShadowOptions options;
  options.backlog_bytes = 512;
  Make(options);
  data.SetFaults({.unavailable = true});
  for (int i = 0; i < 100; ++i) Flush(std::string(50, static_cast<char>('a' + i % 26)));
  EXPECT_GT(counters.jumps, 0);
  data.SetFaults({});
  time.RunFor(Duration::Seconds(5));
  EXPECT_TRUE(shadow->idle());
  EXPECT_EQ(Published().cache_length[0], 5000) << "the length goes along";
  EXPECT_LT(Cached(), 500) << "what was jumped over is missing";
  const auto last = data.Get(keys.Chunk(1, Part::kData, kChunk, 5000 / kChunk));
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(static_cast<int64_t>(last->size()), 5000 % kChunk) << "from the chunk's beginning";
}

TEST_F(ShadowTest, AWipedMetadataCacheHasTheWholeMetadataAgainAfterAHeartbeat) {
  Make();
  Flush("hello");
  time.RunFor(Duration::Millis(10));
  metadata.EvictAll();
  EXPECT_FALSE(Published().known());
  time.RunFor(Duration::Seconds(1));
  shadow->Heartbeat(Duration::Seconds(1));
  time.RunFor(Duration::Millis(10));
  const PairMetadata published = Published();
  EXPECT_EQ(published.created_us, 1000);
  EXPECT_EQ(published.cache_length[0], 5);
  EXPECT_EQ(published.chunk_size, kChunk);
  EXPECT_GT(published.heartbeat_us, 0);
}

TEST_F(ShadowTest, AHeartbeatThatJustWasIsNotRepeated) {
  Make();
  Flush("hello");
  time.RunFor(Duration::Millis(10));
  const int64_t before = counters.publishes;
  shadow->Heartbeat(Duration::Seconds(1));
  EXPECT_EQ(counters.publishes, before);
}

TEST_F(ShadowTest, TheSealIsPublishedWithTheLengths) {
  Make();
  Flush("hello");
  shadow->Seal({{5, 32}});
  time.RunFor(Duration::Millis(10));
  EXPECT_EQ(Published().seal[0], 5);
  EXPECT_EQ(Published().seal[1], 32);
  EXPECT_TRUE(shadow->idle());
}

TEST_F(ShadowTest, WhatTheCachesLostIsPublishedAgainAtOnceWhenAsked) {
  Make();
  Flush(std::string(100, 'x'));
  shadow->Seal({{100, stream::kIndexRecordSize}});
  time.RunFor(Duration::Millis(100));
  ASSERT_TRUE(shadow->idle());
  metadata.EvictAll();
  shadow->PublishAgain();
  EXPECT_FALSE(shadow->idle());
  time.RunFor(Duration::Millis(1));
  EXPECT_EQ(Published().primary_length[0], 100);
  EXPECT_EQ(Published().cache_length[0], 100);
  EXPECT_EQ(Published().seal[0], 100);
  EXPECT_TRUE(shadow->idle());
  // An acknowledgement of what was written before counts for nothing.
  metadata.SetFaults({.delay = Duration::Millis(10)});
  shadow->Heartbeat(Duration());
  time.RunFor(Duration::Millis(5));
  metadata.EvictAll();
  shadow->PublishAgain();
  EXPECT_TRUE(time.RunUntil([&] { return shadow->idle(); }, Duration::Seconds(1)));
  EXPECT_EQ(Published().seal[0], 100);
}

}  // namespace
}  // namespace tailcast::producer
