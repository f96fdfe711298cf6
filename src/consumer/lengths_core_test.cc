#include "tailcast/consumer/lengths_core.h"

#include <gtest/gtest.h>

namespace tailcast::consumer {
namespace {

using stream::PairMetadata;
using stream::Part;
using stream::Stem;

MonotonicTime Ms(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }
WallTime WallMs(int64_t ms) { return WallTime::FromMicros(1'000'000'000'000 + ms * 1000); }

class LengthsTest : public ::testing::Test {
 protected:
  LengthsTest() {
    options_.poll = Duration::Millis(100);
    options_.primary_poll = Duration::Seconds(1);
    options_.delay_max = Duration::Millis(300);
    options_.stuck_after = Duration::Seconds(5);
    options_.chunk_size = 4096;
  }
  LengthsCore& Open(const PairMetadata& known = {}) {
    heartbeats_ = HeartbeatAge();
    core_.emplace(options_, counters_, heartbeats_, stem_, known, Ms(0));
    return *core_;
  }
  LengthsCore::Work At(int64_t ms) { return core_->DoWork(Ms(ms)); }
  // The pair with these lengths, of data and of the index, in both layers.
  PairMetadata Pair(int64_t cache, int64_t primary) const {
    PairMetadata pair;
    pair.created_us = stem_.created_us;
    pair.start_byte = stem_.start_byte;
    pair.start_number = stem_.start_number;
    pair.chunk_size = 512;
    pair.heartbeat_us = WallMs(0).micros();
    for (int part = 0; part < stream::kParts; ++part) {
      pair.cache_length[part] = cache;
      pair.primary_length[part] = primary;
    }
    return pair;
  }
  // The same of a closed file of 1024 bytes.
  PairMetadata Closed(int64_t cache, int64_t primary) const {
    PairMetadata pair = Pair(cache, primary);
    for (auto& seal : pair.seal) seal = 1024;
    return pair;
  }
  PairMetadata Next(int64_t start_byte, int64_t start_number) const {
    PairMetadata next;
    next.created_us = stem_.created_us + 1;
    next.start_byte = start_byte;
    next.start_number = start_number;
    return next;
  }
  void OnMetadata(MonotonicTime now, const PairMetadata& pair, const PairMetadata& next,
                  bool complete = true) {
    core_->OnMetadata(now, pair, next, complete);
  }
  // The producer's side goes on saying so: its heartbeat moves.
  void Beat(MonotonicTime now, PairMetadata& pair, int beats) {
    for (int i = 0; i < beats; ++i) {
      ++pair.heartbeat_us;
      OnMetadata(now, pair, PairMetadata());
    }
  }
  // The primary layer was asked for both lengths.
  void OnPrimaryLengths(int64_t length) {
    for (Part part : {Part::kData, Part::kIndex}) core_->OnPrimaryLength(part, length);
  }
  static stream::ShardListing Listing(const std::vector<Stem>& stems, int64_t floor = 1) {
    std::vector<storage::DirEntry> entries;
    for (const Stem& stem : stems) entries.push_back({stream::FileName(stem, Part::kData)});
    if (floor > 1) entries.push_back({stream::FloorName(floor)});
    return *stream::ShardListing::Parse(entries);
  }

  const Stem stem_{4, 1000, 100, 10};
  AgentOptions options_;
  Counters counters_;
  HeartbeatAge heartbeats_;
  std::optional<LengthsCore> core_;
};

TEST_F(LengthsTest, ArePolledAtOnceAndThenAtTheInterval) {
  Open();
  EXPECT_EQ(core_->NextWork(), Ms(0));
  EXPECT_TRUE(At(0).read_metadata);
  EXPECT_EQ(core_->NextWork(), Ms(1000)) << "while a poll is under way none is timed";
  OnMetadata(Ms(3), Pair(1, 1), {});
  EXPECT_FALSE(At(3).read_metadata);
  EXPECT_EQ(core_->NextWork(), Ms(100));
  EXPECT_TRUE(At(100).read_metadata);
}

TEST_F(LengthsTest, APollThatIsDueWhileOneIsUnderWayFollowsItsAnswer) {
  Open();
  EXPECT_TRUE(At(0).read_metadata);
  EXPECT_FALSE(At(150).read_metadata);
  OnMetadata(Ms(160), Pair(1, 1), {});
  EXPECT_TRUE(At(160).read_metadata);
  EXPECT_EQ(counters_.polls, 2);
}

TEST_F(LengthsTest, TheDoorbellTakesThePlaceOfThePolls) {
  options_.doorbell = true;
  options_.doorbell_pause = Duration::Millis(5);
  Open();
  EXPECT_FALSE(At(0).watch) << "lengths are read first";
  OnMetadata(Ms(1), Pair(1, 1), {});
  EXPECT_TRUE(At(1).watch);
  EXPECT_FALSE(At(2).watch);
  EXPECT_EQ(core_->NextWork(), Ms(1000)) << "no poll is timed";
  core_->OnDoorbell(Ms(50), true);
  EXPECT_TRUE(At(50).read_metadata);
  OnMetadata(Ms(51), Pair(2, 2), {});
  EXPECT_TRUE(At(51).watch);
  core_->OnDoorbell(Ms(52), true);
  EXPECT_FALSE(At(52).read_metadata) << "too close to the last one";
  EXPECT_EQ(core_->NextWork(), Ms(55));
  EXPECT_TRUE(At(55).read_metadata);
}

TEST_F(LengthsTest, WhileOneOfTwoValuesCanNotBeWatchedLengthsArePolledBesideTheDoorbell) {
  options_.doorbell = true;
  Open();
  At(0);
  OnMetadata(Ms(1), Pair(1, 1), {});
  ASSERT_TRUE(At(1).watch);
  core_->OnDoorbellHalf(Ms(2));
  EXPECT_EQ(core_->NextWork(), Ms(102));
  LengthsCore::Work work = At(102);
  EXPECT_TRUE(work.read_metadata);
  EXPECT_FALSE(work.watch);
  OnMetadata(Ms(103), Pair(1, 1), {});
  EXPECT_TRUE(At(103).watch) << "what is not watched is tried again";
  EXPECT_EQ(core_->NextWork(), Ms(1000)) << "no poll is timed";
  core_->OnDoorbellHalf(Ms(104));
  core_->OnDoorbell(Ms(110), true);
  EXPECT_TRUE(At(110).read_metadata) << "the one that is watched notifies";
  OnMetadata(Ms(111), Pair(2, 2), {});
  EXPECT_TRUE(At(111).watch);
}

TEST_F(LengthsTest, AFileThatTheCacheDoesNotKnowIsAskedOfThePrimaryLayerAtOnce) {
  for (const bool failed : {false, true}) {
    Open();
    EXPECT_FALSE(At(0).ask_primary) << "the cache first";
    if (failed) {
      core_->OnMetadataFailed(Ms(1));
    } else {
      OnMetadata(Ms(1), {}, {});
    }
    EXPECT_EQ(core_->NextWork(), Ms(1));
    const LengthsCore::Work work = At(1);
    EXPECT_TRUE(work.ask_primary);
    EXPECT_TRUE(work.list) << "where it ends may be known, too";
    EXPECT_FALSE(At(2).ask_primary);
    OnMetadata(Ms(3), {}, {});
    EXPECT_FALSE(At(3).ask_primary) << "once, then as often as it is polled";
  }
}

TEST_F(LengthsTest, TheCacheOfAFileThatWasClosedLongAgoIsNotWaitedFor) {
  for (const int64_t newest : {100, 301}) {  // after its last heartbeat; delay_max is 300
    Open();
    At(0);
    PairMetadata pair = Pair(512, 2048);
    for (auto& seal : pair.seal) seal = 2048;
    heartbeats_.OnSeen(Ms(0), WallMs(newest).micros());
    OnMetadata(Ms(0), pair, {});
    At(0);
    EXPECT_EQ(core_->primary(Part::kData).allowed, newest > 300 ? 2048 : 0);
  }
}

TEST_F(LengthsTest, TheCacheOfAClosedFileOfWhichNoHeartbeatIsKnownIsNotWaitedFor) {
  for (const int64_t primary : {2047, 2048}) {
    Open();
    At(0);
    PairMetadata pair = Pair(512, primary);
    pair.heartbeat_us = 0;
    OnMetadata(Ms(0), pair, Next(stem_.start_byte + 2048, stem_.start_number + 64));
    At(0);
    EXPECT_EQ(core_->seal()->length[0], 2048);
    EXPECT_EQ(core_->primary(Part::kData).allowed, primary == 2048 ? 2048 : 0);
  }
}

TEST_F(LengthsTest, WithAPauseNewsAreFollowedByAPollAndTheDoorbellIsSetWhenThereAreNone) {
  options_.doorbell = true;
  Open();
  At(0);
  OnMetadata(Ms(1), Pair(512, 512), {});
  EXPECT_TRUE(At(1).watch) << "without a pause at once";
  core_->OnDoorbell(Ms(2), true);
  EXPECT_TRUE(At(2).read_metadata);
  core_->SetPause(Duration::Millis(4));
  OnMetadata(Ms(3), Pair(1024, 1024), {});
  EXPECT_FALSE(At(3).watch);
  EXPECT_EQ(core_->NextWork(), Ms(7));
  auto work = At(7);
  EXPECT_TRUE(work.read_metadata);
  EXPECT_FALSE(work.watch);
  OnMetadata(Ms(8), Pair(1024, 1024), {});
  EXPECT_TRUE(At(8).watch);
}

TEST_F(LengthsTest, WithAPauseOneReplicaWillDoAsLongAsBytesCome) {
  options_.doorbell = true;
  Open();
  PairMetadata pair = Pair(512, 512);
  EXPECT_FALSE(At(0).relaxed);
  OnMetadata(Ms(1), pair, {});
  core_->OnDoorbell(Ms(2), true);
  EXPECT_FALSE(At(2).relaxed) << "without a pause never";
  core_->SetPause(Duration::Millis(4));
  OnMetadata(Ms(3), pair = Pair(1024, 1024), {});
  EXPECT_TRUE(At(7).relaxed);
  OnMetadata(Ms(8), pair = Pair(1536, 1024), {}, /*complete=*/false);
  EXPECT_TRUE(At(12).relaxed);
  ++pair.heartbeat_us;
  OnMetadata(Ms(13), pair, {}, /*complete=*/false);
  LengthsCore::Work work = At(17);
  EXPECT_TRUE(work.read_metadata);
  EXPECT_FALSE(work.relaxed) << "no bytes came: another replica may have some";
  OnMetadata(Ms(18), pair = Pair(2048, 2048), {});
  EXPECT_TRUE(At(22).relaxed);
  core_->OnMetadataFailed(Ms(23));
  EXPECT_FALSE(At(72).relaxed) << "nobody answered";
}

// A consumer on a machine that is full, of caches that answer a round trip later: in a round that
// is due lengths are not asked for, but what comes next.
class ReadingAheadTest : public LengthsTest {
 protected:
  void Begin(Duration pause = Duration::Millis(4)) {
    options_.doorbell = true;
    Open();
    core_->SetPause(pause);
    core_->SetRoundTrips(true);
    At(0);
    EXPECT_EQ(core_->cache(Part::kData).perhaps, 0);
    OnMetadata(Ms(1), Pair(512, 512), {});
  }
  bool Perhaps() const {
    const bool data = core_->cache(Part::kData).perhaps == INT64_MAX;
    EXPECT_EQ(core_->cache(Part::kIndex).perhaps, data ? INT64_MAX : 0);
    EXPECT_EQ(core_->primary(Part::kData).perhaps, 0);
    return data;
  }
  // The reader comes from a file that was closed with 1024 bytes of each part, at 6 ms. What is
  // known of the one that it reads.
  PairMetadata BeginBehindAClosedFile() {
    Begin();
    At(5);
    PairMetadata pair = Next(stem_.start_byte + 1024, stem_.start_number + 10);
    pair.chunk_size = 512;
    pair.heartbeat_us = WallMs(0).micros();
    OnMetadata(Ms(6), Closed(1024, 1024), pair);
    const LengthsCore before = *core_;
    core_.emplace(options_, counters_, heartbeats_, *before.next(), pair, Ms(6));
    core_->SetPause(Duration::Millis(4));
    core_->Follow(Ms(6), before);
    return pair;
  }
  // The same of both parts; 0: nothing came.
  void Answer(int64_t ms, int64_t end, bool ready = true) {
    core_->OnAhead(Ms(ms), core_->ahead_round(), Part::kIndex, end, false, ready);
    core_->OnAhead(Ms(ms), core_->ahead_round(), Part::kData, end, false, ready);
  }
};

TEST_F(ReadingAheadTest, TakesThePlaceOfLengthsAsLongAsBytesCome) {
  Begin();
  EXPECT_FALSE(Perhaps());
  LengthsCore::Work work = At(5);
  EXPECT_FALSE(work.read_metadata);
  EXPECT_TRUE(Perhaps());
  Answer(6, 700);
  EXPECT_FALSE(Perhaps());
  EXPECT_EQ(core_->cache(Part::kData).known, 700) << "it was seen to have them";
  EXPECT_EQ(core_->known_end(Part::kIndex), 700);
  EXPECT_EQ(core_->NextWork(), Ms(10));
  EXPECT_FALSE(At(10).read_metadata);
  EXPECT_TRUE(Perhaps());
  Answer(11, 0);
  EXPECT_EQ(core_->NextWork(), Ms(11)) << "in vain: what do lengths say?";
  work = At(11);
  EXPECT_TRUE(work.read_metadata);
  EXPECT_TRUE(work.relaxed);
  EXPECT_FALSE(Perhaps());
  OnMetadata(Ms(12), Pair(700, 700), {});
  EXPECT_TRUE(core_->cache(Part::kData).known == 700);
  EXPECT_EQ(core_->NextWork(), Ms(16));
  EXPECT_EQ(counters_.rounds_ahead, 2);
  EXPECT_EQ(counters_.polls, 2);
}

TEST_F(ReadingAheadTest, LengthsAreReadBesideItNowAndThen) {
  Begin();
  int64_t end = 512;
  for (int64_t ms = 5; ms < 100; ms += 5) {
    EXPECT_FALSE(At(ms).read_metadata) << ms;
    Answer(ms + 1, ++end);
  }
  const LengthsCore::Work work = At(100);
  EXPECT_TRUE(work.read_metadata);
  EXPECT_TRUE(work.relaxed);
  EXPECT_TRUE(Perhaps()) << "at the same time";
  Answer(101, ++end);
  EXPECT_EQ(core_->NextWork(), Ms(1000)) << "the lengths that are under way say when";
  OnMetadata(Ms(102), Pair(end + 1, end), {});
  EXPECT_EQ(core_->cache(Part::kData).known, end + 1);
  EXPECT_EQ(core_->NextWork(), Ms(106));
}

// A file that ends in the middle of a round: what is in the next one is not left for a pause.
TEST_F(ReadingAheadTest, LengthsAreReadAtOnceWhenLessThanHalfOfTheUsualComes) {
  Begin();
  int64_t end = 512, ms = 5;
  for (; ms < 50; ms += 5) {
    EXPECT_FALSE(At(ms).read_metadata) << ms;
    Answer(ms + 1, end += 100);
    EXPECT_EQ(core_->NextWork(), Ms(ms + 5));
  }
  EXPECT_FALSE(At(ms).read_metadata);
  Answer(ms + 1, end += 60);
  EXPECT_EQ(core_->NextWork(), Ms(ms + 5)) << "rounds differ";
  ms += 5;
  EXPECT_FALSE(At(ms).read_metadata);
  Answer(ms + 1, end += 40);
  EXPECT_EQ(core_->NextWork(), Ms(ms + 1));
  EXPECT_TRUE(At(ms + 1).read_metadata);
  EXPECT_FALSE(Perhaps());
  OnMetadata(Ms(ms + 2), Pair(end, end), {});
  EXPECT_EQ(core_->NextWork(), Ms(ms + 6)) << "it goes on, for all that";
  // A producer that has become slower is asked a few times more.
  int asked = 0;
  for (int i = 0; i < 20; ++i) {
    ms = (core_->NextWork().micros() - Ms(0).micros()) / 1000;
    if (At(ms).read_metadata) {
      OnMetadata(Ms(ms + 1), Pair(end, end), {});
      ++asked;
    } else {
      Answer(ms + 1, end += 30);
    }
  }
  EXPECT_LE(asked, 4);
}

// Files of a shard end at about the same size: who may come to the end, less a chunk, asks for
// bytes and lengths in one round, and not for lengths once the next one was in vain. Also on a
// machine that is full, where most comes in the time until the answer.
TEST_F(ReadingAheadTest, LengthsAreReadBesideTheRoundThatMayComeToTheFilesEnd) {
  for (const int64_t answered_in_ms : {1, 8}) {
    for (const int64_t step : {160, 250}) {  // of bytes of each part in a round
      SCOPED_TRACE(std::to_string(answered_in_ms) + " ms, " + std::to_string(step));
      PairMetadata pair = BeginBehindAClosedFile();
      const int64_t near_end = 1024 - 512 / 2;
      int64_t end = 0, ms = 6 + 4;
      int beside = 0;
      while (end < 1024 + 5 * step) {
        const int64_t begin = end;
        const bool lengths = At(ms).read_metadata;
        EXPECT_TRUE(Perhaps());
        ms += answered_in_ms;
        Answer(ms, end += step);
        if (lengths) {
          for (int64_t& length : pair.cache_length) length = end;
          OnMetadata(Ms(ms), pair, {});
          ++beside;
        }
        EXPECT_TRUE(lengths || begin >= near_end || end < near_end) << begin;
        EXPECT_EQ(core_->NextWork(), Ms(ms + 4));
        ms += 4;
      }
      EXPECT_LE(beside, 2) << "it is longer than the one before, and goes on as ever";
    }
  }
}

TEST_F(ReadingAheadTest, LengthsAreReadAtOnceWhenMoreThanTheUsualCameToWhereTheFileMayEnd) {
  BeginBehindAClosedFile();
  for (int64_t ms = 10; ms < 30; ms += 5) {
    EXPECT_FALSE(At(ms).read_metadata) << "10 bytes are expected";
    Answer(ms + 1, ms < 25 ? ms * 2 : 1000);
  }
  EXPECT_EQ(core_->NextWork(), Ms(26));
  EXPECT_TRUE(At(26).read_metadata);
}

TEST_F(ReadingAheadTest, ARoundThatIsNotAnsweredHoldsUpLengthsNoLongerThanAReadMayTake) {
  Begin();
  EXPECT_FALSE(At(5).read_metadata);
  EXPECT_FALSE(At(200).read_metadata) << "as long as it may take";
  EXPECT_EQ(core_->NextWork(), Ms(5) + options_.cache_timeout);
  EXPECT_TRUE(At(405).read_metadata);
  EXPECT_EQ(core_->NextWork(), Ms(1000)) << "and none is timed while they are under way";
  OnMetadata(Ms(406), Pair(1024, 512), {});
  EXPECT_EQ(core_->NextWork(), Ms(406) + options_.cache_timeout);
  EXPECT_TRUE(At(806).read_metadata) << "no further round before the first one's end";
  EXPECT_EQ(counters_.rounds_ahead, 1);
}

TEST_F(ReadingAheadTest, TheRestOfAFlushFollowsAtOnce) {
  Begin();
  At(5);
  Answer(6, 700, /*ready=*/false);
  EXPECT_EQ(core_->NextWork(), Ms(6) + AheadCore::kUnevenPause);
  EXPECT_FALSE(core_->DoWork(core_->NextWork()).read_metadata);
  EXPECT_TRUE(Perhaps());
}

// Of a round's bytes and of the lengths beside them, what comes last says when to go on: on a
// machine that is full bytes are answered later than a pause, and lengths would be read meanwhile.
TEST_F(ReadingAheadTest, ARoundThatIsAnsweredAfterItsLengthsIsWaitedFor) {
  Begin();
  int64_t end = 512;
  for (int64_t ms = 5; ms < 100; ms += 5) {
    At(ms);
    Answer(ms + 1, end += 100);
  }
  EXPECT_TRUE(At(100).read_metadata);
  EXPECT_TRUE(Perhaps());
  OnMetadata(Ms(101), Pair(end, end), {});
  EXPECT_TRUE(Perhaps());
  EXPECT_FALSE(At(105).read_metadata);
  EXPECT_FALSE(At(150).read_metadata);
  Answer(150, end += 1000);
  EXPECT_EQ(core_->NextWork(), Ms(154));
  EXPECT_FALSE(At(154).read_metadata);
  EXPECT_TRUE(Perhaps());
  // What nothing came of is followed by lengths, as ever.
  Answer(155, 0);
  EXPECT_TRUE(At(155).read_metadata);
}

// Who is behind reads what is known, and then goes on as ever: in one round after each pause.
TEST_F(ReadingAheadTest, KnownBytesTakeThePlaceOfARound) {
  Begin();
  At(5);
  EXPECT_TRUE(Perhaps());
  core_->OnKnownAsked(Ms(7));
  EXPECT_FALSE(Perhaps());
  Answer(8, 800);
  EXPECT_EQ(core_->cache(Part::kData).known, 800) << "an answer that was under way";
  EXPECT_EQ(core_->NextWork(), Ms(11)) << "a pause after the bytes were asked for";
  EXPECT_FALSE(At(11).read_metadata);
  EXPECT_TRUE(Perhaps());
  // Beside lengths it is they that say when to go on.
  Begin();
  for (int64_t ms = 5; ms < 100; ms += 5) {
    At(ms);
    Answer(ms + 1, 600 + ms);
  }
  EXPECT_TRUE(At(100).read_metadata);
  EXPECT_TRUE(Perhaps());
  core_->OnKnownAsked(Ms(101));
  EXPECT_FALSE(Perhaps());
  EXPECT_EQ(core_->NextWork(), Ms(1000));
  OnMetadata(Ms(102), Pair(1000, 1000), {});
  EXPECT_EQ(core_->NextWork(), Ms(106));
  core_->OnKnownAsked(Ms(103));
  EXPECT_EQ(core_->NextWork(), Ms(106)) << "there is no round";
  // The lengths beside it have been answered.
  Begin();
  for (int64_t ms = 5; ms < 100; ms += 5) {
    At(ms);
    Answer(ms + 1, 600 + ms);
  }
  EXPECT_TRUE(At(100).read_metadata);
  OnMetadata(Ms(101), Pair(1000, 1000), {});
  EXPECT_TRUE(Perhaps());
  core_->OnKnownAsked(Ms(102));
  EXPECT_FALSE(Perhaps());
  EXPECT_EQ(core_->NextWork(), Ms(106));
}

TEST_F(ReadingAheadTest, IsOfNoUse) {
  // Where answers come inside the call.
  Begin();
  core_->SetRoundTrips(false);
  EXPECT_TRUE(At(5).read_metadata);
  EXPECT_FALSE(Perhaps());
  // While there is time for the doorbell.
  Begin(Duration());
  EXPECT_TRUE(At(1).watch);
  core_->OnDoorbell(Ms(2), true);
  EXPECT_TRUE(At(2).read_metadata);
  EXPECT_FALSE(Perhaps());
  // At the file's end.
  Begin();
  At(5);
  EXPECT_TRUE(Perhaps());
  Answer(6, 600);
  At(10);
  EXPECT_TRUE(Perhaps());
  OnMetadata(Ms(11), Closed(1024, 1024), {});
  EXPECT_FALSE(Perhaps());
  Answer(12, 1100);
  EXPECT_EQ(core_->cache(Part::kData).known, 1024);
  EXPECT_TRUE(At(15).read_metadata);
  EXPECT_FALSE(Perhaps());
  // Without the low-latency profile.
  options_.doorbell = false;
  Open();
  core_->SetPause(Duration::Millis(4));
  core_->SetRoundTrips(true);
  At(0);
  OnMetadata(Ms(1), Pair(512, 512), {});
  EXPECT_TRUE(At(100).read_metadata);
  EXPECT_FALSE(Perhaps());
}

TEST_F(ReadingAheadTest, GoesOnInTheNextFileIfThatIsTheOneThatIsWritten) {
  for (const auto& [closed, empty] : {std::pair(false, false), {false, true}, {true, false}}) {
    Begin();
    At(5);
    Answer(6, 1024);
    PairMetadata next = Next(stem_.start_byte + 1024, stem_.start_number + 10);
    next.chunk_size = 512;
    next.heartbeat_us = WallMs(0).micros();
    if (closed) next.seal[0] = next.seal[1] = 2048;
    if (!empty) next.cache_length[0] = next.cache_length[1] = 64;
    At(10);
    Answer(11, 0);
    At(11);
    OnMetadata(Ms(12), Closed(1024, 1024), next);
    LengthsCore following(options_, counters_, heartbeats_, *core_->next(), core_->next_metadata(),
                          Ms(13));
    following.SetPause(Duration::Millis(4));
    following.Follow(Ms(13), *core_);
    EXPECT_EQ(following.DoWork(Ms(13)).read_metadata, closed) << "its lengths are known";
    EXPECT_EQ(following.cache(Part::kData).perhaps, closed || empty ? 0 : INT64_MAX);
    EXPECT_TRUE(!empty || following.NextWork() == Ms(17));
  }
}

TEST_F(LengthsTest, NotificationsWithoutNewsAreFollowedOnceAMillisecondOnly) {
  options_.doorbell = true;
  Open();
  (void)At(0);
  OnMetadata(Ms(0), Pair(1, 1), {});
  (void)At(0);
  core_->OnDoorbell(Ms(0), true);
  EXPECT_TRUE(At(0).read_metadata) << "the last poll had news";
  OnMetadata(Ms(0), Pair(1, 1), {});
  (void)At(0);
  core_->OnDoorbell(Ms(0), true);
  EXPECT_FALSE(At(0).read_metadata);
  EXPECT_EQ(core_->NextWork(), Ms(1));
}

// Its value changes with every flush of a later file, and a crowd that is behind would read lengths
// all the time in place of bytes.
TEST_F(LengthsTest, TheDoorbellOfAClosedFileIsNotSetAgainOnceBothLayersHaveItWhole) {
  options_.doorbell = true;
  Open();
  (void)At(0);
  OnMetadata(Ms(1), Closed(512, 512), Next(1124, 20));
  EXPECT_TRUE(At(1).watch) << "bytes are to come";
  core_->OnDoorbell(Ms(2), true);
  EXPECT_TRUE(At(2).read_metadata);
  OnMetadata(Ms(3), Closed(1024, 1024), {});
  EXPECT_FALSE(At(3).watch);
  EXPECT_FALSE(At(999).read_metadata);
  (void)At(1000);
  EXPECT_TRUE(At(1003).read_metadata) << "the producer's heartbeat is looked for";
  OnMetadata(Ms(1004), Closed(1024, 1024), {});
  EXPECT_FALSE(At(1004).watch) << "nor after an answer without news";
}

TEST_F(LengthsTest, TheDoorbellOfAClosedFileIsSetWhileALayerHasNotAllOfIt) {
  options_.doorbell = true;
  for (int part = 0; part < stream::kParts; ++part) {
    for (int64_t(PairMetadata::*length)[stream::kParts] :
         {&PairMetadata::cache_length, &PairMetadata::primary_length}) {
      Open();
      (void)At(0);
      PairMetadata pair = Closed(1024, 1024);
      (pair.*length)[part] = 1023;
      OnMetadata(Ms(1), pair, Next(1124, 20));
      EXPECT_TRUE(At(1).watch) << part;
    }
  }
}

TEST_F(LengthsTest, PollsOfAClosedFileThatBothLayersHaveAreSeldomWithoutADoorbellToo) {
  Open();
  (void)At(0);
  OnMetadata(Ms(1), Closed(1024, 1024), Next(1124, 20));
  EXPECT_FALSE(At(100).read_metadata);
  EXPECT_TRUE(At(1001).read_metadata);
}

TEST_F(LengthsTest, TheDoorbellOfAClosedFileIsSetUntilTheNextOneIsKnown) {
  options_.doorbell = true;
  Open();
  (void)At(0);
  OnMetadata(Ms(1), Closed(1024, 1024), {});
  EXPECT_TRUE(At(1).watch);
}

TEST_F(LengthsTest, WhereNobodyCanWatchOrLengthsCannotBeReadPollsGoOn) {
  options_.doorbell = true;
  Open();
  (void)At(0);
  core_->OnMetadataFailed(Ms(10));
  EXPECT_FALSE(At(10).watch) << "it would notify at once, again and again";
  EXPECT_EQ(core_->NextWork(), Ms(100));
  EXPECT_TRUE(At(100).read_metadata);
  OnMetadata(Ms(101), Pair(1, 1), {});
  EXPECT_TRUE(At(101).watch);
  core_->OnDoorbell(Ms(102), false);
  (void)At(102);
  EXPECT_EQ(core_->NextWork(), Ms(202));
  EXPECT_EQ(counters_.refused_watches, 1);
  EXPECT_EQ(counters_.poll_failures, 1);
}

TEST_F(LengthsTest, DoNotFallAndDoNotPassTheSeal) {
  Open();
  (void)At(0);
  OnMetadata(Ms(1), Pair(64, 96), {});
  OnMetadata(Ms(2), Pair(32, 32), Next(150, 12));
  (void)At(2);
  ASSERT_TRUE(core_->seal().has_value()) << "where the next file begins";
  EXPECT_EQ(core_->seal()->length[0], 50);
  EXPECT_EQ(core_->seal()->length[1], 2 * 32);
  EXPECT_EQ(core_->cache(Part::kData).known, 50);
  EXPECT_EQ(core_->cache(Part::kIndex).known, 64);
  EXPECT_EQ(core_->primary(Part::kIndex).known, 64);
  EXPECT_EQ(core_->next()->start_byte, 150);
}

TEST_F(LengthsTest, MetadataOfAnotherFileIsNotBelieved) {
  Open();
  PairMetadata foreign = Pair(100, 100);
  foreign.start_byte = 7;
  OnMetadata(Ms(1), foreign, Next(150, 12));
  (void)At(1);
  EXPECT_FALSE(core_->metadata_known());
  EXPECT_EQ(core_->cache(Part::kData).known, 0);
  EXPECT_FALSE(core_->next().has_value());
  EXPECT_EQ(counters_.metadata_unknown, 1);
}

TEST_F(LengthsTest, TheCacheIsUnknownUntilTheChunkSizeIs) {
  Open();
  EXPECT_EQ(core_->chunk_size(), 4096) << "the options'";
  PairMetadata pair = Pair(100, 100);
  pair.chunk_size = 0;
  OnMetadata(Ms(1), pair, {});
  (void)At(1);
  EXPECT_EQ(core_->cache(Part::kData).allowed, 0);
  EXPECT_EQ(core_->primary(Part::kData).allowed, 100) << "nothing to wait for";
  OnMetadata(Ms(2), Pair(100, 100), {});
  EXPECT_EQ(core_->chunk_size(), 512);
  EXPECT_EQ(core_->cache(Part::kData).allowed, 100);
}

TEST_F(LengthsTest, ThePrimaryIsAllowedWhenTheCacheIsLate) {  // Algorithm 1
  Open(Pair(100, 100));
  (void)At(0);
  OnMetadata(Ms(1), Pair(100, 200), {});
  (void)At(1);
  EXPECT_EQ(core_->primary(Part::kData).known, 200);
  EXPECT_EQ(core_->primary(Part::kData).allowed, 0);
  EXPECT_LE(core_->NextWork(), Ms(302));
  (void)At(302);
  EXPECT_EQ(core_->primary(Part::kData).allowed, 200);
}

TEST_F(LengthsTest, ThePrimaryIsAllowedAtOnceWhenNobodyKnowsTheCache) {
  Open(Pair(100, 100));
  (void)At(0);
  EXPECT_TRUE(core_->OnPrimaryLength(Part::kData, 300));
  EXPECT_FALSE(core_->OnPrimaryLength(Part::kData, 300));
  EXPECT_EQ(core_->primary(Part::kData).allowed, 0) << "the metadata cache was not heard yet";
  core_->OnMetadataFailed(Ms(10));
  (void)At(10);
  EXPECT_EQ(core_->primary(Part::kData).allowed, 300);
}

TEST_F(LengthsTest, ThePrimaryIsAskedUnlessBytesComeInOrAllAreThere) {
  Open();
  (void)At(0);
  OnMetadata(Ms(1), Pair(100, 100), {});
  core_->OnProgress(Ms(900));
  EXPECT_FALSE(At(1000).ask_primary) << "bytes come in";
  EXPECT_TRUE(At(2000).ask_primary);
  PairMetadata sealed = Pair(100, 100);
  sealed.seal[0] = sealed.seal[1] = 100;
  OnMetadata(Ms(2001), sealed, {});
  EXPECT_FALSE(At(3000).ask_primary) << "all that will ever be there is known";
}

TEST_F(LengthsTest, AProducerThatSaysNothingMayHaveGoneOnInAnotherFile) {
  Open();
  (void)At(0);
  PairMetadata pair = Pair(100, 100);
  OnMetadata(Ms(1), pair, {});
  Beat(Ms(2), pair, 2);
  EXPECT_FALSE(At(4000).list);
  EXPECT_TRUE(At(6000).list) << "the heartbeat is old";
  EXPECT_FALSE(At(7000).list) << "one listing at a time";
  core_->OnListingFailed();
  EXPECT_TRUE(At(8000).list);
}

TEST_F(LengthsTest, TheNextFileIsLookedForWhileItIsWaitedFor) {
  Open();
  EXPECT_FALSE(At(0).list);
  core_->WaitForNext(true);
  EXPECT_TRUE(At(1).list);
  EXPECT_EQ(core_->OnListing(Listing({stem_})), LengthsCore::NextFile::kNotYet);
  EXPECT_FALSE(At(900).list);
  EXPECT_TRUE(At(1001).list);
  EXPECT_EQ(core_->OnListing(Listing({stem_, {6, 3000, 200, 20}})), LengthsCore::NextFile::kHole);
  EXPECT_EQ(counters_.hole_waits, 1);
  EXPECT_FALSE(core_->next().has_value());
  EXPECT_EQ(core_->OnListing(Listing({stem_, {5, 2000, 150, 12}})), LengthsCore::NextFile::kFound);
  EXPECT_EQ(core_->next()->seq, 5);
}

// Whoever ends because nothing comes must know that this is not all.
TEST_F(LengthsTest, WhatWasWrittenAndIsNotHereIsMissed) {
  Open(Pair(0, 0));
  OnPrimaryLengths(0);
  core_->OnListing(Listing({stem_}));
  EXPECT_TRUE(core_->Missing().ok()) << "an open file may have nothing yet";
  core_->OnListing(Listing({stem_, {6, 3000, 200, 20}}));
  EXPECT_EQ(core_->Missing().code(), StatusCode::kUnavailable);
  EXPECT_NE(core_->Missing().message().find("file 5 is not in this cell"), std::string::npos);
  // 1000 bytes and 50 records of this file follow from the next one's name.
  core_->OnListing(Listing({stem_, {5, 2000, 1100, 60}}));
  ASSERT_TRUE(core_->seal().has_value());
  EXPECT_NE(core_->Missing().message().find(stream::FileName(stem_, Part::kData)),
            std::string::npos)
      << core_->Missing();
  core_->OnPrimaryLength(Part::kData, 1000);
  EXPECT_NE(core_->Missing().message().find(stream::FileName(stem_, Part::kIndex)),
            std::string::npos)
      << core_->Missing();
  core_->OnPrimaryLength(Part::kIndex, core_->seal()->length[1]);
  EXPECT_TRUE(core_->Missing().ok());
}

// A copy that was set aside begins anew with nothing, its seal not known, while later files are
// there.
TEST_F(LengthsTest, WhoKnowsOfALaterFileMissesWhatIsBeforeIt) {
  Open(Pair(0, 0));
  core_->OnLater({6, 3000, 1200, 70});
  EXPECT_NE(core_->Missing().message().find("file 5 is not in this cell"), std::string::npos);
  Open(Pair(0, 0));
  core_->OnLater({5, 2000, 1100, 60});
  EXPECT_NE(core_->Missing().message().find("ends at byte 1000"), std::string::npos)
      << core_->Missing();
  OnMetadata(Ms(1), Pair(0, 0), PairMetadata());
  EXPECT_EQ(core_->Missing().code(), StatusCode::kUnavailable) << "its heartbeat says no more";
  core_->OnPrimaryLength(Part::kData, 1000);
  core_->OnPrimaryLength(Part::kIndex, core_->seal()->length[1]);
  EXPECT_TRUE(core_->Missing().ok());
}

TEST_F(LengthsTest, WhoKnowsNothingOfAFileIsAtNoEndBeforeAListingSaysSo) {
  Open();
  EXPECT_FALSE(core_->EndIsKnown()) << "neither cache nor listing";
  core_->OnListingFailed();
  EXPECT_FALSE(core_->EndIsKnown());
  core_->OnListing(Listing({stem_}));
  EXPECT_FALSE(core_->EndIsKnown()) << "nor the file itself";
  OnPrimaryLengths(0);
  EXPECT_TRUE(core_->EndIsKnown());
  core_->OnProgress(Ms(10));
  EXPECT_FALSE(core_->EndIsKnown()) << "that was before these bytes";
  OnPrimaryLengths(20);
  EXPECT_FALSE(core_->EndIsKnown());
  core_->OnListing(Listing({stem_}));
  EXPECT_TRUE(core_->EndIsKnown());
}

TEST_F(LengthsTest, WhatACacheSaysIsTheEndOnlyWhileTheProducersSideIsSeenToWriteToIt) {
  PairMetadata pair = Pair(20, 40);
  Open();
  OnMetadata(Ms(1), pair, PairMetadata());
  EXPECT_FALSE(core_->EndIsKnown()) << "it may be long out of date";
  Beat(Ms(2), pair, 1);
  EXPECT_FALSE(core_->EndIsKnown()) << "two replicas that nobody writes to may differ";
  Beat(Ms(3), pair, 1);
  EXPECT_TRUE(core_->EndIsKnown());
  core_->OnProgress(Ms(3));
  OnMetadata(Ms(4), pair, PairMetadata());
  EXPECT_FALSE(core_->EndIsKnown());
  EXPECT_FALSE(At(2900).list) << "the next heartbeats are waited for";
  const LengthsCore::Work work = At(4000);
  EXPECT_TRUE(work.ask_primary);
  EXPECT_TRUE(work.list);
  OnPrimaryLengths(40);
  core_->OnListing(Listing({stem_}));
  EXPECT_TRUE(core_->EndIsKnown());

  Open();
  pair = Pair(0, 0);
  OnMetadata(Ms(1), pair, PairMetadata());
  Beat(Ms(2), pair, 3);
  EXPECT_FALSE(core_->EndIsKnown()) << "a copy that begins anew has nothing";
}

// Three replicas that nobody writes to any more, each heard alone.
TEST_F(LengthsTest, PartialAnswersWhoseHeartbeatMovesAreNoSignOfLife) {
  constexpr bool kPartial = false, kComplete = true;
  Open();
  PairMetadata pair = Pair(20, 40);
  const auto answer = [&](bool complete) {
    ++pair.heartbeat_us;
    OnMetadata(Ms(1), pair, PairMetadata(), complete);
  };
  for (int replica = 0; replica < 3; ++replica) answer(kPartial);
  EXPECT_FALSE(core_->EndIsKnown());
  for (int i = 0; i < 3; ++i) {
    answer(kComplete);
    answer(kPartial);
  }
  EXPECT_FALSE(core_->EndIsKnown()) << "each comes after one that was partial, or is";
  answer(kComplete);
  answer(kComplete);
  EXPECT_FALSE(core_->EndIsKnown()) << "of complete ones it moved once";
  answer(kComplete);
  EXPECT_TRUE(core_->EndIsKnown());
}

// A copy whose data was lost and that was published without them, while its index was there.
TEST_F(LengthsTest, AnIndexWithoutItsDataIsNoEnd) {
  PairMetadata pair = Pair(0, 0);
  pair.primary_length[static_cast<int>(Part::kIndex)] = 320;
  Open();
  OnMetadata(Ms(1), pair, PairMetadata());
  EXPECT_FALSE(core_->EndIsKnown());
}

TEST_F(LengthsTest, HalfAPairIsMissed) {
  Open();
  core_->OnListing(Listing({stem_}));
  core_->OnAbsent(Part::kIndex);
  EXPECT_TRUE(core_->Missing().ok()) << "nobody has written to it";
  EXPECT_FALSE(core_->EndIsKnown()) << "of the data nobody was asked";
  core_->OnPrimaryLength(Part::kData, 10);
  EXPECT_TRUE(core_->EndIsKnown());
  EXPECT_NE(core_->Missing().message().find(".index is not in this cell"), std::string::npos)
      << core_->Missing();
  core_->OnProgress(Ms(1));
  EXPECT_TRUE(core_->Missing().ok()) << core_->Missing();
}

TEST_F(LengthsTest, AFileThatWasHereAndIsGoneIsMissed) {
  Open();
  OnPrimaryLengths(10);
  core_->OnAbsent(Part::kData);
  EXPECT_NE(core_->Missing().message().find(".data was in this cell and is gone"),
            std::string::npos)
      << core_->Missing();
  PairMetadata pair = Pair(10, 10);
  OnMetadata(Ms(1), pair, PairMetadata());
  Beat(Ms(2), pair, 1);
  EXPECT_FALSE(core_->Missing().ok());
  Beat(Ms(3), pair, 1);
  EXPECT_TRUE(core_->Missing().ok()) << "the producer's side knows better: " << core_->Missing();
  core_->OnProgress(Ms(4));
  core_->OnAbsent(Part::kData);
  EXPECT_FALSE(core_->Missing().ok());
  OnPrimaryLengths(10);
  EXPECT_TRUE(core_->Missing().ok()) << "it came back: " << core_->Missing();
}

TEST_F(LengthsTest, BehindAFileThatWasClosedAListingSaysWhetherThereIsMore) {
  PairMetadata pair = Pair(20, 20);
  for (auto& seal : pair.seal) seal = 20;
  Open();
  OnMetadata(Ms(1), pair, PairMetadata());
  ASSERT_TRUE(core_->seal().has_value());
  EXPECT_FALSE(core_->EndIsKnown());
  core_->OnListing(Listing({stem_}));
  EXPECT_TRUE(core_->EndIsKnown());
}

TEST_F(LengthsTest, WhatTheListingHasBehindTheNextFileIsKnownInIt) {
  Open(Pair(1000, 50));
  core_->OnListing(Listing({stem_}));
  EXPECT_EQ(core_->later(), std::nullopt);
  core_->OnListing(Listing({stem_, {5, 2000, 1100, 60}}));
  EXPECT_EQ(core_->later(), std::nullopt);
  core_->OnListing(Listing({stem_, {5, 2000, 1100, 60}, {7, 3000, 1200, 70}}));
  EXPECT_EQ(core_->later(), (Stem{7, 3000, 1200, 70}));
}

TEST_F(LengthsTest, AFileThatTheDiskLostIsMissedUnlessTheCacheKnowsItOrItCanBeReadAgain) {
  Open(PairMetadata());
  core_->OnListing(Listing({stem_}));
  OnPrimaryLengths(0);
  EXPECT_TRUE(core_->Missing().ok()) << "an open file may have nothing yet";
  core_->OnPrimaryFailed(Part::kIndex, UnavailableError("later"));
  EXPECT_TRUE(core_->Missing().ok()) << core_->Missing();
  core_->OnPrimaryFailed(Part::kIndex, DataLossError("it was cut"));
  EXPECT_EQ(core_->Missing(), DataLossError("it was cut"));
  core_->OnPrimaryLength(Part::kIndex, 0);
  EXPECT_EQ(core_->Missing().code(), StatusCode::kUnavailable)
      << "a copy that begins anew in its place has nothing, and the file had";
  core_->OnPrimaryLength(Part::kIndex, 40);
  EXPECT_TRUE(core_->Missing().ok()) << core_->Missing();
  core_->OnPrimaryFailed(Part::kData, DataLossError("it was cut"));
  EXPECT_TRUE(IsDataLoss(core_->Missing()));
  core_->OnPrimaryFailed(Part::kData, UnavailableError("later"));
  EXPECT_TRUE(IsDataLoss(core_->Missing())) << "no answer is none";
  PairMetadata pair = Pair(40, 0);
  OnMetadata(Ms(1), pair, PairMetadata());
  EXPECT_TRUE(IsDataLoss(core_->Missing())) << "the cache may lack what was written last";
  Beat(Ms(2), pair, 2);
  EXPECT_TRUE(core_->Missing().ok()) << core_->Missing();
}

TEST_F(LengthsTest, ADamagedFileThatTheCacheHasUpToItsSealIsNotMissed) {
  PairMetadata pair = Pair(20, 20);
  for (auto& seal : pair.seal) seal = 40;
  Open();
  OnMetadata(Ms(1), pair, PairMetadata());
  core_->OnPrimaryFailed(Part::kData, DataLossError("it was cut"));
  EXPECT_EQ(core_->Missing().code(), StatusCode::kUnavailable) << "it ends at 40";
  for (int64_t& length : pair.cache_length) length = 40;
  OnMetadata(Ms(2), pair, PairMetadata());
  EXPECT_TRUE(core_->Missing().ok()) << core_->Missing();
}

TEST_F(LengthsTest, AFileThatRetentionDeletedIsSaid) {
  Open();
  EXPECT_EQ(core_->OnListing(Listing({{5, 2000, 150, 12}}, 5)), LengthsCore::NextFile::kDeleted)
      << "where it ends is not known, and it is gone";
  OnMetadata(Ms(1), Pair(1, 1), Next(150, 12));
  (void)At(1);
  EXPECT_EQ(core_->OnListing(Listing({{5, 2000, 150, 12}}, 5)), LengthsCore::NextFile::kFound);
  EXPECT_EQ(core_->OnListing(Listing({{6, 3000, 200, 20}}, 6)), LengthsCore::NextFile::kDeleted);
}

TEST_F(LengthsTest, ASealedFileThatIsGoneIsLookedForInTheListingUntilBytesArrive) {
  Open();
  (void)At(0);
  OnMetadata(Ms(1), Pair(100, 100), Next(150, 12));
  ASSERT_TRUE(core_->seal().has_value());
  EXPECT_FALSE(At(1000).list);
  core_->OnAbsent(Part::kData);
  EXPECT_TRUE(At(2000).list);
  EXPECT_EQ(core_->OnListing(Listing({{5, 2000, 150, 12}})), LengthsCore::NextFile::kFound)
      << "not here yet";
  EXPECT_TRUE(At(3000).list);
  core_->OnProgress(Ms(3001));
  EXPECT_EQ(core_->OnListing(Listing({{5, 2000, 150, 12}}, 5)), LengthsCore::NextFile::kFound)
      << "the cache has what is read";
  EXPECT_FALSE(At(4000).list);
  core_->OnAbsent(Part::kData);
  EXPECT_TRUE(At(5000).list);
  EXPECT_EQ(core_->OnListing(Listing({{5, 2000, 150, 12}}, 5)), LengthsCore::NextFile::kDeleted);
}

TEST_F(LengthsTest, QuietAndStuckAreToldApartByAHeartbeatThatMoves) {
  Open(Pair(1, 1));
  EXPECT_FALSE(core_->Stuck(Ms(4000)));
  EXPECT_TRUE(core_->Stuck(Ms(6000)));
  PairMetadata alive = Pair(1, 1);
  ++alive.heartbeat_us;
  OnMetadata(Ms(6000), alive, {});
  EXPECT_FALSE(core_->Stuck(Ms(10'000)));
  OnMetadata(Ms(10'000), alive, {});
  EXPECT_TRUE(core_->Stuck(Ms(12'000))) << "it did not move";
}

// The clocks of two hosts are not compared.
TEST_F(LengthsTest, WhatTheClockOfTheProducersHostSaysDoesNotMatter) {
  for (const int64_t ahead_ms : {-3'600'000, 0, 3'600'000}) {
    Open();
    (void)At(0);
    PairMetadata pair = Pair(100, 100);
    pair.heartbeat_us = WallMs(ahead_ms).micros();
    OnMetadata(Ms(1), pair, {});
    Beat(Ms(2), pair, 2);
    EXPECT_FALSE(At(4000).list) << ahead_ms;
    EXPECT_FALSE(core_->Stuck(Ms(4000))) << ahead_ms;
    EXPECT_TRUE(At(6000).list) << ahead_ms << ": it may have gone on in another file";
    EXPECT_TRUE(core_->Stuck(Ms(6000))) << ahead_ms;
  }
}

}  // namespace
}  // namespace tailcast::consumer
