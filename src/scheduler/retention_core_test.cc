#include "tailcast/scheduler/retention_core.h"

#include <algorithm>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/strong.h"

namespace tailcast::scheduler {
namespace {

using stream::ShardId;
using stream::Stem;
using stream::StreamId;
using stream::StreamIncarnation;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr int64_t kSecond = 1000000;

// A source with the cells eu and asia below it, files of 1,000 bytes and no messages, one closed
// each second; what the core wants written is durable at once.
class RetentionCoreTest : public ::testing::Test {
 protected:
  v1::RegistrySnapshot durable_;
  cell::Floors floors_{&durable_};
  RetentionCore core_{{.cell = "us"}, floors_};
  v1::StreamConfig config_;
  const StreamId id_{"flights", StreamIncarnation{7}};
  const ShardId shard_{id_, 0};
  MonotonicTime now_ = MonotonicTime::FromMicros(kSecond);
  int64_t files_ = 0;
  RetentionEffects last_;
  int notes_ = 0, notes_of_ages_ = 0;

  RetentionCoreTest() {
    config_.set_name(id_.name);
    config_.set_incarnation(Raw(id_.incarnation));
    config_.set_source("us");
    config_.set_shards(1);
    AddEdge("us", "eu");
    AddEdge("eu", "asia");
  }
  void AddEdge(const std::string& from, const std::string& to) {
    v1::TreeEdge* edge = config_.add_tree();
    edge->set_from(from);
    edge->set_to(to);
  }
  // Nobody looks at when it says that it was created.
  static Stem File(int64_t seq) { return {seq, 77, (seq - 1) * 1000, 0}; }
  // Opens files up to `newest`; when age counts, one in a second.
  void Produce(int64_t newest) {
    std::vector<Stem> stems;
    const bool slowly = config_.retention().age_max_us() > 0;
    while (files_ < newest) {
      stems.push_back(File(++files_));
      if (!slowly) continue;
      core_.OnFiles(shard_, stems, true);
      Pass(Duration::Seconds(1));
    }
    core_.OnFiles(shard_, stems, true);
  }
  void Configure() { ConfigureOf(core_); }
  void ConfigureOf(RetentionCore& core) {
    google::protobuf::RepeatedPtrField<v1::StreamConfig> all;
    *all.Add() = config_;
    core.OnStreams(all);
  }
  void Keep(int64_t bytes, bool drop = false) {
    config_.mutable_retention()->set_shard_bytes_max(bytes);
    config_.mutable_retention()->set_drop(drop);
    Configure();
  }
  // Files for 10 s, and for a cell that is away for so many seconds.
  void KeepForAge(int64_t away_max_s) {
    config_.mutable_retention()->set_age_max_us(10 * kSecond);
    config_.mutable_retention()->set_away_max_us(away_max_s * kSecond);
    Configure();
  }
  // Up to `newest`, and all cells have them.
  void ProduceForAll(int64_t newest) {
    Produce(newest);
    Work();
    Answer("eu", newest);
    Answer("asia", newest);
  }
  RetentionEffects& Work() { return WorkOf(core_); }
  RetentionEffects& WorkOf(RetentionCore& core) {
    last_ = RetentionEffects();
    core.DoWork(now_, last_);
    for (const auto& [stream, cell] : last_.take_in) {
      auto* out = config_.mutable_left_out();
      out->erase(std::find(out->begin(), out->end(), cell));
    }
    for (const auto& [stream, cell] : last_.leave_out) config_.add_left_out(cell);
    for (const auto& [shard, floor] : last_.raise) floors_.Raise(shard, floor);
    for (const RetentionNote& note : last_.note) {
      EXPECT_TRUE(floors_.NoteHeldUp(note.shard, note.cell, note.done, note.held_up));
      ++notes_;
    }
    for (const RetentionSeen& seen : last_.seen) {
      floors_.NoteSeen(seen.shard, seen.seq, seen.ran, seen.old);
    }
    if (last_.ran) {
      EXPECT_TRUE(floors_.NoteRan(*last_.ran));
      ++notes_of_ages_;
    }
    ConfigureOf(core);
    for (const auto& [shard, floor] : last_.raise) core.OnRaised(shard, floor);
    return last_;
  }
  // Whatever the core asks of the cell is answered: the floor that it is told, and `done`.
  bool Answer(const std::string& cell, int64_t done) { return AnswerOf(core_, cell, done); }
  bool AnswerOf(RetentionCore& core, const std::string& cell, int64_t done) {
    const auto asks = core.TakeAsks(now_, cell);
    std::vector<CollectAnswer> answers;
    for (const CollectAsk& ask : asks) answers.push_back({ask.floor, std::max(done, ask.floor)});
    core.OnAnswer(cell, asks, answers);
    return !asks.empty();
  }
  // It answers that it could not look what it has.
  bool AnswerBlind(const std::string& cell) {
    const auto asks = core_.TakeAsks(now_, cell);
    std::vector<CollectAnswer> answers;
    for (const CollectAsk& ask : asks) answers.push_back({ask.floor, -1});
    if (!asks.empty()) core_.OnAnswer(cell, asks, answers);
    return !asks.empty();
  }
  bool Silence(const std::string& cell) {
    const auto asks = core_.TakeAsks(now_, cell);
    core_.OnSilence(cell, asks);
    return !asks.empty();
  }
  void Pass(Duration duration) {
    for (Duration done; done < duration; done = done + Duration::Seconds(1)) {
      now_ = now_ + Duration::Seconds(1);
      Work();
    }
  }
  int64_t floor() const { return floors_.Floor(shard_); }
};

TEST_F(RetentionCoreTest, WithoutALimitNothingIsAskedAndNothingGoes) {
  Configure();
  Produce(100);
  EXPECT_TRUE(Work().empty());
  EXPECT_THAT(last_.list, IsEmpty());
  EXPECT_FALSE(Answer("eu", 100));
}

TEST_F(RetentionCoreTest, OldFilesGoWhenAllMembersHaveThem) {
  config_.mutable_retention()->set_age_max_us(10 * kSecond);
  Configure();
  EXPECT_THAT(Work().list, ElementsAre(shard_));
  Produce(20);
  Work();
  EXPECT_EQ(floor(), 1) << "nobody has said that he has them";
  EXPECT_TRUE(Answer("eu", 20));
  Work();
  EXPECT_EQ(floor(), 1);
  EXPECT_TRUE(Answer("asia", 5));
  EXPECT_THAT(Work().raise, ElementsAre(Pair(shard_, 5)));
  now_ = now_ + Duration::Seconds(1);
  EXPECT_TRUE(Answer("asia", 20));
  Work();
  EXPECT_EQ(floor(), 10) << "it was seen 11 s ago, so file 9 had ended by then";
}

TEST_F(RetentionCoreTest, TheNewestFileStaysHoweverOld) {
  config_.mutable_retention()->set_age_max_us(10 * kSecond);
  Configure();
  Produce(3);
  now_ = now_ + Duration::Seconds(1000);
  Work();
  Answer("eu", 3);
  Answer("asia", 3);
  Work();
  EXPECT_EQ(floor(), 3);
}

// The scheduler looks seldom, and sees a file late: it stays for so much longer, never shorter.
TEST_F(RetentionCoreTest, AgeCountsFromWhenTheNextFileWasSeen) {
  config_.mutable_retention()->set_age_max_us(10 * kSecond);
  Configure();
  core_.OnFiles(shard_, {File(1)}, true);
  Pass(Duration::Seconds(100));
  core_.OnFiles(shard_, {File(2)}, false);
  Pass(Duration::Seconds(5));
  core_.OnFiles(shard_, {File(3)}, false);
  Answer("eu", 3);
  Answer("asia", 3);
  Pass(Duration::Seconds(5));
  EXPECT_EQ(floor(), 1);
  Pass(Duration::Seconds(2));
  EXPECT_EQ(floor(), 2);
  Answer("eu", 3);
  Answer("asia", 3);
  Pass(Duration::Seconds(5));
  EXPECT_EQ(floor(), 3);
}

// A file each second, kept for ten minutes. Each scheduler goes on counting where the one before
// wrote down how far it was, and what nobody wrote down is counted anew.
TEST_F(RetentionCoreTest, AgeGoesOnFromSchedulerToScheduler) {
  constexpr int64_t kAge = 600;
  config_.mutable_retention()->set_age_max_us(kAge * kSecond);
  Configure();
  const MonotonicTime began = now_;
  for (int life = 0; life < 100; ++life) {
    RetentionCore next({.cell = "us"}, floors_);
    ConfigureOf(next);
    std::vector<Stem> stems;
    for (int64_t seq = floor(); seq <= files_; ++seq) stems.push_back(File(seq));
    next.OnFiles(shard_, stems, true);
    for (int second = 0; second < 70; ++second) {
      now_ = now_ + Duration::Seconds(1);
      next.OnFiles(shard_, {File(++files_)}, false);
      WorkOf(next);
      AnswerOf(next, "eu", files_);
      AnswerOf(next, "asia", files_);
      // File n + 1 was seen n seconds after the first one.
      const int64_t now_s = (now_ - began).micros() / kSecond;
      ASSERT_LE(floor() == 1 ? 0 : floor() + kAge, now_s) << "what is below is younger";
      ASSERT_GE(floor() + 2 * kAge + 300, now_s) << "older ones stay";
    }
  }
  EXPECT_GT(floor(), 5000);
  EXPECT_LE(notes_of_ages_, 300) << "it is written down seldom";
}

// The registry of an older release has none of it, nor has that of a stream which had no limit.
TEST_F(RetentionCoreTest, WhatIsThereUnnotedIsKeptForItsAgeFromThenOn) {
  config_.mutable_retention()->set_age_max_us(10 * kSecond);
  Configure();
  core_.OnFiles(shard_, {File(1), File(2), File(3)}, true);
  Work();
  Answer("eu", 3);
  Answer("asia", 3);
  Pass(Duration::Seconds(10));
  EXPECT_EQ(floor(), 1);
  Pass(Duration::Seconds(1));
  EXPECT_EQ(floor(), 3);
}

TEST_F(RetentionCoreTest, WithoutClosedFilesOrALimitOfAgeNothingIsWrittenDown) {
  Keep(5000);
  ProduceForAll(3);
  Pass(Duration::Seconds(1000));
  EXPECT_EQ(notes_of_ages_, 0);
  config_.mutable_retention()->set_age_max_us(1000 * kSecond);
  config_.set_shards(2);
  Configure();
  core_.OnStreams({});
  Configure();
  core_.OnFiles({id_, 0}, {File(3)}, true);
  core_.OnFiles({id_, 1}, {}, true);
  Pass(Duration::Seconds(1000));
  EXPECT_EQ(notes_of_ages_, 0);
  core_.OnFiles({id_, 0}, {File(4)}, false);
  Pass(Duration::Seconds(900));
  EXPECT_EQ(notes_of_ages_, 6) << "at once, and each 166 s";
}

TEST_F(RetentionCoreTest, SizeCountsClosedFiles) {
  Keep(5000);
  ProduceForAll(6);
  EXPECT_TRUE(Work().empty()) << "five closed files are 5,000 bytes";
  Produce(8);
  now_ = now_ + Duration::Seconds(2);
  Work();
  EXPECT_EQ(floor(), 3);
}

// The answer for the next file that will go is asked for before that one is wanted away.
TEST_F(RetentionCoreTest, ItIsKnownBeforeItIsWanted) {
  Keep(5000);
  Produce(6);
  Work();
  EXPECT_TRUE(Answer("eu", 6));
  EXPECT_TRUE(Answer("asia", 6));
  EXPECT_FALSE(Answer("eu", 6)) << "nothing is wanted away";
  Produce(7);
  EXPECT_THAT(Work().raise, ElementsAre(Pair(shard_, 2)));
}

TEST_F(RetentionCoreTest, CellsAreToldTheFloorUntilTheyHaveRecordedIt) {
  Keep(5000);
  ProduceForAll(6);
  Produce(7);
  Work();
  auto asks = core_.TakeAsks(now_, "eu");
  ASSERT_EQ(asks.size(), 1u);
  EXPECT_EQ(asks[0].floor, 2);
  EXPECT_THAT(core_.TakeAsks(now_, "eu"), IsEmpty()) << "one call at a time";
  core_.OnSilence("eu", asks);
  EXPECT_THAT(core_.TakeAsks(now_, "eu"), IsEmpty());
  now_ = now_ + Duration::Seconds(1);
  EXPECT_TRUE(Answer("eu", 7));
  now_ = now_ + Duration::Seconds(10);
  EXPECT_FALSE(Answer("eu", 7));
  now_ = now_ + Duration::Seconds(60);
  EXPECT_TRUE(Answer("eu", 7)) << "it may have another disk by now";
}

TEST_F(RetentionCoreTest, WhoHadNoTimeToLookIsAskedAgainAtOnce) {
  Keep(5000, true);
  Produce(20);
  Work();
  Answer("asia", 20);
  const auto asks = core_.TakeAsks(now_, "eu");
  core_.OnAnswer("eu", asks, {{.floor = 1, .done = -1}});
  Work();
  EXPECT_TRUE(last_.empty());
  EXPECT_TRUE(Answer("eu", 20));
  Work();
  EXPECT_EQ(floor(), 15);
}

TEST_F(RetentionCoreTest, AFloorThatIsNotDurableIsToldToNobody) {
  Keep(5000);
  ProduceForAll(6);
  Produce(7);
  RetentionEffects effects;
  core_.DoWork(now_, effects);
  ASSERT_THAT(effects.raise, ElementsAre(Pair(shard_, 2)));
  floors_.Raise(shard_, 2);  // is being written
  now_ = now_ + Duration::Seconds(1);
  for (const CollectAsk& ask : core_.TakeAsks(now_, "eu")) EXPECT_EQ(ask.floor, 1);
  effects = RetentionEffects();
  core_.DoWork(now_, effects);
  EXPECT_TRUE(effects.empty()) << "it is not asked for twice";
}

TEST_F(RetentionCoreTest, BlockWaitsForWhoLacksAFile) {
  Keep(5000);
  Produce(20);
  Work();
  Answer("eu", 20);
  Answer("asia", 3);
  Work();
  EXPECT_EQ(floor(), 3);
  Pass(Duration::Seconds(1000));
  EXPECT_EQ(floor(), 3);
  const auto held = core_.Held();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].cell, "asia");
  EXPECT_EQ(held[0].lacking, 3);
  EXPECT_GT(held[0].since, Duration::Seconds(900));
}

TEST_F(RetentionCoreTest, DropLeavesOutWhoLacksAFileAndRaisesTheFloorInOneStep) {
  Keep(5000, true);
  Produce(20);
  Work();
  EXPECT_TRUE(last_.empty()) << "nobody has been asked";
  Answer("eu", 20);
  Answer("asia", 3);
  Work();
  EXPECT_THAT(last_.leave_out, IsEmpty()) << "asia has what goes first";
  EXPECT_EQ(floor(), 3);
  Pass(Duration::Seconds(1));
  Answer("asia", 3);
  Work();
  EXPECT_THAT(last_.leave_out, ElementsAre(Pair(id_, "asia")));
  EXPECT_THAT(last_.raise, ElementsAre(Pair(shard_, 15)));
  // It answers, and is told where the shard begins now, but has no more than before.
  EXPECT_FALSE(Answer("asia", 4));
  for (int probe = 0; probe < 3; ++probe) {
    now_ = now_ + Duration::Seconds(5);
    EXPECT_TRUE(Answer("asia", 4));
    EXPECT_TRUE(Work().empty());
  }
  // It gets on: a member again.
  now_ = now_ + Duration::Seconds(5);
  EXPECT_TRUE(Answer("asia", 16));
  EXPECT_THAT(Work().take_in, ElementsAre(Pair(id_, "asia")));
  EXPECT_EQ(floor(), 15);
}

// It answers all the time, and has got stuck: nothing is kept for it until it gets on, also by a
// scheduler that does not know what it had when it was left out.
TEST_F(RetentionCoreTest, WhoDoesNotGetOnStaysLeftOut) {
  Keep(5000);
  config_.mutable_retention()->set_away_max_us(8 * kSecond);
  Configure();
  Produce(7);
  Work();
  int changes = 0;
  const auto seconds = [&](int count, int64_t asia) {
    for (int second = 0; second < count; ++second) {
      Produce(files_ + 1);
      Answer("eu", files_);
      Answer("asia", asia);
      Pass(Duration::Seconds(1));
      changes += static_cast<int>(last_.take_in.size() + last_.leave_out.size());
    }
  };
  seconds(60, 3);
  EXPECT_EQ(changes, 1);
  EXPECT_THAT(config_.left_out(), ElementsAre("asia"));
  EXPECT_GT(floor(), 55);
  RetentionCore restarted({.cell = "us"}, floors_);
  ConfigureOf(restarted);
  std::vector<Stem> stems;
  for (int64_t seq = floor(); seq <= files_; ++seq) stems.push_back(File(seq));
  restarted.OnFiles(shard_, stems, true);
  for (int probe = 0; probe < 3; ++probe) {
    now_ = now_ + Duration::Seconds(5);
    AnswerOf(restarted, "asia", 3);
    EXPECT_THAT(WorkOf(restarted).take_in, IsEmpty());
  }
  now_ = now_ + Duration::Seconds(5);
  AnswerOf(restarted, "asia", files_ - 1);
  EXPECT_THAT(WorkOf(restarted).take_in, ElementsAre(Pair(id_, "asia")));
}

// Where only the newest file is kept, the floor itself gives it all closed ones: that is no getting
// on of one that answers and is stuck, or it would be left out again each `away_max`.
TEST_F(RetentionCoreTest, WhoIsStuckIsNotTakenInForWhatTheFloorGaveIt) {
  KeepForAge(100);
  Produce(20);
  Work();
  int left_out = 0, taken_in = 0;
  const auto seconds = [&](int count, int64_t asia) {
    for (int second = 0; second < count; ++second) {
      if (second % 150 == 149) Produce(files_ + 1);
      Answer("eu", files_);
      Answer("asia", asia);
      Pass(Duration::Seconds(1));
      left_out += static_cast<int>(last_.leave_out.size());
      taken_in += static_cast<int>(last_.take_in.size());
    }
  };
  seconds(1530, 2);
  EXPECT_EQ(left_out, 1);
  EXPECT_EQ(taken_in, 0);
  EXPECT_EQ(floor(), files_) << "the newest";
  seconds(100, files_);
  EXPECT_EQ(taken_in, 0) << "nothing was closed since";
  Produce(files_ + 1);
  seconds(10, files_);
  EXPECT_EQ(taken_in, 1);
  seconds(140, files_);
  EXPECT_EQ(left_out, 1);
}

TEST_F(RetentionCoreTest, WhoHasNothingToDoIsTakenIn) {
  Keep(5000, true);
  config_.add_left_out("asia");
  Configure();
  Produce(6);
  Work();
  EXPECT_TRUE(Answer("asia", 6));
  EXPECT_THAT(Work().take_in, ElementsAre(Pair(id_, "asia")));
}

// Stuck with one shard, it is not taken in for the other one.
TEST_F(RetentionCoreTest, WhoGetsOnWithEachShardIsTakenIn) {
  config_.set_shards(3);
  config_.add_left_out("asia");
  Keep(5000);
  std::vector<Stem> stems;
  for (int64_t seq = 1; seq <= 9; ++seq) stems.push_back(File(seq));
  core_.OnFiles({id_, 0}, stems, true);
  core_.OnFiles({id_, 1}, stems, true);
  core_.OnFiles({id_, 2}, {}, true);
  Work();
  const auto answer = [&](int64_t first, int64_t second) {
    now_ = now_ + Duration::Seconds(5);
    const auto asks = core_.TakeAsks(now_, "asia");
    ASSERT_EQ(asks.size(), 2u);
    core_.OnAnswer("asia", asks, {{1, first}, {1, second}});
    Work();
  };
  answer(2, 2);
  answer(4, 2);
  EXPECT_THAT(last_.take_in, IsEmpty());
  answer(4, 2);
  EXPECT_THAT(last_.take_in, IsEmpty());
  answer(4, 3);
  EXPECT_THAT(last_.take_in, ElementsAre(Pair(id_, "asia")));
}

TEST_F(RetentionCoreTest, DropDoesNotWaitForWhoIsSilent) {
  Keep(5000, true);
  Produce(20);
  Work();
  Answer("eu", 20);
  // Refused, or still under way.
  EXPECT_TRUE(Silence("asia"));
  Pass(Duration::Seconds(1));
  EXPECT_THAT(core_.TakeAsks(now_, "asia"), testing::SizeIs(1));
  Work();
  EXPECT_THAT(config_.left_out(), IsEmpty()) << "it may just be starting";
  EXPECT_EQ(core_.due(), now_ + Duration::Seconds(1));
  Pass(Duration::Seconds(1));
  EXPECT_THAT(config_.left_out(), ElementsAre("asia"));
  EXPECT_EQ(floor(), 15);
  EXPECT_EQ(core_.due(), MonotonicTime::Max());
}

// Its disk does not let it list its files: it answers, and says nothing.
TEST_F(RetentionCoreTest, DropDoesNotWaitForWhoCanNotLook) {
  Keep(5000, true);
  Produce(20);
  Work();
  Answer("eu", 20);
  EXPECT_TRUE(AnswerBlind("asia"));
  EXPECT_TRUE(AnswerBlind("asia")) << "perhaps it had no time: asked again at once";
  EXPECT_FALSE(AnswerBlind("asia")) << "but not again and again";
  Work();
  EXPECT_THAT(config_.left_out(), IsEmpty());
  Pass(Duration::Seconds(1));
  EXPECT_TRUE(AnswerBlind("asia"));
  Work();
  EXPECT_THAT(config_.left_out(), IsEmpty()) << "it may just be starting";
  Pass(Duration::Seconds(1));
  EXPECT_THAT(config_.left_out(), ElementsAre("asia"));
  EXPECT_EQ(floor(), 15);
}

TEST_F(RetentionCoreTest, WhoCouldNotLookForAMomentIsLeftInADroppingStream) {
  Keep(5000, true);
  Produce(20);
  Work();
  Answer("eu", 20);
  AnswerBlind("asia");
  Pass(Duration::Seconds(1));
  Answer("asia", 20);
  Work();
  Pass(Duration::Seconds(2));
  EXPECT_THAT(config_.left_out(), IsEmpty());
  EXPECT_EQ(floor(), 15);
}

// It did not answer an hour ago, when there was something to ask.
TEST_F(RetentionCoreTest, AnOldSilenceIsNoneNow) {
  Keep(5000, true);
  Produce(6);
  Work();
  Answer("eu", 6);
  EXPECT_TRUE(Silence("asia"));
  now_ = now_ + Duration::Seconds(3600);
  Produce(20);
  Work();
  Answer("eu", 20);
  const auto asks = core_.TakeAsks(now_, "asia");
  Work();
  EXPECT_THAT(config_.left_out(), IsEmpty());
  core_.OnAnswer("asia", asks, {{1, 20}});
  Work();
  EXPECT_EQ(floor(), 15);
}

TEST_F(RetentionCoreTest, WhoIsHeardIsAskedAtOnceWhenSizeWantsAFileAway) {
  Keep(5000);
  ProduceForAll(6);
  EXPECT_FALSE(Answer("eu", 6));
  Produce(9);
  Work();
  EXPECT_TRUE(Answer("eu", 9));
  EXPECT_TRUE(Answer("asia", 5));
  Work();
  EXPECT_EQ(floor(), 4);
  Produce(12);
  Work();
  EXPECT_EQ(floor(), 5);
  EXPECT_TRUE(Answer("asia", 6));
  Work();
  EXPECT_EQ(floor(), 6);
}

// As long as another one holds the floor, nothing would be won by it.
TEST_F(RetentionCoreTest, NobodyIsLeftOutWhileTheFloorStaysAllTheSame) {
  Keep(5000, true);
  Produce(20);
  Work();
  Answer("asia", 1);
  core_.TakeAsks(now_, "eu");  // under way
  Work();
  EXPECT_TRUE(last_.empty());
}

// Every one of many shards is asked for, though the first ones are due again and again.
TEST_F(RetentionCoreTest, NoShardWaitsBehindThoseThatAreDueAgain) {
  config_.mutable_retention()->set_shard_bytes_max(5000);
  config_.set_shards(1000);
  Configure();
  for (int32_t s = 0; s < 1000; ++s) core_.OnFiles({id_, s}, {File(1), File(2), File(3)}, true);
  Work();
  std::set<ShardId> asked;
  for (int call = 0; call < 4; ++call) {
    const auto asks = core_.TakeAsks(now_, "eu");
    EXPECT_EQ(asks.size(), 256u) << call;
    for (const CollectAsk& ask : asks) asked.insert(ask.shard);
    now_ = now_ + Duration::Seconds(5);
    core_.OnSilence("eu", asks);
  }
  EXPECT_EQ(asked.size(), 1000u);
}

TEST_F(RetentionCoreTest, AStreamThatIsGoneIsForgotten) {
  Keep(5000);
  ProduceForAll(20);
  core_.OnStreams({});
  EXPECT_TRUE(core_.empty());
  RetentionEffects effects;
  core_.DoWork(now_, effects);
  EXPECT_TRUE(effects.empty());
}

TEST_F(RetentionCoreTest, WhoIsAwayTooLongIsLeftOutAndTakenInAgain) {
  KeepForAge(100);
  Produce(20);
  Work();
  Answer("eu", 20);
  Silence("asia");
  Pass(Duration::Seconds(90));
  EXPECT_EQ(floor(), 1);
  EXPECT_THAT(config_.left_out(), IsEmpty());
  Pass(Duration::Seconds(20));
  EXPECT_THAT(config_.left_out(), ElementsAre("asia"));
  EXPECT_EQ(floor(), 20);
  EXPECT_TRUE(Answer("asia", 2));
  Work();
  EXPECT_THAT(config_.left_out(), IsEmpty());
  // From now on it is waited for again.
  Produce(40);
  Pass(Duration::Seconds(12));
  Answer("eu", 40);
  Pass(Duration::Seconds(50));
  EXPECT_EQ(floor(), 20);
}

TEST_F(RetentionCoreTest, WhoGetsOnIsNotAway) {
  KeepForAge(100);
  Produce(20);
  Work();
  Answer("eu", 20);
  for (int64_t done = 1; done < 10; ++done) {
    Answer("asia", done);
    Pass(Duration::Seconds(90));
    EXPECT_THAT(config_.left_out(), IsEmpty());
    EXPECT_EQ(floor(), done);
  }
}

// Each scheduler counts on where the one before wrote it down, which is seldom: 50 s of each 350
// are lost.
TEST_F(RetentionCoreTest, SchedulersThatComeAndGoCountOneAbsence) {
  KeepForAge(2400);
  Produce(20);
  Work();
  Answer("eu", 20);
  Answer("asia", 2);
  Pass(Duration::Seconds(1));
  std::vector<Stem> stems;
  for (int64_t seq = 1; seq <= files_; ++seq) stems.push_back(File(seq));
  for (int life = 0; life < 8; ++life) {
    EXPECT_THAT(config_.left_out(), IsEmpty()) << life;
    RetentionCore next({.cell = "us"}, floors_);
    ConfigureOf(next);
    next.OnFiles(shard_, stems, true);
    for (int second = 0; second < 350; ++second) {
      now_ = now_ + Duration::Seconds(1);
      WorkOf(next);
      AnswerOf(next, "eu", 20);
      if (life < 3) AnswerOf(next, "asia", 2);  // it has got no farther; then it says nothing
    }
  }
  EXPECT_THAT(config_.left_out(), ElementsAre("asia"));
  EXPECT_LE(notes_, 60) << "it is written down seldom";
  EXPECT_EQ(floors_.HeldUp(shard_, "asia"), nullptr);
}

// A shard whose producer has never published: no cell lacks anything of it.
TEST_F(RetentionCoreTest, NobodyIsAwayForAShardWithoutFiles) {
  config_.set_shards(2);
  KeepForAge(100);
  core_.OnFiles({id_, 1}, {}, true);
  Produce(20);
  for (int second = 0; second < 300; ++second) {
    Answer("eu", 20);
    Answer("asia", 20);
    Pass(Duration::Seconds(1));
  }
  EXPECT_THAT(config_.left_out(), IsEmpty());
  EXPECT_THAT(core_.Held(), IsEmpty());
  EXPECT_EQ(notes_, 0);
}

// The scheduler died between leaving a cell out and forgetting how long it had waited.
TEST_F(RetentionCoreTest, WhoWasLeftOutIsWaitedForAnew) {
  config_.mutable_retention()->set_age_max_us(10 * kSecond);
  config_.mutable_retention()->set_away_max_us(100 * kSecond);
  floors_.NoteHeldUp(shard_, "asia", 2, Duration::Seconds(99));
  config_.add_left_out("asia");
  Configure();
  Produce(20);
  Work();
  EXPECT_EQ(floors_.HeldUp(shard_, "asia"), nullptr);
  EXPECT_TRUE(Answer("asia", 2));
  now_ = now_ + Duration::Seconds(5);
  EXPECT_TRUE(Answer("asia", 3));
  Work();
  Pass(Duration::Seconds(80));
  EXPECT_THAT(config_.left_out(), IsEmpty());
}

TEST_F(RetentionCoreTest, WhoGetsOnOrComesBackIntoTheTreeIsWaitedForAnew) {
  KeepForAge(2400);
  Produce(20);
  Work();
  Answer("eu", 20);
  Answer("asia", 2);
  Pass(Duration::Seconds(200));
  ASSERT_NE(floors_.HeldUp(shard_, "asia"), nullptr);
  EXPECT_GE(floors_.HeldUp(shard_, "asia")->time_us(), 100 * kSecond);
  EXPECT_TRUE(Answer("asia", 3));
  Work();
  EXPECT_EQ(floors_.HeldUp(shard_, "asia"), nullptr);
  Pass(Duration::Seconds(200));
  ASSERT_NE(floors_.HeldUp(shard_, "asia"), nullptr);
  config_.mutable_tree()->RemoveLast();
  Configure();
  AddEdge("eu", "asia");
  Configure();
  Work();
  EXPECT_EQ(floors_.HeldUp(shard_, "asia"), nullptr);
}

// A scheduler that was stopped for a day knows nothing of that day.
TEST_F(RetentionCoreTest, ItsOwnStallIsNobodysAbsence) {
  KeepForAge(100);
  Produce(20);
  Work();
  now_ = now_ + Duration::Seconds(86400);
  Work();
  EXPECT_THAT(last_.leave_out, IsEmpty());
}

TEST_F(RetentionCoreTest, ATrimGoesWithoutAnyLimit) {
  floors_.Trim(shard_, 8);
  Configure();
  ProduceForAll(20);
  Work();
  EXPECT_EQ(floor(), 8);
}

TEST_F(RetentionCoreTest, NothingBeyondAHoleIsJudged) {
  config_.mutable_retention()->set_shard_bytes_max(100);
  Configure();
  core_.OnFiles(shard_, {File(1), File(2)}, true);
  core_.OnFiles(shard_, {File(9)}, false);
  EXPECT_THAT(Work().list, ElementsAre(shard_)) << "the notices between were lost";
  Produce(9);
  Work();
  Answer("eu", 9);
  Answer("asia", 9);
  Work();
  EXPECT_EQ(floor(), 9);
}

TEST_F(RetentionCoreTest, WhoComesIntoTheTreeIsAMemberAndWhoLeavesItIsNot) {
  Keep(5000);
  Produce(20);
  Work();
  Answer("eu", 20);
  config_.clear_tree();
  AddEdge("us", "eu");
  AddEdge("us", "africa");
  Configure();
  Work();
  EXPECT_EQ(floor(), 1);
  EXPECT_FALSE(Answer("asia", 20)) << "it is none of ours any more";
  EXPECT_TRUE(Answer("africa", 3));
  Work();
  EXPECT_EQ(floor(), 3);
}

// It has lost its disk, and says so: what it had once does not count.
TEST_F(RetentionCoreTest, WhoHasLessThanBeforeIsWaitedForAgain) {
  Keep(5000);
  ProduceForAll(6);
  Produce(7);
  Work();
  EXPECT_EQ(floor(), 2);
  now_ = now_ + Duration::Seconds(1);
  Answer("eu", 7);
  auto asks = core_.TakeAsks(now_, "asia");
  core_.OnAnswer("asia", asks, {{.floor = 1, .done = 1}});
  Produce(12);
  Pass(Duration::Seconds(1));
  Answer("eu", 12);
  EXPECT_TRUE(Answer("asia", 4)) << "it is told the floor again";
  Work();
  EXPECT_EQ(floor(), 4);
}

// After a restart everything is asked anew.
TEST_F(RetentionCoreTest, WhatIsNotKnownIsNeeded) {
  Keep(5000);
  Produce(6);
  Answer("eu", 6);
  Answer("asia", 6);
  Produce(20);
  RetentionCore restarted({.cell = "us"}, floors_);
  ConfigureOf(restarted);
  restarted.OnFiles(shard_,
                    {File(1), File(2), File(3), File(4), File(5), File(6), File(7), File(8)}, true);
  RetentionEffects effects;
  restarted.DoWork(now_, effects);
  EXPECT_TRUE(effects.empty());
  const PlantedFault planted("scheduler.unknown_is_done");
  restarted.DoWork(now_, effects);
  EXPECT_THAT(effects.raise, ElementsAre(Pair(shard_, 3)));
}

// Its copies may have gone in between.
TEST_F(RetentionCoreTest, WhatACellSaidBeforeItLeftTheTreeAndCameBackSaysNothing) {
  config_.mutable_retention()->set_age_max_us(kSecond);
  google::protobuf::RepeatedPtrField<v1::StreamConfig> streams;
  const auto install = [&](const v1::StreamConfig& config) {
    streams.Clear();
    *streams.Add() = config;
    core_.OnStreams(streams);
  };
  install(config_);
  Produce(10);
  RetentionEffects out;
  core_.DoWork(now_, out);
  const auto asks = core_.TakeAsks(now_, "asia");
  ASSERT_EQ(asks.size(), 1u);
  const auto eu = core_.TakeAsks(now_, "eu");
  core_.OnAnswer("eu", eu, {{1, 10}});
  const v1::StreamConfig with = config_;
  config_.mutable_tree()->RemoveLast();
  install(config_);
  install(with);
  core_.OnAnswer("asia", asks, {{1, 10}});
  out = {};
  core_.DoWork(now_, out);
  EXPECT_THAT(out.raise, IsEmpty()) << "what it has now is not known";
  core_.OnAnswer("asia", core_.TakeAsks(now_, "asia"), {{0, -1}});
  out = {};
  core_.DoWork(now_, out);
  EXPECT_THAT(out.raise, IsEmpty()) << "it has not heard of the tree";
  EXPECT_THAT(core_.TakeAsks(now_, "asia"), IsEmpty()) << "not at once again";
  now_ = now_ + Duration::Seconds(2);
  core_.OnAnswer("asia", core_.TakeAsks(now_, "asia"), {{1, 10}});
  out = {};
  core_.DoWork(now_, out);
  EXPECT_FALSE(out.raise.empty());
}

}  // namespace
}  // namespace tailcast::scheduler
