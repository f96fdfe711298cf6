// What a dead producer left, shadowed from the primary layer, over a fake disk and a fake cache.
#include "tailcast/producer/closed_files.h"

#include <gtest/gtest.h>

#include <string>

#include "tailcast/cache/memory_cache.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/storage/fake_store.h"

namespace tailcast::producer {
namespace {

using stream::Part;

constexpr int64_t kChunk = 64;

class ClosedFilesTest : public ::testing::Test {
 protected:
  // A file of the primary layer; gives its predecessor entry.
  Predecessor Write(int64_t seq, int64_t data_length, int64_t index_length) {
    const stream::Stem stem{seq, 1000 * seq, 0, 0};
    WritePart(stem, Part::kData, std::string(static_cast<size_t>(data_length), 'd'));
    WritePart(stem, Part::kIndex, std::string(static_cast<size_t>(index_length), 'i'));
    return {stem, {{data_length, index_length}}};
  }
  void WritePart(const stream::Stem& stem, Part part, const std::string& bytes) {
    std::unique_ptr<storage::AppendFile> handle;
    bool done = false;
    store.CreateExclusive(
        stream::ShardDir(shard), stream::FileName(stem, part), stream::CreationKey(stem.seq, part),
        scope.Bind([&](Result<std::unique_ptr<storage::AppendFile>> file) {
          ASSERT_TRUE(file.ok());
          handle = std::move(*file);
          handle->AppendAt(0, bytes,
                           scope.Bind([&](const storage::AppendResult&) { done = true; }));
        }));
    ASSERT_TRUE(time.RunUntil([&] { return done; }, Duration::Seconds(10)));
  }
  // What the dead producer had published.
  void PutMetadata(int64_t seq, const stream::PairMetadata& pair) {
    metadata.Apply({keys.MetadataGroup(seq), cache::MergeRule::kMaxLanes, false,
                    stream::EncodePairMetadata(seq, pair)});
  }
  stream::PairMetadata Metadata(int64_t seq) const {
    const auto value = metadata.Get(keys.MetadataGroup(seq));
    return value ? stream::DecodePairMetadata(seq, *value) : stream::PairMetadata();
  }
  int64_t CachedBytes(int64_t seq, int64_t chunk) const {
    const auto value = data.Get(keys.Chunk(seq, Part::kData, kChunk, chunk));
    return value ? static_cast<int64_t>(value->size()) : 0;
  }
  void RunUntilIdle() {
    time.RunFor(Duration::Seconds(2));
    EXPECT_TRUE(files.idle());
  }

  sim::VirtualTime time{1};
  std::unique_ptr<sim::SimLoop> disk_loop = time.MakeLoop("disk"), loop = time.MakeLoop("producer");
  storage::FakeDisk disk{disk_loop.get(), 1, {}};
  storage::FakeStore store{&disk, loop.get()};
  cache::MemoryStore data, metadata;
  cache::MemoryClient data_client{loop.get(), &data}, metadata_client{loop.get(), &metadata};
  const stream::ShardId shard{{"s", stream::StreamIncarnation{3}}, 0};
  const stream::KeyMaker keys{shard};
  ShadowCounters counters;
  int idle_calls = 0;
  const Scope scope{};
  ClosedFiles files{{loop.get(), &store, &data_client, &metadata_client},
                    shard,
                    kChunk,
                    ShadowOptions(),
                    &counters,
                    scope.Bind([this] { ++idle_calls; })};
};

TEST_F(ClosedFilesTest, AFileWhoseMetadataIsLostIsShadowedWholeAndSealed) {
  files.Finish(Write(1, 100, 64));
  RunUntilIdle();
  EXPECT_EQ(CachedBytes(1, 0), 64);
  EXPECT_EQ(CachedBytes(1, 1), 36);
  EXPECT_EQ(Metadata(1).cache_length[0], 100);
  EXPECT_EQ(Metadata(1).seal[0], 100);
  EXPECT_EQ(Metadata(1).seal[1], 64);
  EXPECT_GT(idle_calls, 0);
}

// Else who opens after a dead producer and closes at once leaves before the seal is published.
TEST_F(ClosedFilesTest, AFileThatItWasGivenIsWaitedForFromTheFirstMoment) {
  const Predecessor file = Write(1, 100, 64);
  files.Finish(file);
  EXPECT_FALSE(files.idle()) << "its metadata is being read";
  ASSERT_TRUE(time.RunUntil([&] { return files.idle(); }, Duration::Seconds(2)));
  EXPECT_EQ(Metadata(1).seal[0], 100);
  EXPECT_EQ(Metadata(1).cache_length[0], 100);
}

TEST_F(ClosedFilesTest, WhatTheDeadProducerHadShadowedIsNotWrittenAgain) {
  stream::PairMetadata pair;
  pair.created_us = 1000;
  pair.chunk_size = kChunk;
  pair.cache_length[0] = 200;
  PutMetadata(1, pair);
  files.Finish(Write(1, 300, 64));
  RunUntilIdle();
  EXPECT_EQ(CachedBytes(1, 2), 0) << "whole chunks below its length are there, or expired";
  EXPECT_EQ(CachedBytes(1, 3), 64) << "from the chunk in which it stopped";
  EXPECT_EQ(CachedBytes(1, 4), 300 - 256);
}

TEST_F(ClosedFilesTest, OfALongFileOnlyTheTailIsShadowed) {
  constexpr int64_t kLength = (4 << 20) + 10 * kChunk;
  files.Finish(Write(1, kLength, 64));
  time.RunFor(Duration::Seconds(20));
  EXPECT_EQ(CachedBytes(1, 0), 0);
  EXPECT_EQ(CachedBytes(1, 9), 0);
  EXPECT_EQ(CachedBytes(1, 10), kChunk);
  EXPECT_EQ(CachedBytes(1, kLength / kChunk - 1), kChunk);
}

TEST_F(ClosedFilesTest, OfManyFilesTheOldestAreLeftToThePrimaryLayer) {
  data.SetFaults({.unavailable = true});
  for (int64_t seq = 1; seq <= 10; ++seq) files.Finish(Write(seq, 100, 64));
  time.RunFor(Duration::Seconds(1));
  EXPECT_EQ(counters.jumps, 2);
  data.SetFaults({});
  time.RunFor(Duration::Seconds(5));
  EXPECT_TRUE(files.idle());
  EXPECT_EQ(CachedBytes(2, 0), 0);
  EXPECT_EQ(CachedBytes(3, 0), 64);
}

TEST_F(ClosedFilesTest, StoppedItBeginsWithNoFurtherFileAndFinishesTheOthers) {
  const Predecessor first = Write(1, 100, 64), second = Write(2, 100, 64);
  data.SetFaults({.delay = Duration::Millis(100)});
  files.Finish(first);
  time.RunFor(Duration::Millis(50));
  files.Finish(second);
  files.Stop();
  RunUntilIdle();
  EXPECT_EQ(CachedBytes(1, 0), 64);
  EXPECT_EQ(CachedBytes(2, 0), 0);
}

TEST_F(ClosedFilesTest, TheSealOfTheNewestOneIsPublishedAgain) {
  files.Finish(Write(1, 100, 64));
  files.Finish(Write(2, 100, 64));
  RunUntilIdle();
  files.DropIdle();
  metadata.EvictAll();
  files.PublishAgain();
  EXPECT_FALSE(files.idle());
  RunUntilIdle();
  EXPECT_EQ(Metadata(2).seal[0], 100);
  EXPECT_FALSE(Metadata(1).sealed()) << "readers ask the primary layer";
}

}  // namespace
}  // namespace tailcast::producer
