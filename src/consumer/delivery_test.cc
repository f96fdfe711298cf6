// ProducerAgent and ConsumerAgent together, in virtual time: what is acknowledged is delivered, in
// order, once, whatever the caches lose and whoever takes over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/scope.h"
#include "tailcast/consumer/delivery_world.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::consumer {
namespace {

using producer::ProducerAgent;
using stream::Part;
using ::testing::HasSubstr;

constexpr Duration kLong = Duration::Seconds(120);

// Publishes `count` messages of about `size` bytes, `gap` apart.
void PublishMany(DeliveryWorld& w, DeliveryWorld::Producer& p, int count, int64_t size = 100,
                 Duration gap = Duration::Micros(300)) {
  for (int i = 0; i < count; ++i) {
    ASSERT_TRUE(w.Publish(p, size).ok());
    w.time.RunFor(gap);
  }
}

#define EXPECT_DELIVERED(w, c, n)                                                            \
  EXPECT_TRUE(                                                                               \
      (w).time.RunUntil([&] { return static_cast<int64_t>((c).got.size()) >= (n); }, kLong)) \
      << (w).Incomplete(c) << " got " << (c).got.size();                                     \
  EXPECT_EQ((w).Incomplete(c), "")

TEST(Delivery, MessagesArriveInOrderAcrossRollOvers) {
  DeliveryWorld w(1);
  auto& p = w.OpenProducer(w.ProducerOptions());
  ASSERT_TRUE(p.opened->ok()) << *p.opened;
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, p, 300);
  EXPECT_DELIVERED(w, c, 300);
  EXPECT_GT(c.agent->counters().roll_overs, 5);
  EXPECT_GT(c.agent->counters().cache_bytes, 300 * 100);
  EXPECT_EQ(c.agent->counters().primary_bytes, 0) << "the cache had everything";
}

TEST(Delivery, AnIntakeOfManyFilesIsCutIntoThem) {
  DeliveryWorld w(18);
  const Scope scope;
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(w.Publish(p, 300).ok());
  p.agent->Close(Duration::Seconds(5), scope.Bind([&](Status s) { p.closed = s; }));
  ASSERT_TRUE(w.time.RunUntil([&] { return p.closed.has_value(); }, kLong));
  EXPECT_TRUE(p.closed->ok()) << *p.closed;
  EXPECT_EQ(w.durable(), 100);
  EXPECT_EQ(p.agent->counters().files_opened, 10) << "3000 bytes each; none behind the last";
  EXPECT_EQ(p.agent->counters().files_sealed, 10);
  EXPECT_GE(p.agent->counters().flushes, 10);
  EXPECT_DELIVERED(w, c, 100);
  EXPECT_EQ(c.agent->counters().roll_overs, 9);
}

TEST(Delivery, PolledLengthsAreEnough) {
  DeliveryWorld w(2);
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
  DeliveryWorld w(3);
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  for (int64_t size : {10, 20000, 1, 5000, 60000, 4096, 256}) ASSERT_TRUE(w.Publish(p, size).ok());
  EXPECT_DELIVERED(w, c, 7);
}

TEST(Delivery, EmptyMessagesAreMessages) {
  DeliveryWorld w(4);
  auto& p = w.OpenProducer(w.ProducerOptions());
  std::vector<producer::Ack> acks;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(p.agent->Publish("", [&](const producer::Ack& a) { acks.push_back(a); }).ok());
  }
  ASSERT_TRUE(w.time.RunUntil([&] { return acks.size() == 3; }, kLong));
  EXPECT_EQ(acks[2].position.number, 2);
  EXPECT_EQ(acks[2].position.byte, 0);
  auto& c = w.StartConsumer(w.ConsumerOptions());
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == 3; }, kLong));
  EXPECT_EQ(c.broken, "");
}

TEST(Delivery, RawBytesComeBackAsTheyWere) {
  DeliveryWorld w(5);
  auto options = w.ProducerOptions();
  options.message_bytes_max = 500;
  auto& p = w.OpenProducer(options);
  std::string sent;
  int acked = 0;
  for (int i = 0; i < 40; ++i) {
    const std::string piece = w.MakeMessage(0, i, static_cast<int64_t>(w.rng.Below(1500)));
    sent += piece;
    ASSERT_TRUE(p.agent->Append(piece, [&](const producer::Ack&) { ++acked; }).ok());
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
  DeliveryWorld w(10);
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
  EXPECT_EQ(c.agent->counters().cache_bytes, 0);
}

TEST(Delivery, AWipedDataCacheCostsPrimaryReadsOnly) {
  DeliveryWorld w(11);
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 100);
  w.time.RunFor(Duration::Seconds(1));
  w.data.EvictAll();
  auto& c = w.StartConsumer(w.ConsumerOptions());
  EXPECT_DELIVERED(w, c, 100);
  EXPECT_GT(c.agent->counters().fallback_missing_chunk, 0);
  // And goes on from the cache.
  PublishMany(w, p, 200);
  EXPECT_DELIVERED(w, c, 300);
  EXPECT_GT(c.agent->counters().cache_bytes, 100 * 50);
}

TEST(Delivery, AWipedMetadataCacheIsFilledAgainByTheNextHeartbeat) {
  DeliveryWorld w(12);
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, p, 50);
  EXPECT_DELIVERED(w, c, 50);
  w.metadata.EvictAll();
  PublishMany(w, p, 50);
  EXPECT_DELIVERED(w, c, 100);
  w.time.RunFor(Duration::Seconds(3));
  EXPECT_EQ(c.agent->state(), AgentState::kQuiet);
}

TEST(Delivery, ALateCacheIsReadAroundAfterTheTolerableDelay) {  // Algorithm 1, end to end
  DeliveryWorld w(13);
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, p, 20);
  EXPECT_DELIVERED(w, c, 20);
  EXPECT_EQ(c.agent->counters().fallback_delayed, 0);
  w.data.SetFaults({.failed_write = 1});  // the cache layer stands still
  const MonotonicTime start = w.time.now();
  ASSERT_TRUE(w.Publish(p, 100).ok());
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == 21; }, kLong));
  const Duration took = w.time.now() - start;
  EXPECT_GT(took.millis(), 990);
  EXPECT_LT(took.millis(), 1100);
  EXPECT_GT(c.agent->counters().fallback_delayed, 0);
}

TEST(Delivery, ForeignBytesInTheCacheAreReadAgainFromThePrimary) {
  DeliveryWorld w(14);
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
  EXPECT_GE(c.agent->counters().fallback_corrupt, 2);
}

// --- Who owns the shard ---

TEST(Takeover, ASecondProducerOnALiveShardIsRefusedAndToldWhatToDo) {
  DeliveryWorld w(20);
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 10);
  auto& second = w.OpenProducer(w.ProducerOptions());
  EXPECT_TRUE(IsFailedPrecondition(*second.opened));
  EXPECT_THAT(second.opened->message(),
              HasSubstr("s/0 has a live producer: its last sign of life"));
  EXPECT_THAT(second.opened->message(), HasSubstr("--takeover"));
  PublishMany(w, p, 10);
  ASSERT_TRUE(w.time.RunUntil([&] { return w.AllSettled(); }, kLong));
  EXPECT_EQ(w.durable(), 20) << "the first one noticed nothing";
}

TEST(Takeover, AnIdleProducerIsAliveToo) {
  DeliveryWorld w(21);
  w.OpenProducer(w.ProducerOptions());
  w.time.RunFor(Duration::Seconds(3600));
  auto& second = w.OpenProducer(w.ProducerOptions());
  EXPECT_TRUE(IsFailedPrecondition(*second.opened)) << *second.opened;
}

TEST(Takeover, AnUnreachableMetadataCacheIsSaidAndTakeoverGoesOn) {
  DeliveryWorld w(22);
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
  DeliveryWorld w(23);
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
  EXPECT_EQ(first.agent->state(), ProducerAgent::State::kStopped);
  EXPECT_THAT(first.agent->status().message(), HasSubstr("another producer took it over"));
  EXPECT_DELIVERED(w, c, w.durable());
}

TEST(Takeover, AfterACleanCloseTheNextOneNeedNotWait) {
  DeliveryWorld w(24);
  const Scope scope;
  auto& first = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, first, 30);
  first.agent->Close(Duration::Seconds(5), scope.Bind([&](Status s) { first.closed = s; }));
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
  DeliveryWorld w(25);
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
  DeliveryWorld w(26);
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
  const int64_t head = second.agent->current().seq;
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

// --- Where to begin ---

TEST(StartPoint, APositionMeansTheSamePlaceForEverybody) {
  DeliveryWorld w(30);
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& all = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, p, 120);
  EXPECT_DELIVERED(w, all, 120);
  for (int64_t at = 0; at <= 120; at += at % 13 == 0 ? 1 : 6) {
    stream::Position position = *all.agent->position();
    if (at < 120) position = w.published.at({0, at}).position;
    EXPECT_EQ(position.number, at);
    const auto parsed = StartPoint::Parse(position.ToString());
    ASSERT_TRUE(parsed.ok());
    auto& c = w.StartConsumer(w.ConsumerOptions(), *parsed);
    EXPECT_TRUE(w.time.RunUntil(
        [&] { return static_cast<int64_t>(c.got.size()) >= 120 - at && c.agent->position(); },
        kLong));
    EXPECT_EQ(c.broken, "");
    EXPECT_TRUE(std::equal(c.got.begin(), c.got.end(), all.got.begin() + at, all.got.end())) << at;
    EXPECT_EQ(*c.agent->position(), *all.agent->position());
  }
}

TEST(StartPoint, APositionThatIsNotReachedYetIsWaitedFor) {
  DeliveryWorld w(31);
  auto& p = w.OpenProducer(w.ProducerOptions());
  // Where message 100 will begin: another cell has it already.
  int64_t byte = 0;
  for (int64_t i = 0; i < 100; ++i) byte += static_cast<int64_t>(w.MakeMessage(0, i, 100).size());
  auto& c =
      w.StartConsumer(w.ConsumerOptions(), StartPoint::At(stream::Position{77, 0, 100, byte}));
  w.time.RunFor(Duration::Seconds(5));
  PublishMany(w, p, 150);
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == 50; }, kLong))
      << c.got.size() << c.agent->status();
  EXPECT_EQ(c.got[0], w.MakeMessage(0, 100, 100));
}

TEST(StartPoint, PositionsThatAreNoneAreRefused) {
  DeliveryWorld w(32);
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 100);
  w.time.RunFor(Duration::Seconds(1));
  stream::Position good = w.published.at({0, 50}).position;
  for (stream::Position bad : {stream::Position{78, 0, good.number, good.byte},
                               stream::Position{77, 1, good.number, good.byte},
                               stream::Position{77, 0, good.number, good.byte + 1},
                               stream::Position{77, 0, good.number + 1, good.byte},
                               stream::Position{77, 0, 0, 5}, stream::Position{77, 0, 99, 0}}) {
    auto& c = w.StartConsumer(w.ConsumerOptions(), StartPoint::At(bad));
    EXPECT_TRUE(w.time.RunUntil([&] { return c.agent->state() == AgentState::kFailed; }, kLong))
        << bad.ToString();
    EXPECT_TRUE(IsInvalidArgument(c.agent->status())) << c.agent->status();
    EXPECT_EQ(c.got.size(), 0u);
  }
}

TEST(StartPoint, EndIsBehindTheNewestMessage) {
  DeliveryWorld w(33);
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 100);
  w.time.RunFor(Duration::Seconds(1));
  auto& c = w.StartConsumer(w.ConsumerOptions(), StartPoint::End());
  w.time.RunFor(Duration::Seconds(1));
  EXPECT_EQ(c.got.size(), 0u);
  ASSERT_TRUE(c.agent->position().has_value());
  EXPECT_EQ(c.agent->position()->number, 100);
  PublishMany(w, p, 5);
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == 5; }, kLong));
  EXPECT_EQ(c.got[0], w.MakeMessage(0, 100, 100));
}

TEST(StartPoint, TimeIsTheFirstMessageAtOrAfterIt) {
  DeliveryWorld w(34);
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& all = w.StartConsumer(w.ConsumerOptions());
  std::vector<int64_t> times;
  for (int i = 0; i < 100; ++i) {
    times.push_back(p.process->loop->WallNow().micros());
    ASSERT_TRUE(w.Publish(p, 100).ok());
    w.time.RunFor(Duration::Millis(3));
  }
  EXPECT_DELIVERED(w, all, 100);
  for (int from : {0, 1, 17, 50, 98, 99}) {
    for (int64_t before : {int64_t{0}, int64_t{1000}}) {
      auto& c = w.StartConsumer(
          w.ConsumerOptions(),
          StartPoint::At(WallTime::FromMicros(times[static_cast<size_t>(from)] - before)));
      const size_t want = static_cast<size_t>(100 - from);
      EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == want; }, kLong))
          << from << " " << c.got.size() << " " << c.agent->status();
      EXPECT_EQ(c.got[0], w.MakeMessage(0, from, 100));
    }
  }
  auto& later =
      w.StartConsumer(w.ConsumerOptions(), StartPoint::At(WallTime::FromMicros(times.back() + 1)));
  w.time.RunFor(Duration::Seconds(2));
  EXPECT_EQ(later.got.size(), 0u);
  ASSERT_TRUE(later.agent->position().has_value());
  EXPECT_EQ(later.agent->position()->number, 100);
}

TEST(StartPoint, BelowTheFloorIsAnErrorWithTheFirstAvailablePosition) {
  DeliveryWorld w(35);
  const Scope scope;
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 100);
  w.time.RunFor(Duration::Seconds(1));
  const std::string dir = stream::ShardDir(w.shard);
  bool done = false;
  p.process->store->CreateExclusive(
      dir, stream::FloorName(2), stream::FloorName(2),
      scope.Bind([&](Result<std::unique_ptr<storage::AppendFile>> file) { done = file.ok(); }));
  ASSERT_TRUE(w.time.RunUntil([&] { return done; }, kLong));
  auto& old = w.StartConsumer(w.ConsumerOptions(), StartPoint::At(w.published.at({0, 3}).position));
  ASSERT_TRUE(w.time.RunUntil([&] { return old.agent->state() == AgentState::kFailed; }, kLong));
  EXPECT_TRUE(IsOutOfRange(old.agent->status())) << old.agent->status();
  ASSERT_TRUE(old.agent->first_available().has_value());
  EXPECT_THAT(old.agent->status().message(), HasSubstr(old.agent->first_available()->ToString()));
  // From there it goes, and `beginning` is there too.
  auto& c = w.StartConsumer(w.ConsumerOptions(), StartPoint::At(*old.agent->first_available()));
  auto& b = w.StartConsumer(w.ConsumerOptions());
  const auto want = static_cast<size_t>(100 - old.agent->first_available()->number);
  EXPECT_GT(want, 30u);
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == want && b.got.size() == want; }, kLong));
}

TEST(StartPoint, TextsAreParsedOrExplained) {
  EXPECT_EQ(StartPoint::Parse("beginning")->kind, StartPoint::Kind::kBeginning);
  EXPECT_EQ(StartPoint::Parse("end")->kind, StartPoint::Kind::kEnd);
  EXPECT_EQ(StartPoint::Parse("time:1359633600000000")->time.micros(), 1359633600000000);
  EXPECT_EQ(StartPoint::Parse("time:2013-01-31T12:00:00Z")->time.micros(), 1359633600000000);
  for (const char* bad :
       {"", "start", "time:", "time:yesterday", "time:2013-13-31T12:00:00Z", "t1.x"}) {
    EXPECT_TRUE(IsInvalidArgument(StartPoint::Parse(bad).status())) << bad;
  }
}

// --- A cell whose copies race, and broken files ---

// Writes message files by hand, as a downstream writer or a broken disk would.
class HandMade : public ::testing::Test {
 protected:
  HandMade() : w(40), hand(w.time, w.disk, w.data, w.metadata, "hand") {}

  void Write(const stream::Stem& stem, Part part, std::string bytes) {
    bool done = false;
    hand.store->CreateExclusive(stream::ShardDir(w.shard), stream::FileName(stem, part),
                                stream::CreationKey(stem.seq, part),
                                scope.Bind([&](Result<std::unique_ptr<storage::AppendFile>> file) {
                                  ASSERT_TRUE(file.ok());
                                  files.push_back(std::move(*file));
                                  files.back()->AppendAt(
                                      0, std::move(bytes),
                                      scope.Bind([&](storage::AppendResult) { done = true; }));
                                }));
    ASSERT_TRUE(w.time.RunUntil([&] { return done; }, kLong));
  }
  static void AddMessage(const std::string& text, std::string& data, std::string& index) {
    stream::IndexRecord{static_cast<int64_t>(data.size()), static_cast<uint32_t>(text.size()),
                        Crc32c(text), 1000}
        .AppendTo(index);
    data += text;
  }

  DeliveryWorld w;
  TestProcess hand;
  std::vector<std::unique_ptr<storage::AppendFile>> files;
  const Scope scope;
};

TEST_F(HandMade, AHoleIsWaitedForAndNeverSkipped) {
  std::string data, index;
  AddMessage("one", data, index);
  const stream::Stem one{1, 1000, 0, 0}, two{2, 2000, 3, 1}, three{3, 3000, 6, 2};
  Write(one, Part::kData, data);
  Write(one, Part::kIndex, index);
  auto& c = w.StartConsumer(w.ConsumerOptions());
  std::string data3, index3;
  AddMessage("333", data3, index3);
  Write(three, Part::kData, data3);
  Write(three, Part::kIndex, index3);
  w.time.RunFor(Duration::Seconds(30));
  EXPECT_EQ(c.got, std::vector<std::string>{"one"});
  std::string data2, index2;
  AddMessage("two", data2, index2);
  Write(two, Part::kData, data2);
  Write(two, Part::kIndex, index2);
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == 3; }, kLong));
  EXPECT_EQ(c.got, (std::vector<std::string>{"one", "two", "333"}));
}

TEST_F(HandMade, BeginningWaitsForTheFirstFile) {
  std::string data, index;
  AddMessage("two", data, index);
  Write({2, 2000, 3, 1}, Part::kData, data);
  Write({2, 2000, 3, 1}, Part::kIndex, index);
  auto& c = w.StartConsumer(w.ConsumerOptions());
  w.time.RunFor(Duration::Seconds(10));
  EXPECT_EQ(c.got.size(), 0u);
  EXPECT_EQ(c.agent->state(), AgentState::kWaiting);
  data = index = "";
  AddMessage("one", data, index);
  Write({1, 1000, 0, 0}, Part::kData, data);
  Write({1, 1000, 0, 0}, Part::kIndex, index);
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == 2; }, kLong));
}

TEST_F(HandMade, PayloadBeyondTheLastRecordIsNotDelivered) {
  std::string data, index;
  AddMessage("one", data, index);
  Write({1, 1000, 0, 0}, Part::kData, data + "left over");
  Write({1, 1000, 0, 0}, Part::kIndex, index);
  std::string data2, index2;
  AddMessage("two", data2, index2);
  Write({2, 2000, 3, 1}, Part::kData, data2);
  Write({2, 2000, 3, 1}, Part::kIndex, index2 + "part of a rec");
  auto& c = w.StartConsumer(w.ConsumerOptions());
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == 2; }, kLong));
  w.time.RunFor(Duration::Seconds(10));
  EXPECT_EQ(c.got, (std::vector<std::string>{"one", "two"}));
  EXPECT_NE(c.agent->state(), AgentState::kFailed);
}

TEST_F(HandMade, ABrokenPayloadStopsWithItsPlace) {
  std::string data, index;
  for (int i = 0; i < 20; ++i) AddMessage(w.MakeMessage(0, i, 50), data, index);
  data[510] = static_cast<char>(data[510] ^ 1);
  Write({1, 1000, 0, 0}, Part::kData, data);
  Write({1, 1000, 0, 0}, Part::kIndex, index);
  auto& c = w.StartConsumer(w.ConsumerOptions());
  ASSERT_TRUE(w.time.RunUntil([&] { return c.agent->state() == AgentState::kFailed; }, kLong));
  EXPECT_TRUE(IsDataLoss(c.agent->status()));
  EXPECT_THAT(c.agent->status().message(), HasSubstr("payload fails its check sum at byte 500"));
  EXPECT_THAT(c.agent->status().message(), HasSubstr("message 10 of the shard"));
  EXPECT_EQ(c.got.size(), 10u) << "what came before is delivered";
}

TEST_F(HandMade, ABrokenIndexRecordStopsWithItsPlace) {
  std::string data, index;
  for (int i = 0; i < 20; ++i) AddMessage(w.MakeMessage(0, i, 50), data, index);
  index[7 * 32 + 3] = static_cast<char>(index[7 * 32 + 3] ^ 1);
  Write({1, 1000, 0, 0}, Part::kData, data);
  Write({1, 1000, 0, 0}, Part::kIndex, index);
  auto& c = w.StartConsumer(w.ConsumerOptions());
  ASSERT_TRUE(w.time.RunUntil([&] { return c.agent->state() == AgentState::kFailed; }, kLong));
  EXPECT_TRUE(IsDataLoss(c.agent->status()));
  EXPECT_THAT(c.agent->status().message(), HasSubstr("byte 224 of the index file"));
  EXPECT_EQ(c.got.size(), 7u);
}

TEST_F(HandMade, ARecordThatLeavesAGapStopsIt) {
  std::string data, index;
  AddMessage("one", data, index);
  data += "gap";
  AddMessage("two", data, index);
  Write({1, 1000, 0, 0}, Part::kData, data);
  Write({1, 1000, 0, 0}, Part::kIndex, index);
  auto& c = w.StartConsumer(w.ConsumerOptions());
  ASSERT_TRUE(w.time.RunUntil([&] { return c.agent->state() == AgentState::kFailed; }, kLong));
  EXPECT_THAT(c.agent->status().message(), HasSubstr("does not continue the one before it"));
  EXPECT_EQ(c.got.size(), 1u);
}

// --- State, limits ---

TEST(ConsumerState, AQuietProducerIsNotAStuckPath) {
  DeliveryWorld w(50);
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, p, 10);
  w.time.RunFor(Duration::Seconds(60));
  EXPECT_EQ(c.agent->state(), AgentState::kQuiet);
  EXPECT_LT((c.process->loop->WallNow() - c.agent->as_of()).millis(), 3000);
  w.Kill(p);
  w.time.RunFor(Duration::Seconds(60));
  EXPECT_EQ(c.agent->state(), AgentState::kStuck);
}

TEST(ConsumerState, AnIdlePairCostsLittle) {
  DeliveryWorld w(51);
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& c = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, p, 10);
  w.time.RunFor(Duration::Seconds(10));
  const uint64_t before = w.time.events_run();
  const int64_t polls = c.agent->counters().polls;
  w.time.RunFor(Duration::Seconds(100));
  EXPECT_LT(c.agent->counters().polls - polls, 300)
      << "notifications and time-outs, about two a second";
  EXPECT_LT(w.time.events_run() - before, 5000u);
}

TEST(RateLimit, ABacklogIsReadNoFasterThanTheLimit) {
  DeliveryWorld w(52);
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
  EXPECT_GT(c.agent->counters().rate_limited, 0);
}

TEST(BackPressure, AStalledPrimaryFillsTheBufferAndPublishSaysSo) {
  DeliveryWorld w(53);
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
  EXPECT_LE(p.agent->buffered_bytes(), 10000);
  w.disk.Thaw();
  EXPECT_TRUE(w.time.RunUntil([&] { return w.AllSettled(); }, kLong));
  EXPECT_EQ(w.durable(), taken);
  EXPECT_DELIVERED(w, c, taken);
}

TEST(BackPressure, AMessageOverTheLimitIsRefusedByName) {
  DeliveryWorld w(54);
  auto options = w.ProducerOptions();
  options.message_bytes_max = 1000;
  auto& p = w.OpenProducer(options);
  const Status status = w.Publish(p, 1001);
  EXPECT_TRUE(IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("over the limit of 1000 bytes"));
  EXPECT_TRUE(w.Publish(p, 1000).ok());
}

// --- Everything at once ---

struct SweepOptions {
  std::string fault;  // a fault point; empty: none
  bool corrupt_cache = false;
};

// One random life of a shard; "" if all is well.
std::string Sweep(uint64_t seed, SweepOptions options = {}) {
  std::optional<PlantedFault> fault;
  if (!options.fault.empty()) fault.emplace(options.fault);
  DeliveryWorld w(seed);
  Rng& rng = w.rng;
  auto producer_options = w.ProducerOptions();
  producer_options.observe = Duration::Millis(600);
  producer_options.heartbeat = Duration::Millis(200);
  producer_options.roll_bytes = rng.Between(200, 6000);
  producer_options.flush_interval = Duration::Micros(rng.Between(0, 20000));
  if (rng.Chance(0.3)) producer_options.shadow.backlog_bytes = rng.Between(600, 3000);
  if (rng.Chance(0.3)) producer_options.roll_age = Duration::Millis(rng.Between(50, 500));
  producer_options.chunk_size = rng.Chance(0.5) ? 256 : 64;
  auto consumer_options = w.ConsumerOptions();
  consumer_options.doorbell = rng.Chance(0.6);
  consumer_options.window_bytes = rng.Between(600, 5000);
  consumer_options.delay_max = Duration::Millis(rng.Between(20, 300));
  consumer_options.primary_poll = Duration::Millis(rng.Between(50, 300));
  consumer_options.doorbell_pause = Duration::Millis(rng.Chance(0.5) ? 0 : rng.Between(1, 10));
  const bool disk_faults = rng.Chance(0.5);
  const bool cache_faults = rng.Chance(0.6);
  const bool kills = rng.Chance(0.6);
  const bool power = rng.Chance(0.3);
  const bool pauses = rng.Chance(0.3);
  if (disk_faults) {
    auto faults = storage::FakeDiskOptions::Swarm(rng);
    faults.capacity_bytes = INT64_MAX;
    w.disk.SetOptions(faults);
  }
  auto* p = &w.StartProducer(producer_options);
  for (int i = 0; i < 2; ++i) w.StartConsumer(consumer_options);
  const auto check = [&](bool all) -> std::string {
    for (auto& c : w.consumers) {
      if (std::string v = w.Violation(*c, all ? 0 : c->checked); !v.empty()) return v;
      c->checked = c->got.size();
    }
    return "";
  };
  for (int step = 0; step < 120; ++step) {
    const int burst = static_cast<int>(rng.Between(0, 8));
    for (int i = 0; i < burst; ++i) {
      (void)w.Publish(*p, rng.Chance(0.05) ? rng.Between(0, 4000) : rng.Between(0, 200));
    }
    w.time.RunFor(Duration::Micros(rng.Between(0, 30000)));
    if (cache_faults && rng.Chance(0.1)) {
      cache::MemoryFaults faults;
      if (rng.Chance(0.5)) faults.miss = rng.Unit() * 0.5;
      if (rng.Chance(0.5)) faults.short_read = rng.Unit() * 0.5;
      if (rng.Chance(0.3)) faults.lost_write = rng.Unit() * 0.5;
      if (rng.Chance(0.3)) faults.failed_write = rng.Unit();
      if (rng.Chance(0.1)) faults.unavailable = true;
      if (rng.Chance(0.3)) faults.refuse_watches = true;
      if (rng.Chance(0.5)) faults.delay = Duration::Micros(rng.Between(0, 5000));
      if (rng.Chance(0.5)) faults.jitter = Duration::Micros(rng.Between(0, 5000));
      (rng.Chance(0.5) ? w.data : w.metadata).SetFaults(faults);
    }
    if (cache_faults && rng.Chance(0.03)) (rng.Chance(0.5) ? w.data : w.metadata).EvictAll();
    if (options.corrupt_cache && rng.Chance(0.2)) {
      const stream::KeyMaker keys(w.shard);
      const cache::Key key = keys.Chunk(std::max<int64_t>(1, p->agent->current().seq), Part::kData,
                                        producer_options.chunk_size, rng.Between(0, 5));
      if (auto value = w.data.Get(key); value && !value->empty()) {
        w.data.Evict(key);
        (*value)[rng.Below(value->size())] ^= 1;
        w.data.Apply({key, cache::MergeRule::kLongerWins, false, *value});
      }
    }
    if (power && rng.Chance(0.03)) w.disk.PowerLoss();
    if (pauses && rng.Chance(0.05)) {
      auto* loop = p->process->loop.get();
      loop->Pause();
      w.time.RunFor(Duration::Millis(rng.Between(1, 2000)));
      loop->Resume();
    }
    if (kills && rng.Chance(0.05)) {
      if (rng.Chance(0.6)) w.Kill(*p);  // else both are alive for a while
      producer_options.takeover = rng.Chance(0.5) || !p->dead;
      p = &w.StartProducer(producer_options);
      w.time.RunFor(Duration::Millis(rng.Between(0, 1500)));
    }
    if (std::string v = check(false); !v.empty()) return v;
  }
  // All heals; a producer that is surely there says a last word.
  w.disk.SetOptions({});
  w.data.SetFaults({});
  w.metadata.SetFaults({});
  if (rng.Chance(0.3)) w.data.EvictAll();
  for (auto& old : w.producers) {
    if (!old->dead) w.Kill(*old);
  }
  producer_options.takeover = true;
  auto& last = w.StartProducer(producer_options);
  if (!w.time.RunUntil([&] { return last.opened.has_value(); }, kLong)) return "the last one hangs";
  if (!last.opened->ok()) return "the last one: " + last.opened->ToString();
  for (int i = 0; i < 20; ++i) {
    if (Status s = w.Publish(last, 50); !s.ok()) return "the last one: " + s.ToString();
    w.time.RunFor(Duration::Millis(5));
  }
  if (!w.time.RunUntil([&] { return w.AllSettled(); }, kLong)) return "messages without outcome";
  // An acknowledged message is on the disk, below a seal or in the open file.
  const auto complete = [&] {
    for (auto& c : w.consumers) {
      if (!w.Incomplete(*c).empty()) return false;
    }
    return w.consumers[0]->got.size() == w.consumers[1]->got.size();
  };
  for (int i = 0; i < 150 && !complete(); ++i) w.time.RunFor(Duration::Millis(200));
  for (auto& c : w.consumers) {
    if (std::string v = w.Incomplete(*c); !v.empty()) return v;
  }
  if (w.consumers[0]->got != w.consumers[1]->got) return "the consumers differ";
  if (w.data.mismatches() > 0 && !options.corrupt_cache) return "contradicting chunks in the cache";
  return check(true);
}

TEST(DeliverySweep, AnyLifeOfAShardIsDeliveredWhole) {
  const char* from_env = std::getenv("TAILCAST_SEEDS");
  const uint64_t seeds = from_env != nullptr ? std::stoull(from_env) : 300;
  const char* first = std::getenv("TAILCAST_FIRST_SEED");
  for (uint64_t seed = first != nullptr ? std::stoull(first) : 1; seed <= seeds; ++seed) {
    if (first != nullptr)
      std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(seed));
    EXPECT_EQ(Sweep(seed), "") << "seed " << seed;
  }
}

TEST(DeliverySweep, ForeignBytesInTheCacheNeverReachTheUser) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    ASSERT_EQ(Sweep(seed, {.corrupt_cache = true}), "") << "seed " << seed;
  }
}

// A checker is trusted only after it has caught planted bugs.
std::string FirstViolation(SweepOptions options, uint64_t seeds = 300) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    if (std::string v = Sweep(seed, options); !v.empty()) return v;
  }
  return "";
}

TEST(PlantedBugs, IndexBeforeDataIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "producer.index_before_data"}), "");
}
TEST(PlantedBugs, AcknowledgementBeforeTheIndexIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "producer.ack_before_index"}), "");
}
TEST(PlantedBugs, ASealOneRecordEarlyIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "producer.seal_one_record_early"}), "");
}
TEST(PlantedBugs, ATakeoverWithoutFenceIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "producer.skip_fence"}), "");
}
TEST(PlantedBugs, ASkippedRecordAtRollOverIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "consumer.skip_record_at_roll_over"}), "");
}
TEST(PlantedBugs, ASkippedPayloadCheckIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "consumer.skip_payload_check", .corrupt_cache = true}), "");
}
TEST(PlantedBugs, MemoryWrittenUnderTheUsersViewsIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "consumer.keep_views_unpinned"}), "");
}
TEST_F(HandMade, ASkippedHoleIsCaught) {
  std::string data, index;
  AddMessage("one", data, index);
  Write({1, 1000, 0, 0}, Part::kData, data);
  Write({1, 1000, 0, 0}, Part::kIndex, index);
  std::string data3, index3;
  AddMessage("333", data3, index3);
  Write({3, 3000, 6, 2}, Part::kData, data3);
  Write({3, 3000, 6, 2}, Part::kIndex, index3);
  stream::PairMetadata metadata;
  metadata.created_us = 1000;
  metadata.chunk_size = 256;
  metadata.seal[0] = 3;
  metadata.seal[1] = 32;
  metadata.primary_length[0] = 3;
  metadata.primary_length[1] = 32;
  w.metadata.Apply({stream::KeyMaker(w.shard).MetadataGroup(1), cache::MergeRule::kMaxLanes, false,
                    stream::EncodePairMetadata(1, metadata)});
  auto options = w.ConsumerOptions();
  const PlantedFault fault("consumer.skip_hole");
  auto& c = w.StartConsumer(options);
  w.time.RunFor(Duration::Seconds(30));
  EXPECT_NE(c.broken, "") << "the oracle must see the gap";
}

}  // namespace
}  // namespace tailcast::consumer
