// ProducerAgent and ConsumerAgent together, in virtual time: what is acknowledged is delivered, in
// order, once, whatever the caches lose and whoever takes over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tailcast/base/scope.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/world/one_shard.h"

namespace tailcast::world {
namespace {

using ::testing::HasSubstr;

TEST(Delivery, MessagesArriveInOrderAcrossRollOvers) {
  OneShard w(1);
  auto& p = w.OpenProducer(w.ProducerOptions());
  ASSERT_TRUE(p.opened->ok()) << *p.opened;
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, p, 300);
  EXPECT_DELIVERED(w, c, 300);
  EXPECT_GT(c.agent()->counters().roll_overs, 5);
  EXPECT_GT(c.agent()->counters().cache_bytes, 300 * 100);
  EXPECT_EQ(c.agent()->counters().primary_bytes, 0) << "the cache had everything";
}

// Consumers that tail it, and ones that begin in the middle, read files of different chunk sizes.
TEST(Delivery, ChunkSizesFollowARateThatJumpsAThousandfold) {
  OneShard w(19);
  auto options = w.ProducerOptions();
  options.chunk_size = 4096;
  options.chunk_size_by_rate = true;
  options.roll_bytes = 20'000;
  auto& p = w.OpenProducer(options);
  auto consumer_options = w.ConsumerOptions();
  consumer_options.window_bytes = 1 << 20;
  consumer_options.chunk_size = 4096;
  auto& c = w.StartConsumer(consumer_options);
  PublishMany(w, p, 900, 50, Duration::Millis(2));
  PublishMany(w, p, 10, 100'000, Duration::Millis(2));
  PublishMany(w, p, 900, 50, Duration::Millis(2));
  EXPECT_DELIVERED(w, c, 1810);
  EXPECT_EQ(c.agent()->counters().primary_bytes, 0) << "the cache had everything";
  std::vector<int64_t> sizes;
  for (const std::string& name : w.disk.PeekNames(stream::ShardDir(w.shard))) {
    const auto file = stream::ParseFileName(name);
    if (file && file->part == Part::kIndex) sizes.push_back(file->stem.chunk_size);
  }
  EXPECT_EQ(sizes.front(), 4096);
  EXPECT_GE(std::count(sizes.begin(), sizes.end(), 512), 3);
  EXPECT_GE(std::count(sizes.begin(), sizes.end(), 65536), 5);
  EXPECT_EQ(sizes.back(), 512);
  auto& late = w.StartConsumer(consumer_options);
  EXPECT_DELIVERED(w, late, 1810);
}

TEST(Delivery, AnIntakeOfManyFilesIsCutIntoThem) {
  OneShard w(18);
  const Scope scope;
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(w.Publish(p, 300).ok());
  p.agent()->Close(Duration::Seconds(5), scope.Bind([&](Status s) { p.closed = s; }));
  ASSERT_TRUE(w.time.RunUntil([&] { return p.closed.has_value(); }, kLong));
  EXPECT_TRUE(p.closed->ok()) << *p.closed;
  EXPECT_EQ(w.durable(), 100);
  EXPECT_EQ(p.agent()->counters().files_opened, 10) << "3000 bytes each; none behind the last";
  EXPECT_EQ(p.agent()->counters().files_sealed, 10);
  EXPECT_GE(p.agent()->counters().flushes, 10);
  EXPECT_DELIVERED(w, c, 100);
  EXPECT_EQ(c.agent()->counters().roll_overs, 9);
}

TEST(Delivery, PolledLengthsAreEnough) {
  OneShard w(2);
  auto options = w.ProducerOptions();
  options.flush_interval = Duration::Millis(100);
  auto& p = w.OpenProducer(options);
  auto consumer_options = w.ConsumerOptions();
  consumer_options.doorbell = false;
  consumer_options.poll = Duration::Millis(100);
  auto& c = w.StartConsumer(consumer_options);
  PublishMany(w, p, 200, 100, Duration::Millis(5));
  EXPECT_DELIVERED(w, c, 200);
}

TEST(Delivery, ALargeMessageSpansChunksAndTheWindow) {
  OneShard w(3);
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  for (int64_t size : {10, 20000, 1, 5000, 60000, 4096, 256}) ASSERT_TRUE(w.Publish(p, size).ok());
  EXPECT_DELIVERED(w, c, 7);
}

TEST(Delivery, EmptyMessagesAreMessages) {
  OneShard w(4);
  auto& p = w.OpenProducer(w.ProducerOptions());
  std::vector<producer::Ack> acks;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(p.agent()->Publish("", [&](const producer::Ack& a) { acks.push_back(a); }).ok());
  }
  ASSERT_TRUE(w.time.RunUntil([&] { return acks.size() == 3; }, kLong));
  EXPECT_EQ(acks[2].position.number, 2);
  EXPECT_EQ(acks[2].position.byte, 0);
  auto& c = w.StartConsumer(w.ConsumerOptions());
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == 3; }, kLong));
  EXPECT_EQ(c.broken, "");
}

TEST(Delivery, RawBytesComeBackAsTheyWere) {
  OneShard w(5);
  auto options = w.ProducerOptions();
  options.message_bytes_max = 500;
  auto& p = w.OpenProducer(options);
  std::string sent;
  int acked = 0;
  for (int i = 0; i < 40; ++i) {
    const std::string piece = w.MakeMessage(0, i, static_cast<int64_t>(w.rng.Below(1500)));
    sent += piece;
    ASSERT_TRUE(p.agent()->Append(piece, [&](const producer::Ack&) { ++acked; }).ok());
  }
  auto& c = w.StartConsumer(w.ConsumerOptions());
  const auto joined = [&] {
    std::string all;
    for (const std::string& piece : c.got) all += piece;
    return all;
  };
  EXPECT_TRUE(w.time.RunUntil([&] { return joined().size() >= sent.size(); }, kLong));
  EXPECT_EQ(joined(), sent);
  EXPECT_EQ(acked, 40);
}

// --- What the caches may lose ---

TEST(Delivery, WithoutAnyCacheEverythingComesFromThePrimary) {
  OneShard w(10);
  w.data.SetFaults({.unavailable = true});
  w.metadata.SetFaults({.unavailable = true});
  auto options = w.ProducerOptions();
  options.takeover = true;
  auto& p = w.OpenProducer(options);
  ASSERT_TRUE(p.opened->ok()) << *p.opened;
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, p, 200);
  ASSERT_TRUE(w.time.RunUntil([&] { return w.AllSettled(); }, kLong));
  EXPECT_EQ(w.durable(), 200) << "the caches never hold up an append";
  EXPECT_DELIVERED(w, c, 200);
  EXPECT_EQ(c.agent()->counters().cache_bytes, 0);
}

TEST(Delivery, AWipedDataCacheCostsPrimaryReadsOnly) {
  OneShard w(11);
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 100);
  w.time.RunFor(Duration::Seconds(1));
  w.data.EvictAll();
  auto& c = w.StartConsumer(w.ConsumerOptions());
  EXPECT_DELIVERED(w, c, 100);
  EXPECT_GT(c.agent()->counters().fallback_missing_chunk, 0);
  // And goes on from the cache.
  PublishMany(w, p, 200);
  EXPECT_DELIVERED(w, c, 300);
  EXPECT_GT(c.agent()->counters().cache_bytes, 100 * 50);
}

TEST(Delivery, AWipedMetadataCacheIsFilledAgainByTheNextHeartbeat) {
  OneShard w(12);
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, p, 50);
  EXPECT_DELIVERED(w, c, 50);
  w.metadata.EvictAll();
  PublishMany(w, p, 50);
  EXPECT_DELIVERED(w, c, 100);
  w.time.RunFor(Duration::Seconds(3));
  EXPECT_EQ(c.agent()->state(), ShardState::kQuiet);
}

TEST(Delivery, ALateCacheIsReadAroundAfterTheTolerableDelay) {  // Algorithm 1, end to end
  OneShard w(13);
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, p, 20);
  EXPECT_DELIVERED(w, c, 20);
  EXPECT_EQ(c.agent()->counters().fallback_delayed, 0);
  w.data.SetFaults({.failed_write = 1});  // the cache layer stands still
  const MonotonicTime start = w.time.now();
  ASSERT_TRUE(w.Publish(p, 100).ok());
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == 21; }, kLong));
  const Duration took = w.time.now() - start;
  EXPECT_GT(took.millis(), 990);
  EXPECT_LT(took.millis(), 1100);
  EXPECT_GT(c.agent()->counters().fallback_delayed, 0);
}

TEST(Delivery, ForeignBytesInTheCacheAreReadAgainFromThePrimary) {
  OneShard w(14);
  auto options = w.ProducerOptions();
  options.roll_bytes = 1 << 20;
  auto& p = w.OpenProducer(options);
  PublishMany(w, p, 60);
  w.time.RunFor(Duration::Seconds(1));
  // Chunk 3 of the data and chunk 2 of the index hold something else, with a good check sum.
  const stream::KeyMaker keys(w.shard);
  for (auto [part, number] : {std::pair{Part::kData, 3}, std::pair{Part::kIndex, 2}}) {
    const cache::Key key = keys.Chunk(1, part, 256, number);
    ASSERT_TRUE(w.data.Get(key).has_value());
    w.data.Evict(key);
    w.data.Apply({key, cache::MergeRule::kLongerWins, false, std::string(256, 'x')});
  }
  auto& c = w.StartConsumer(w.ConsumerOptions());
  EXPECT_DELIVERED(w, c, 60);
  EXPECT_GE(c.agent()->counters().fallback_corrupt, 2);
}

// --- Who owns the shard ---

TEST(Takeover, ASecondProducerOnALiveShardIsRefusedAndToldWhatToDo) {
  OneShard w(20);
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 10);
  auto& second = w.OpenProducer(w.ProducerOptions());
  EXPECT_TRUE(IsFailedPrecondition(*second.opened));
  EXPECT_THAT(second.opened->message(),
              HasSubstr("s/0 has a live producer: it gave signs of life"));
  EXPECT_THAT(second.opened->message(), HasSubstr("--takeover"));
  PublishMany(w, p, 10);
  ASSERT_TRUE(w.time.RunUntil([&] { return w.AllSettled(); }, kLong));
  EXPECT_EQ(w.durable(), 20) << "the first one noticed nothing";
}

TEST(Takeover, AnIdleProducerIsAliveToo) {
  OneShard w(21);
  w.OpenProducer(w.ProducerOptions());
  w.time.RunFor(Duration::Seconds(3600));
  auto& second = w.OpenProducer(w.ProducerOptions());
  EXPECT_TRUE(IsFailedPrecondition(*second.opened)) << *second.opened;
}

TEST(Takeover, AProducerWhoseClockWasSetBackIsAliveToo) {
  OneShard w(26);
  auto& p = w.OpenProducer(w.ProducerOptions());
  w.time.RunFor(Duration::Seconds(10));
  p.process->loop->SetWallOffset(Duration() - Duration::Seconds(3600));
  w.time.RunFor(Duration::Seconds(10));
  auto& second = w.OpenProducer(w.ProducerOptions());
  EXPECT_TRUE(IsFailedPrecondition(*second.opened)) << *second.opened;
  PublishMany(w, p, 50);  // rolls over
  auto& third = w.OpenProducer(w.ProducerOptions());
  EXPECT_TRUE(IsFailedPrecondition(*third.opened)) << *third.opened;
}

TEST(Takeover, AProducerThatCannotOpenItsNextFileGivesSignsOfLife) {
  OneShard w(27);
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 10);
  w.time.RunFor(Duration::Seconds(1));
  const stream::Stem file = p.agent()->current();
  const auto heartbeat = [&] {
    const auto value = w.metadata.Get(stream::KeyMaker(w.shard).MetadataGroup(file.seq));
    return stream::DecodePairMetadata(file.seq, value.value_or("")).heartbeat_us;
  };
  storage::FakeDiskOptions broken;
  broken.open_error_rate = 1;
  w.disk.SetOptions(broken);
  PublishMany(w, p, 50);
  w.time.RunFor(Duration::Seconds(1));
  ASSERT_EQ(p.agent()->state(), ProducerAgent::State::kRecovering);
  const int64_t before = heartbeat();
  w.time.RunFor(Duration::Seconds(10));
  ASSERT_EQ(p.agent()->state(), ProducerAgent::State::kRecovering);
  EXPECT_GE(heartbeat() - before, Duration::Seconds(8).micros());
  w.disk.SetOptions({});
  ASSERT_TRUE(w.time.RunUntil([&] { return w.AllSettled(); }, kLong));
  EXPECT_EQ(w.durable(), 60);
}

// Files can be created there, and nothing appended.
TEST(Delivery, AFullDiskCostsFewFilesAndWhatWaitedIsDurableWhenThereIsRoom) {
  OneShard w(28);
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 10);
  w.time.RunFor(Duration::Seconds(1));
  storage::FakeDiskOptions full;
  full.capacity_bytes = 0;
  w.disk.SetOptions(full);
  const int64_t files = p.agent()->counters().files_opened;
  ASSERT_TRUE(w.Publish(p, 100).ok());
  w.time.RunFor(Duration::Seconds(30));
  EXPECT_LT(p.agent()->counters().files_opened - files, 30);
  EXPECT_GT(p.agent()->counters().files_opened - files, 5) << "it is tried, too";
  w.disk.SetOptions({});
  ASSERT_TRUE(w.time.RunUntil([&] { return w.AllSettled(); }, kLong));
  EXPECT_EQ(w.durable(), 11);
  auto& c = w.StartConsumer(w.ConsumerOptions());
  EXPECT_DELIVERED(w, c, 11);
}

TEST(Takeover, AnUnreachableMetadataCacheIsSaidAndTakeoverGoesOn) {
  OneShard w(22);
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 10);
  w.metadata.SetFaults({.unavailable = true});
  auto& second = w.OpenProducer(w.ProducerOptions());
  EXPECT_TRUE(IsFailedPrecondition(*second.opened));
  EXPECT_THAT(second.opened->message(), HasSubstr("metadata cache can't be read"));
  auto options = w.ProducerOptions();
  options.takeover = true;
  auto& third = w.OpenProducer(options);
  EXPECT_TRUE(third.opened->ok()) << *third.opened;
}

TEST(Takeover, TheFencedProducerStopsAndNothingIsLost) {
  OneShard w(23);
  auto& first = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, first, 50);
  auto options = w.ProducerOptions();
  options.takeover = true;
  auto& second = w.StartProducer(options);
  for (int i = 0; i < 50; ++i) {
    (void)w.Publish(first, 100);
    w.time.RunFor(Duration::Micros(200));
  }
  ASSERT_TRUE(w.time.RunUntil([&] { return second.opened.has_value(); }, kLong));
  ASSERT_TRUE(second.opened->ok()) << *second.opened;
  (void)w.Publish(first, 100);
  PublishMany(w, second, 50);
  ASSERT_TRUE(w.time.RunUntil([&] { return w.AllSettled(); }, kLong));
  EXPECT_EQ(first.agent()->state(), ProducerAgent::State::kStopped);
  EXPECT_THAT(first.agent()->status().message(), HasSubstr("another producer took it over"));
  EXPECT_DELIVERED(w, c, w.durable());
}

TEST(Takeover, AfterACleanCloseTheNextOneNeedNotWait) {
  OneShard w(24);
  const Scope scope;
  auto& first = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, first, 30);
  first.agent()->Close(Duration::Seconds(5), scope.Bind([&](Status s) { first.closed = s; }));
  ASSERT_TRUE(w.time.RunUntil([&] { return first.closed.has_value(); }, kLong));
  EXPECT_TRUE(first.closed->ok());
  EXPECT_TRUE(IsFailedPrecondition(w.Publish(first, 10)));
  const MonotonicTime start = w.time.now();
  auto& second = w.OpenProducer(w.ProducerOptions());
  EXPECT_TRUE(second.opened->ok()) << *second.opened;
  EXPECT_LT((w.time.now() - start).millis(), 200);
  PublishMany(w, second, 30);
  EXPECT_DELIVERED(w, c, 60);
}

TEST(Takeover, AKilledProducersShardOpensAfterItsHeartbeatStood) {
  OneShard w(25);
  auto& first = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, first, 30);
  w.Kill(first);
  const MonotonicTime start = w.time.now();
  auto& second = w.OpenProducer(w.ProducerOptions());
  EXPECT_TRUE(second.opened->ok()) << *second.opened;
  EXPECT_GT((w.time.now() - start).millis(), 2400);
  PublishMany(w, second, 30);
  EXPECT_DELIVERED(w, c, w.durable());
}

TEST(Takeover, WhatTheDeadOneHadNotShadowedIsShadowedByTheNext) {
  OneShard w(26);
  auto& first = w.OpenProducer(w.ProducerOptions());
  w.data.SetFaults({.failed_write = 1});
  w.metadata.SetFaults({.failed_write = 1});
  PublishMany(w, first, 60);
  ASSERT_TRUE(w.time.RunUntil([&] { return w.AllSettled(); }, kLong));
  ASSERT_EQ(w.durable(), 60);
  w.Kill(first);
  w.data.SetFaults({});
  w.metadata.SetFaults({});
  auto& second = w.OpenProducer(w.ProducerOptions());
  ASSERT_TRUE(second.opened->ok()) << *second.opened;
  w.time.RunFor(Duration::Seconds(2));
  const int64_t head = second.agent()->current().seq;
  ASSERT_GT(head, 2);
  const stream::KeyMaker keys(w.shard);
  for (int64_t seq : {head - 1, head - 2}) {
    const auto value = w.metadata.Get(keys.MetadataGroup(seq));
    ASSERT_TRUE(value.has_value());
    const auto metadata = stream::DecodePairMetadata(seq, *value);
    ASSERT_TRUE(metadata.sealed()) << seq;
    EXPECT_EQ(metadata.cache_length[0], *metadata.seal[0]);
    EXPECT_EQ(metadata.cache_length[1], *metadata.seal[1]);
    for (int64_t at = 0; at < *metadata.seal[0]; at += 256) {
      const auto chunk = w.data.Get(keys.Chunk(seq, Part::kData, 256, at / 256));
      ASSERT_TRUE(chunk.has_value());
      EXPECT_EQ(static_cast<int64_t>(chunk->size()),
                std::min<int64_t>(256, *metadata.seal[0] - at));
    }
  }
}

// --- State, limits ---

TEST(ConsumerState, AQuietProducerIsNotAStuckPath) {
  OneShard w(50);
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, p, 10);
  w.time.RunFor(Duration::Seconds(60));
  EXPECT_EQ(c.agent()->state(), ShardState::kQuiet);
  EXPECT_LT((c.process->loop->WallNow() - c.agent()->as_of()).millis(), 3000);
  w.Kill(p);
  w.time.RunFor(Duration::Seconds(60));
  EXPECT_EQ(c.agent()->state(), ShardState::kStuck);
}

TEST(ConsumerState, AnIdlePairCostsLittle) {
  OneShard w(51);
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, p, 10);
  w.time.RunFor(Duration::Seconds(10));
  const uint64_t before = w.time.events_run();
  const int64_t polls = c.agent()->counters().polls;
  w.time.RunFor(Duration::Seconds(100));
  EXPECT_LT(c.agent()->counters().polls - polls, 300)
      << "notifications and time-outs, about two a second";
  EXPECT_LT(w.time.events_run() - before, 5000u);
}

TEST(RateLimit, ABacklogIsReadNoFasterThanTheLimit) {
  OneShard w(52);
  auto options = w.ProducerOptions();
  options.roll_bytes = 1 << 30;
  auto& p = w.OpenProducer(options);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(w.Publish(p, 10000).ok());
  w.time.RunFor(Duration::Seconds(5));
  auto consumer_options = w.ConsumerOptions();
  consumer_options.rate_bytes_per_s = 100000;
  consumer_options.rate_burst_bytes = 50000;
  const MonotonicTime start = w.time.now();
  auto& c = w.StartConsumer(consumer_options);
  EXPECT_DELIVERED(w, c, 100);
  const double took = (w.time.now() - start).seconds();
  EXPECT_GT(took, 9.0);
  EXPECT_LT(took, 11.0);
  EXPECT_GT(c.agent()->counters().rate_limited, 0);
}

TEST(BackPressure, AStalledPrimaryFillsTheBufferAndPublishSaysSo) {
  OneShard w(53);
  auto options = w.ProducerOptions();
  options.buffer_bytes_max = 10000;
  auto& p = w.OpenProducer(options);
  auto& c = w.StartConsumer(w.ConsumerOptions());
  w.disk.Freeze();
  Status status;
  int taken = 0;
  while (status.ok() && taken < 1000) {
    status = w.Publish(p, 100);
    taken += status.ok();
    w.time.RunFor(Duration::Micros(100));
  }
  EXPECT_TRUE(IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("buffer_bytes_max"));
  EXPECT_LE(p.agent()->buffered_bytes(), 10000);
  w.disk.Thaw();
  EXPECT_TRUE(w.time.RunUntil([&] { return w.AllSettled(); }, kLong));
  EXPECT_EQ(w.durable(), taken);
  EXPECT_DELIVERED(w, c, taken);
}

TEST(BackPressure, AMessageOverTheLimitIsRefusedByName) {
  OneShard w(54);
  auto options = w.ProducerOptions();
  options.message_bytes_max = 1000;
  auto& p = w.OpenProducer(options);
  const Status status = w.Publish(p, 1001);
  EXPECT_TRUE(IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("over the limit of 1000 bytes"));
  EXPECT_TRUE(w.Publish(p, 1000).ok());
}

}  // namespace
}  // namespace tailcast::world
