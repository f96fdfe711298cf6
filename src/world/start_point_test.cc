// Where a consumer begins, and what it does with files that are missing, late or broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/scope.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/world/one_shard.h"

namespace tailcast::world {
namespace {

using ::testing::HasSubstr;

TEST(StartPoint, APositionMeansTheSamePlaceForEverybody) {
  OneShard w(30);
  auto& p = w.OpenProducer(w.ProducerOptions());
  auto& all = w.StartConsumer(w.ConsumerOptions());
  PublishMany(w, p, 120);
  EXPECT_DELIVERED(w, all, 120);
  for (int64_t at = 0; at <= 120; at += at % 13 == 0 ? 1 : 6) {
    stream::Position position = *all.agent()->position();
    if (at < 120) position = w.published.at({0, at}).position;
    EXPECT_EQ(position.number, at);
    const auto parsed = StartPoint::Parse(position.ToString());
    ASSERT_TRUE(parsed.ok());
    auto& c = w.StartConsumer(w.ConsumerOptions(), *parsed);
    EXPECT_TRUE(w.time.RunUntil(
        [&] { return static_cast<int64_t>(c.got.size()) >= 120 - at && c.agent()->position(); },
        kLong));
    EXPECT_EQ(c.broken, "");
    EXPECT_TRUE(std::equal(c.got.begin(), c.got.end(), all.got.begin() + at, all.got.end())) << at;
    EXPECT_EQ(*c.agent()->position(), *all.agent()->position());
  }
}

TEST(StartPoint, APositionThatIsNotReachedYetIsWaitedFor) {
  OneShard w(31);
  auto& p = w.OpenProducer(w.ProducerOptions());
  // Where message 100 will begin: another cell has it already.
  int64_t byte = 0;
  for (int64_t i = 0; i < 100; ++i) {
    byte += static_cast<int64_t>(w.HeadersOf({0, i}).size() + w.MakeMessage(0, i, 100).size());
  }
  auto& c = w.StartConsumer(w.ConsumerOptions(), StartPoint::At(stream::Position{
                                                     stream::StreamIncarnation{77}, 0, 100, byte}));
  w.time.RunFor(Duration::Seconds(5));
  PublishMany(w, p, 150);
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == 50; }, kLong))
      << c.got.size() << c.agent()->status();
  EXPECT_EQ(c.got[0], w.MakeMessage(0, 100, 100));
}

TEST(StartPoint, PositionsThatAreNoneAreRefused) {
  OneShard w(32);
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 100);
  w.time.RunFor(Duration::Seconds(1));
  stream::Position good = w.published.at({0, 50}).position;
  for (stream::Position bad :
       {stream::Position{stream::StreamIncarnation{78}, 0, good.number, good.byte},
        stream::Position{stream::StreamIncarnation{77}, 1, good.number, good.byte},
        stream::Position{stream::StreamIncarnation{77}, 0, good.number, good.byte + 1},
        stream::Position{stream::StreamIncarnation{77}, 0, good.number + 1, good.byte},
        stream::Position{stream::StreamIncarnation{77}, 0, 0, 5},
        stream::Position{stream::StreamIncarnation{77}, 0, 99, 0}}) {
    auto& c = w.StartConsumer(w.ConsumerOptions(), StartPoint::At(bad));
    EXPECT_TRUE(w.time.RunUntil([&] { return c.agent()->state() == ShardState::kFailed; }, kLong))
        << bad.ToString();
    EXPECT_TRUE(IsInvalidArgument(c.agent()->status())) << c.agent()->status();
    EXPECT_EQ(c.got.size(), 0u);
  }
}

TEST(StartPoint, EndIsBehindTheNewestMessage) {
  OneShard w(33);
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 100);
  w.time.RunFor(Duration::Seconds(1));
  auto& c = w.StartConsumer(w.ConsumerOptions(), StartPoint::End());
  w.time.RunFor(Duration::Seconds(1));
  EXPECT_EQ(c.got.size(), 0u);
  ASSERT_TRUE(c.agent()->position().has_value());
  EXPECT_EQ(c.agent()->position()->number, 100);
  PublishMany(w, p, 5);
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == 5; }, kLong));
  EXPECT_EQ(c.got[0], w.MakeMessage(0, 100, 100));
}

TEST(StartPoint, TheEndOfAShardWithoutFilesIsItsFirstMessage) {
  OneShard w(37);
  auto& c = w.StartConsumer(w.ConsumerOptions(), StartPoint::End());
  ASSERT_TRUE(w.time.RunUntil([&] { return c.agent()->position().has_value(); }, kLong));
  EXPECT_EQ(c.agent()->position()->number, 0);
  EXPECT_EQ(c.agent()->state(), ShardState::kWaiting);
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 120, 100, Duration::Micros(10));
  EXPECT_DELIVERED(w, c, 120);
}

TEST(StartPoint, TimeIsTheFirstMessageAtOrAfterIt) {
  OneShard w(34);
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
          << from << " " << c.got.size() << " " << c.agent()->status();
      EXPECT_EQ(c.got[0], w.MakeMessage(0, from, 100));
    }
  }
  auto& later =
      w.StartConsumer(w.ConsumerOptions(), StartPoint::At(WallTime::FromMicros(times.back() + 1)));
  w.time.RunFor(Duration::Seconds(2));
  EXPECT_EQ(later.got.size(), 0u);
  ASSERT_TRUE(later.agent()->position().has_value());
  EXPECT_EQ(later.agent()->position()->number, 100);
}

TEST(StartPoint, BelowTheFloorIsAnErrorWithTheFirstAvailablePosition) {
  OneShard w(35);
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
  ASSERT_TRUE(w.time.RunUntil([&] { return old.agent()->state() == ShardState::kFailed; }, kLong));
  EXPECT_TRUE(IsOutOfRange(old.agent()->status())) << old.agent()->status();
  ASSERT_TRUE(old.agent()->first_available().has_value());
  EXPECT_THAT(old.agent()->status().message(),
              HasSubstr(old.agent()->first_available()->ToString()));
  // From there it goes, and `beginning` is there too.
  auto& c = w.StartConsumer(w.ConsumerOptions(), StartPoint::At(*old.agent()->first_available()));
  auto& b = w.StartConsumer(w.ConsumerOptions());
  const auto want = static_cast<size_t>(100 - old.agent()->first_available()->number);
  EXPECT_GT(want, 30u);
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == want && b.got.size() == want; }, kLong));
}

TEST(StartPoint, TextsAreParsedOrExplained) {
  EXPECT_EQ(StartPoint::Parse("beginning")->kind, StartPoint::Kind::kBeginning);
  EXPECT_EQ(StartPoint::Parse("end")->kind, StartPoint::Kind::kEnd);
  EXPECT_EQ(StartPoint::Parse("time:1359633600000000")->time.micros(), 1359633600000000);
  EXPECT_EQ(StartPoint::Parse("time:2013-01-31T12:00:00Z")->time.micros(), 1359633600000000);
  for (const char* bad : {"", "start", "time:", "time:yesterday", "time:2013-13-31T12:00:00Z",
                          "time:2013-02-30T12:00:00Z", "time:2013-01-31T-1:00:00Z",
                          "time:2013-01-1T12:00: 00Z", "time:1969-12-31T23:59:59Z",
                          "time:-524-02-29T23:59:59Z", "time:2013-01-31T23:59:60Z", "t1.x"}) {
    EXPECT_TRUE(IsInvalidArgument(StartPoint::Parse(bad).status())) << bad;
  }
}

// --- A cell whose copies race, and broken files ---

// Writes message files by hand, as a downstream writer or a broken disk would.
class HandMade : public ::testing::Test {
 protected:
  HandMade() : w(40), hand(w.deployment.Start("cell", "hand", nullptr)) {}

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
  // An empty file, as a floor marker is.
  void Declare(const std::string& name) {
    bool done = false;
    hand.store->CreateExclusive(
        stream::ShardDir(w.shard), name, name,
        scope.Bind([&](Result<std::unique_ptr<storage::AppendFile>> file) { done = file.ok(); }));
    ASSERT_TRUE(w.time.RunUntil([&] { return done; }, kLong));
  }
  void Delete(const std::string& name) {
    bool done = false;
    hand.store->Delete(stream::ShardDir(w.shard), name,
                       scope.Bind([&](const Status& status) { done = status.ok(); }));
    ASSERT_TRUE(w.time.RunUntil([&] { return done; }, kLong));
  }
  // The file is closed and the metadata cache says so.
  void Publish(const stream::Stem& stem, const stream::Seal& seal) {
    stream::PairMetadata metadata;
    metadata.created_us = metadata.heartbeat_us = stem.created_us;
    metadata.start_byte = stem.start_byte;
    metadata.start_number = stem.start_number;
    metadata.chunk_size = 256;
    for (int part = 0; part < stream::kParts; ++part) {
      metadata.seal[part] = metadata.primary_length[part] = seal.length[part];
    }
    w.metadata.Apply({stream::KeyMaker(w.shard).MetadataGroup(stem.seq),
                      cache::MergeRule::kMaxLanes, false,
                      stream::EncodePairMetadata(stem.seq, metadata)});
  }
  // Files 7 and 8, by the value that was published and not by the next listing.
  void NextFileOfAnotherValueIsSeenWithin(Duration limit) {
    const stream::Stem seven{7, 1000, 0, 0}, eight{8, 2000, 3, 1};
    ASSERT_NE(stream::MetadataGroupOf(7), stream::MetadataGroupOf(8));
    Declare(stream::FloorName(7));
    std::string data, index;
    AddMessage("one", data, index);
    Write(seven, Part::kData, data);
    Write(seven, Part::kIndex, index);
    Publish(seven, {{3, stream::kIndexRecordSize}});
    auto& c = w.StartConsumer(w.ConsumerOptions());
    const auto& counters = c.agent()->counters();
    ASSERT_TRUE(w.time.RunUntil([&] { return c.got.size() == 1 && counters.listings > 3; }, kLong));
    Write(eight, Part::kData, data);
    Write(eight, Part::kIndex, index);
    const int64_t listings = counters.listings;
    Publish(eight, {{3, stream::kIndexRecordSize}});
    EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == 2; }, limit));
    EXPECT_EQ(counters.listings, listings);
  }
  static void AddMessage(const std::string& text, std::string& data, std::string& index) {
    stream::IndexRecord{static_cast<int64_t>(data.size()), static_cast<uint32_t>(text.size()),
                        Crc32c(text), 1000}
        .AppendTo(index);
    data += text;
  }

  OneShard w;
  Process& hand;
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
  EXPECT_EQ(c.agent()->state(), ShardState::kWaiting);
  data = index = "";
  AddMessage("one", data, index);
  Write({1, 1000, 0, 0}, Part::kData, data);
  Write({1, 1000, 0, 0}, Part::kIndex, index);
  EXPECT_TRUE(w.time.RunUntil([&] { return c.got.size() == 2; }, kLong));
}

// As a copy that lost its data and not its index, and begins anew.
TEST_F(HandMade, AMessageOfWhichOnlyTheIndexIsThereIsMissed) {
  std::string data, index;
  AddMessage("one", data, index);
  Declare(stream::FileName({1, 1000, 0, 0}, Part::kData));
  Write({1, 1000, 0, 0}, Part::kIndex, index);
  auto& c = w.StartConsumer(w.ConsumerOptions());
  w.time.RunFor(Duration::Seconds(10));
  EXPECT_EQ(c.got.size(), 0u);
  EXPECT_THAT(c.agent()->missing().message(), HasSubstr("its index has more messages"));

  Write({2, 2000, 3, 1}, Part::kData, data);
  Write({2, 2000, 3, 1}, Part::kIndex, index);
  auto& at_end = w.StartConsumer(w.ConsumerOptions(), StartPoint::End());
  ASSERT_TRUE(w.time.RunUntil(
      [&] { return at_end.agent()->position() && at_end.agent()->end_is_known(); }, kLong))
      << at_end.agent()->missing();
  EXPECT_TRUE(at_end.agent()->missing().ok()) << at_end.agent()->missing();
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
  EXPECT_NE(c.agent()->state(), ShardState::kFailed);
}

TEST_F(HandMade, ABrokenPayloadStopsWithItsPlace) {
  std::string data, index;
  for (int i = 0; i < 20; ++i) AddMessage(std::string(50, static_cast<char>('a' + i)), data, index);
  data[510] = static_cast<char>(data[510] ^ 1);
  Write({1, 1000, 0, 0}, Part::kData, data);
  Write({1, 1000, 0, 0}, Part::kIndex, index);
  auto& c = w.StartConsumer(w.ConsumerOptions());
  ASSERT_TRUE(w.time.RunUntil([&] { return c.agent()->state() == ShardState::kFailed; }, kLong));
  EXPECT_TRUE(IsDataLoss(c.agent()->status()));
  EXPECT_THAT(c.agent()->status().message(), HasSubstr("payload fails its check sum at byte 500"));
  EXPECT_THAT(c.agent()->status().message(), HasSubstr("message 10 of the shard"));
  EXPECT_EQ(c.got.size(), 10u) << "what came before is delivered";
}

TEST_F(HandMade, ABrokenIndexRecordStopsWithItsPlace) {
  std::string data, index;
  for (int i = 0; i < 20; ++i) AddMessage(std::string(50, static_cast<char>('a' + i)), data, index);
  char& damaged = index[7 * stream::kIndexRecordSize + 3];
  damaged = static_cast<char>(damaged ^ 1);
  Write({1, 1000, 0, 0}, Part::kData, data);
  Write({1, 1000, 0, 0}, Part::kIndex, index);
  auto& c = w.StartConsumer(w.ConsumerOptions());
  ASSERT_TRUE(w.time.RunUntil([&] { return c.agent()->state() == ShardState::kFailed; }, kLong));
  EXPECT_TRUE(IsDataLoss(c.agent()->status()));
  EXPECT_THAT(c.agent()->status().message(), HasSubstr("byte 224 of the index file"));
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
  ASSERT_TRUE(w.time.RunUntil([&] { return c.agent()->state() == ShardState::kFailed; }, kLong));
  EXPECT_THAT(c.agent()->status().message(), HasSubstr("does not continue the one before it"));
  EXPECT_EQ(c.got.size(), 1u);
}

TEST_F(HandMade, ASealedFileThatIsDeletedWhileItIsReadIsOutOfRangeWithWhereToGoOn) {
  auto producing = w.ProducerOptions();
  producing.roll_bytes = 30'000;
  auto& p = w.OpenProducer(producing);
  const stream::Stem one = p.agent()->current();
  auto reading = w.ConsumerOptions();
  reading.rate_bytes_per_s = reading.rate_burst_bytes = 4096;
  auto& c = w.StartConsumer(reading);
  PublishMany(w, p, 400);
  const stream::Stem two = p.agent()->current();
  ASSERT_EQ(two.seq, 2);
  ASSERT_TRUE(w.time.RunUntil([&] { return c.got.size() >= 40; }, kLong));
  ASSERT_EQ(c.agent()->counters().primary_bytes, 0) << "the file is open nowhere";
  Declare(stream::FloorName(2));
  for (Part part : {Part::kData, Part::kIndex}) Delete(stream::FileName(one, part));
  w.time.RunFor(Duration::Seconds(1));
  EXPECT_NE(c.agent()->state(), ShardState::kFailed) << "the cache has it still";
  w.data.EvictAll();
  EXPECT_TRUE(w.time.RunUntil([&] { return c.agent()->state() == ShardState::kFailed; }, kLong))
      << c.agent()->DebugString();
  EXPECT_EQ(c.broken, "");
  EXPECT_LT(static_cast<int64_t>(c.got.size()), two.start_number);
  EXPECT_TRUE(IsOutOfRange(c.agent()->status())) << c.agent()->status();
  ASSERT_TRUE(c.agent()->first_available().has_value());
  EXPECT_EQ(*c.agent()->first_available(),
            (stream::Position{w.shard.stream.incarnation, 0, two.start_number, two.start_byte}));
  EXPECT_THAT(c.agent()->status().message(), HasSubstr(c.agent()->first_available()->ToString()));
}

// Eight pairs share a value of the metadata cache: the doorbell watches that of the next file, too.
TEST_F(HandMade, ANextFileWhoseMetadataIsInAnotherValueIsSeenAtOnce) {
  NextFileOfAnotherValueIsSeenWithin(Duration::Millis(50));
}

TEST_F(HandMade, ANextFileIsSeenWithThePollsWhileNobodyCanWatchItsValue) {
  w.metadata.SetFaults({.refuse_watches_of = stream::KeyMaker(w.shard).MetadataGroup(8)});
  NextFileOfAnotherValueIsSeenWithin(w.ConsumerOptions().poll + Duration::Millis(50));
}

TEST_F(HandMade, ASeekThatMeetsABrokenRecordInTheCacheGoesOnInThePrimaryLayer) {
  auto& p = w.OpenProducer(w.ProducerOptions());
  PublishMany(w, p, 5);
  w.time.RunFor(Duration::Seconds(1));
  const stream::Stem one = p.agent()->current();
  const cache::Key key = stream::KeyMaker(w.shard).Chunk(one.seq, Part::kIndex, 256, 0);
  std::string chunk = w.data.Get(key).value_or("");
  ASSERT_EQ(chunk.size(), 5u * stream::kIndexRecordSize);
  for (char& c : chunk) c = static_cast<char>(c ^ 1);
  w.data.Evict(key);
  w.data.Apply({key, cache::MergeRule::kLongerWins, false, chunk});
  auto& c = w.StartConsumer(w.ConsumerOptions(), StartPoint::End());
  EXPECT_TRUE(w.time.RunUntil([&] { return c.agent()->position().has_value(); }, kLong))
      << c.agent()->status();
  EXPECT_EQ(c.agent()->position()->number, 5);
  EXPECT_GE(c.agent()->counters().fallback_corrupt, 1);
}

// A checker is trusted only after it has caught planted bugs.
TEST_F(HandMade, ASkippedHoleIsCaught) {
  std::string data, index;
  AddMessage("one", data, index);
  Write({1, 1000, 0, 0}, Part::kData, data);
  Write({1, 1000, 0, 0}, Part::kIndex, index);
  std::string data3, index3;
  AddMessage("333", data3, index3);
  Write({3, 3000, 6, 2}, Part::kData, data3);
  Write({3, 3000, 6, 2}, Part::kIndex, index3);
  Publish({1, 1000, 0, 0}, {{3, stream::kIndexRecordSize}});
  auto options = w.ConsumerOptions();
  const PlantedFault fault("consumer.skip_hole");
  auto& c = w.StartConsumer(options);
  w.time.RunFor(Duration::Seconds(30));
  EXPECT_NE(c.broken, "") << "the oracle must see the gap";
}

}  // namespace
}  // namespace tailcast::world
