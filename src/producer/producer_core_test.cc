// The life of a shard's producer, without a loop: each test is a path through the states that
// producer_core.h draws.
#include "tailcast/producer/producer_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tailcast::producer {
namespace {

using State = ProducerState;
using storage::AppendOutcome;
using stream::Part;
using stream::Stem;
using ::testing::HasSubstr;

constexpr int64_t kWallUs = 1'000'000;

class ProducerCoreTest : public ::testing::Test {
 protected:
  static ProducerCoreOptions Options() {
    ProducerCoreOptions options;
    options.append = {.flush_interval = Duration(), .flush_bytes = 100, .roll_bytes = 42};
    options.retry.give_up = Duration::Seconds(60);
    options.buffer_bytes_max = 100;
    options.buffer_messages_max = 20;
    options.message_bytes_max = 50;
    options.roll_age = Duration::Seconds(3600);
    return options;
  }
  static MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }
  static Batch Message(const std::string& payload, int64_t time_us = 0) {
    Batch batch;
    batch.bytes = payload;
    batch.messages.push_back({static_cast<uint32_t>(payload.size()), 0, time_us});
    return batch;
  }

  OpenedEffects Opened(const Stem& stem, std::vector<Predecessor> predecessors = {},
                       int64_t ms = 0) {
    OpenedEffects out;
    core.OnOpened(stem, std::move(predecessors), 0, At(ms), out);
    return out;
  }
  Status Publish(const std::string& payload) { return core.Publish(Message(payload), kWallUs); }
  Work DoWork(int64_t ms = 0, bool shadowed = false) {
    Work work;
    core.DoWork(At(ms), work);
    core.FinishClose(At(ms), shadowed, work);
    return work;
  }
  AppendEffects Appended(Part part, AppendOutcome outcome = AppendOutcome::kApplied) {
    AppendEffects out;
    core.OnAppended(part, outcome, out);
    return out;
  }
  // Publishes and appends until it is durable.
  void Deliver(const std::string& payload, int64_t ms = 0) {
    ASSERT_TRUE(Publish(payload).ok());
    ASSERT_TRUE(DoWork(ms).append.data);
    Appended(Part::kData);
    ASSERT_TRUE(DoWork(ms).append.index);
    ASSERT_EQ(Appended(Part::kIndex).durable.size(), 1u);
  }

  ProducerCore core{{{"s", stream::StreamIncarnation{3}}, 0}, Options()};
  const Stem one{1, 1000, 0, 0};
  const Stem two{2, 2000, 12, 1};
  const Stem three{3, 3000, 24, 2};
  const Stem four{4, 4000, 36, 3};
};

TEST_F(ProducerCoreTest, TheNextFilesChunksFitTheFlushesOfThisFile) {
  Stem first = one;
  first.chunk_size = 4096;
  Opened(first);
  EXPECT_EQ(core.next_chunk_size(At(100)), 4096) << "nothing was flushed";
  Deliver("0123456789ab");
  EXPECT_EQ(core.next_chunk_size(At(100)), 512) << "12 bytes in a flush";
  DoWork();
  Stem second = two;
  second.chunk_size = 16384;
  Opened(second);
  EXPECT_EQ(core.next_chunk_size(At(100)), 16384) << "the flush before was the other file's";
}

TEST_F(ProducerCoreTest, AFileThatSaysNoChunkSizeIsFollowedByOneThatSaysNone) {
  Opened(one);
  Deliver("0123456789ab");
  EXPECT_EQ(core.next_chunk_size(At(100)), 0);
}

TEST_F(ProducerCoreTest, TakesNothingBeforeAFileIsOpen) {
  EXPECT_EQ(core.state(), State::kOpening);
  EXPECT_THAT(Publish("x").message(), HasSubstr("not open yet"));
  EXPECT_FALSE(Opened(one).stop);
  EXPECT_EQ(core.state(), State::kAppending);
  EXPECT_TRUE(Publish("x").ok());
}

TEST_F(ProducerCoreTest, RefusesWhatIsTooLargeOrTooMuchAndCountsIt) {
  Opened(one);
  EXPECT_TRUE(IsInvalidArgument(Publish(std::string(51, 'x'))));
  EXPECT_TRUE(Publish(std::string(50, 'x')).ok());
  EXPECT_TRUE(Publish(std::string(50, 'x')).ok());
  EXPECT_TRUE(IsResourceExhausted(Publish("x")));
  EXPECT_EQ(core.counters().refused_size, 1);
  EXPECT_EQ(core.counters().refused_full, 1);
  EXPECT_EQ(core.counters().messages, 2);
  EXPECT_EQ(core.counters().bytes, 100);
}

TEST_F(ProducerCoreTest, EmptyMessagesAreBoundedByTheirNumber) {
  Opened(one);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Publish("").ok());
  EXPECT_TRUE(IsResourceExhausted(Publish("")));
  EXPECT_EQ(core.counters().refused_full, 1);
}

TEST_F(ProducerCoreTest, TimesOfMessagesNeverFall) {
  OpenedEffects out;
  core.OnOpened(one, {}, 5000, At(0), out);
  ASSERT_TRUE(core.Publish(Message("a"), 4000).ok());
  ASSERT_TRUE(core.Publish(Message("b", 6000), 4000).ok());
  ASSERT_TRUE(core.Publish(Message("c"), 5500).ok());
  const auto lost = core.Stop(OkStatus());
  ASSERT_EQ(lost.failed.size(), 1u);
  EXPECT_EQ(lost.failed[0].messages[0].time_us, 5000) << "not before what is in the shard";
  EXPECT_EQ(lost.failed[0].messages[1].time_us, 6000);
  EXPECT_EQ(lost.failed[0].messages[2].time_us, 6000);
}

TEST_F(ProducerCoreTest, AFullFileIsFinishedThenRolledOver) {
  Opened(one);
  ASSERT_TRUE(Publish("twelve bytes").ok());
  ASSERT_TRUE(Publish("more").ok());
  ASSERT_TRUE(DoWork().append.data);
  Appended(Part::kData);
  auto work = DoWork();
  EXPECT_TRUE(work.append.index);
  EXPECT_FALSE(work.open) << "what is under way is waited for";
  EXPECT_FALSE(work.append.data) << "it is full";
  Appended(Part::kIndex);
  work = DoWork();
  EXPECT_EQ(core.state(), State::kRolling);
  ASSERT_TRUE(work.open);
  EXPECT_EQ(work.open->current, one);
  EXPECT_EQ(work.open->seal, (stream::Seal{{12, 32}}));
  EXPECT_TRUE(Publish("later").ok()) << "it waits for the next file";
  EXPECT_FALSE(DoWork().append.data);

  const auto opened = Opened(two, {{one, {{12, 32}}}});
  EXPECT_EQ(opened.seal, (stream::Seal{{12, 32}}));
  EXPECT_TRUE(opened.keep_shadow);
  EXPECT_TRUE(opened.predecessors.empty());
  EXPECT_EQ(core.current(), two);
  EXPECT_EQ(DoWork().append.data->bytes, "morelater");
  EXPECT_EQ(core.counters().files_opened, 2);
  EXPECT_EQ(core.counters().files_sealed, 1);
}

TEST_F(ProducerCoreTest, WhatIsUnderWayWhenAFileIsFullIsWaitedFor) {
  Opened(one);
  Deliver("a");
  ASSERT_TRUE(Publish("nine byte").ok());
  ASSERT_TRUE(DoWork().append.data);
  ASSERT_TRUE(Publish("b").ok());
  DoWork();
  EXPECT_EQ(core.state(), State::kFinishing);
  Appended(Part::kData);
  EXPECT_FALSE(DoWork().append.data);
  EXPECT_EQ(core.state(), State::kFinishing);
  Appended(Part::kIndex);
  EXPECT_EQ(DoWork().open->seal, (stream::Seal{{10, 64}}));
}

TEST_F(ProducerCoreTest, AFullFileWhoseLastAppendFailsIsRecovered) {
  Opened(one);
  Deliver("a");
  ASSERT_TRUE(Publish("nine byte").ok());
  DoWork();
  DoWork();
  ASSERT_EQ(core.state(), State::kFinishing);
  Appended(Part::kData, AppendOutcome::kUnknown);
  EXPECT_FALSE(DoWork().open->seal);
  EXPECT_EQ(core.state(), State::kRecovering);
}

TEST_F(ProducerCoreTest, WhileNoFileIsOpenWhatWaitsNeedNotBeBrought) {
  constexpr int64_t kFlushBytes = 100;
  EXPECT_EQ(core.bytes_before_call(), kFlushBytes);
  Opened(one);
  EXPECT_EQ(core.bytes_before_call(), 0);
  Deliver("a");
  EXPECT_EQ(core.bytes_before_call(), 0);
  ASSERT_TRUE(Publish(std::string(10, 'b')).ok());  // all that a file may have
  ASSERT_TRUE(DoWork().append.data);
  Appended(Part::kData);
  ASSERT_TRUE(DoWork().append.index);
  EXPECT_EQ(core.state(), State::kFinishing);
  EXPECT_EQ(core.bytes_before_call(), kFlushBytes);
  Appended(Part::kIndex);
  ASSERT_TRUE(DoWork().open);
  EXPECT_EQ(core.state(), State::kRolling);
  EXPECT_EQ(core.bytes_before_call(), kFlushBytes);
  core.OnOpenFailed(UnavailableError("away"), At(0));
  EXPECT_EQ(core.state(), State::kRecovering);
  EXPECT_EQ(core.bytes_before_call(), kFlushBytes);
}

TEST_F(ProducerCoreTest, AnOldFileIsRolledOverUnlessItIsEmpty) {
  Opened(one);
  EXPECT_FALSE(DoWork(4'000'000).open);
  EXPECT_EQ(core.state(), State::kAppending);
  Deliver("a", 4'000'000);
  EXPECT_TRUE(DoWork(4'000'000).open);
}

TEST_F(ProducerCoreTest, AfterAFailedAppendTheOtherOneIsWaitedForThenTheFileIsRecovered) {
  Opened(one);
  ASSERT_TRUE(Publish("a").ok());
  DoWork();
  Appended(Part::kData);
  ASSERT_TRUE(Publish("b").ok());
  auto work = DoWork();
  ASSERT_TRUE(work.append.data && work.append.index);
  Appended(Part::kData, AppendOutcome::kUnknown);
  EXPECT_EQ(core.state(), State::kGivenUp);
  work = DoWork();
  EXPECT_FALSE(work.open) << "the index append is under way";
  EXPECT_EQ(Appended(Part::kIndex).durable.size(), 1u) << "and counts";
  work = DoWork();
  EXPECT_EQ(core.state(), State::kRecovering);
  ASSERT_TRUE(work.open);
  EXPECT_EQ(work.open->current, one);
  EXPECT_FALSE(work.open->seal) << "nobody knows";
  EXPECT_EQ(core.counters().recoveries, 1);

  const auto opened = Opened({2, 2000, 1, 1}, {{one, {{1, 32}}}});
  EXPECT_FALSE(opened.keep_shadow) << "it may lack what another wrote";
  ASSERT_EQ(opened.predecessors.size(), 1u);
  EXPECT_EQ(opened.predecessors[0].stem, one);
  EXPECT_EQ(DoWork().append.data->bytes, "b") << "again, into the next file";
}

TEST_F(ProducerCoreTest, ARollOverWhoseFileWillNotOpenIsARecovery) {
  Opened(one);
  Deliver("twelve bytes");
  ASSERT_TRUE(DoWork().open);
  const auto verdict = core.OnOpenFailed(UnavailableError("disk"), At(10));
  EXPECT_EQ(core.state(), State::kRecovering);
  EXPECT_EQ(verdict.wait.millis(), 50);
  EXPECT_FALSE(Opened(two, {{one, {{12, 32}}}}).stop);
  EXPECT_EQ(core.state(), State::kAppending);
  EXPECT_EQ(core.counters().recoveries, 0);
}

TEST_F(ProducerCoreTest, APrimaryLayerThatStaysAwayEndsIt) {
  Opened(one);
  ASSERT_TRUE(Publish("a").ok());
  DoWork(0);
  Appended(Part::kData, AppendOutcome::kUnknown);
  ASSERT_TRUE(DoWork(0).open);
  EXPECT_FALSE(core.OnOpenFailed(UnavailableError("disk"), At(60'000)).stop);
  EXPECT_TRUE(core.OnOpenFailed(UnavailableError("disk"), At(60'001)).stop);
}

TEST_F(ProducerCoreTest, APrimaryLayerThatHangsIsWaitedForAndGoneOnWith) {
  const Status hangs = DeadlineExceededError("no answer in 30 s");
  Opened(one);
  ASSERT_TRUE(Publish("a").ok());
  DoWork(0);
  Appended(Part::kData, AppendOutcome::kUnknown);
  core.OnCause(hangs);
  ASSERT_TRUE(DoWork(30'000).open);
  ASSERT_TRUE(Publish("b").ok());
  for (int64_t ms = 60'000; ms <= 600'000; ms += 30'000) {
    ASSERT_FALSE(core.OnOpenFailed(hangs, At(ms)).stop) << ms;
  }
  EXPECT_EQ(core.trouble().code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(Opened({2, 2000, 0, 0}, {{one, {{0, 0}}}}).stop);
  const auto work = DoWork(600'100);
  ASSERT_TRUE(work.append.data);
  EXPECT_EQ(work.append.data->bytes.front(), 'a') << "what was not there is appended";
}

// A full disk: files can be created, but nothing can be appended to them.
TEST_F(ProducerCoreTest, FilesThatOpenAndTakeNoAppendAreTriedEverMoreSeldomAndGivenUp) {
  Opened(one);
  ASSERT_TRUE(Publish("a").ok());
  Stem stem = one;
  int64_t ms = 0;
  int files = 0;
  std::optional<Status> stop;
  while (!stop && files < 1000) {
    ASSERT_TRUE(DoWork(ms).append.data);
    Appended(Part::kData, AppendOutcome::kUnknown);
    const Work work = DoWork(ms);
    stop = work.stop;
    if (stop) break;
    ASSERT_TRUE(work.open);
    ms += work.open->wait.millis();
    const Stem before = stem;
    stem = Stem{stem.seq + 1, stem.created_us + 1, 0, 0};
    ASSERT_FALSE(Opened(stem, {{before, {{0, 0}}}}, ms).stop);
    ++files;
  }
  ASSERT_TRUE(stop);
  EXPECT_TRUE(IsUnavailable(*stop));
  EXPECT_GE(ms, 60'000);
  EXPECT_LT(files, 50);
}

TEST_F(ProducerCoreTest, AMessageThatIsDurableOrAFileThatNoneWaitsForEndsTheTrouble) {
  for (const bool durable : {true, false}) {
    ProducerCore c({{"s", stream::StreamIncarnation{3}}, 0}, Options());
    OpenedEffects opened;
    c.OnOpened(one, {}, 0, At(0), opened);
    const auto fail = [&](int64_t ms) {
      EXPECT_TRUE(c.Publish(Message("a"), kWallUs).ok());
      Work work;
      c.DoWork(At(ms), work);
      EXPECT_TRUE(work.append.data);
      AppendEffects appended;
      c.OnAppended(Part::kData, AppendOutcome::kUnknown, appended);
      work = Work();
      c.DoWork(At(ms), work);
      EXPECT_FALSE(work.stop);
      return work.open ? work.open->wait.millis() : -1;
    };
    EXPECT_EQ(fail(0), 0);
    if (durable) {  // in the next file
      c.OnOpened({2, 2000, 0, 0}, {{one, {{0, 0}}}}, 0, At(1), opened);
      Work work;
      c.DoWork(At(1), work);
      AppendEffects appended;
      c.OnAppended(Part::kData, AppendOutcome::kApplied, appended);
      c.DoWork(At(1), work);
      c.OnAppended(Part::kIndex, AppendOutcome::kApplied, appended);
    } else {  // the append had come through: none waits
      c.OnOpened({2, 2000, 1, 1}, {{one, {{1, 32}}}}, 0, At(1), opened);
    }
    EXPECT_EQ(fail(3'600'000), 0) << "another trouble";
  }
}

TEST_F(ProducerCoreTest, AFencedProducerStopsAndKnowsThatItsMessagesFailed) {
  Opened(one);
  ASSERT_TRUE(Publish("a").ok());
  DoWork();
  Appended(Part::kData, AppendOutcome::kFenced);
  ASSERT_TRUE(Publish("b").ok());
  const auto work = DoWork();
  ASSERT_TRUE(work.stop);
  EXPECT_TRUE(IsFailedPrecondition(*work.stop));
  EXPECT_THAT(work.stop->message(), HasSubstr("another producer took it over"));
  const auto lost = core.Stop(*work.stop);
  EXPECT_TRUE(lost.unknown.empty()) << "fenced before its index record";
  ASSERT_EQ(lost.failed.size(), 2u);
  EXPECT_EQ(lost.failed[0].bytes, "a");
  EXPECT_EQ(lost.failed[1].bytes, "b");
  EXPECT_EQ(core.counters().failed, 2);
  EXPECT_EQ(Publish("c").message(), work.stop->message()) << "says why";
}

TEST_F(ProducerCoreTest, WhatWasIndexedWithoutAnAnswerIsUnknownEvenToTheFenced) {
  Opened(one);
  ASSERT_TRUE(Publish("a").ok());
  DoWork();
  Appended(Part::kData);
  ASSERT_TRUE(Publish("b").ok());
  DoWork();
  Appended(Part::kIndex, AppendOutcome::kUnknown);
  Appended(Part::kData, AppendOutcome::kFenced);
  ASSERT_TRUE(DoWork().stop);
  const auto lost = core.Stop(UnavailableError("x"));
  EXPECT_EQ(lost.unknown.size(), 2u);
  EXPECT_EQ(core.counters().unknown, 2);
}

TEST_F(ProducerCoreTest, AFileThatBeginsBeforeWhatIsDurableIsDataLoss) {
  Opened(one);
  Deliver("a");
  ASSERT_TRUE(Publish("b").ok());
  DoWork();
  Appended(Part::kData, AppendOutcome::kUnknown);
  DoWork();
  const auto opened = Opened({2, 2000, 0, 0}, {{one, {{0, 0}}}});
  ASSERT_TRUE(opened.stop);
  EXPECT_TRUE(IsDataLoss(*opened.stop));
  EXPECT_EQ(core.state(), State::kRecovering);
}

TEST_F(ProducerCoreTest, WhatWasAppendedBeforeDataWasLostIsReportedUnknown) {
  Opened(one);
  int acknowledged = 0;
  for (const char* payload : {"a", "b"}) {
    Batch batch = Message(payload);
    batch.acks.emplace_back(0, [&](const Ack&) { ++acknowledged; });
    ASSERT_TRUE(core.Publish(std::move(batch), kWallUs).ok());
    DoWork();
    Appended(Part::kData, *payload == 'a' ? AppendOutcome::kApplied : AppendOutcome::kUnknown);
  }
  Appended(Part::kIndex, AppendOutcome::kUnknown);
  DoWork();
  const auto opened = Opened({2, 2000, 7, 9}, {{one, {{7, 9 * 32}}}});
  ASSERT_TRUE(opened.stop);
  EXPECT_TRUE(IsDataLoss(*opened.stop));
  EXPECT_TRUE(opened.durable.empty());
  auto lost = core.Stop(*opened.stop);
  for (Batch& batch : lost.unknown) {
    for (auto& [index, ack] : batch.acks) ack(Ack());
  }
  EXPECT_EQ(acknowledged, 2);
  EXPECT_EQ(core.counters().unknown, 2);
}

TEST_F(ProducerCoreTest, ClosingFlushesSealsWaitsForTheShadowAndTheReplicas) {
  ProducerCoreOptions options = Options();
  options.append.flush_interval = Duration::Seconds(10);
  ProducerCore slow({{"s", stream::StreamIncarnation{3}}, 0}, options);
  OpenedEffects opened;
  slow.OnOpened(one, {}, 0, At(0), opened);
  Work work;
  AppendEffects appended;
  const auto step = [&](int64_t ms, bool shadowed) {
    work = Work();
    appended = AppendEffects();
    slow.DoWork(At(ms), work);
    slow.FinishClose(At(ms), shadowed, work);
  };
  ASSERT_TRUE(slow.Publish(Message("a"), kWallUs).ok());
  step(0, false);
  slow.OnAppended(Part::kData, AppendOutcome::kApplied, appended);
  ASSERT_TRUE(slow.Publish(Message("b"), kWallUs).ok());
  step(1, false);
  EXPECT_FALSE(work.append.data) << "waits for the interval";
  slow.Close(At(1), Duration::Seconds(2));
  EXPECT_THAT(slow.Publish(Message("c"), kWallUs).message(), HasSubstr("closing"));
  slow.OnAppended(Part::kIndex, AppendOutcome::kApplied, appended);
  step(1, false);
  EXPECT_TRUE(work.append.data) << "does not wait any more";
  EXPECT_FALSE(work.seal);
  slow.OnAppended(Part::kData, AppendOutcome::kApplied, appended);
  step(2, false);
  slow.OnAppended(Part::kIndex, AppendOutcome::kApplied, appended);
  step(3, true);
  ASSERT_TRUE(work.seal);
  EXPECT_EQ(*work.seal, (stream::Seal{{2, 64}}));
  EXPECT_EQ(slow.state(), State::kSealed);
  EXPECT_FALSE(work.leave) << "nobody has the seal yet";
  step(4, false);
  EXPECT_FALSE(work.leave);
  step(5, true);
  EXPECT_TRUE(work.leave);
  step(6, true);
  EXPECT_FALSE(work.leave) << "once";
  EXPECT_FALSE(work.stop);
  slow.Stop(OkStatus());
  EXPECT_EQ(slow.state(), State::kStopped);
  EXPECT_TRUE(slow.status().ok());
  EXPECT_THAT(slow.Publish(Message("c"), kWallUs).message(), HasSubstr("closed"));
}

TEST_F(ProducerCoreTest, ClosingDoesNotWaitLongerThanItsLimitForTheCaches) {
  for (const bool leaving : {false, true}) {
    ProducerCore c({{"s", stream::StreamIncarnation{3}}, 0}, Options());
    OpenedEffects opened;
    c.OnOpened(one, {}, 0, At(0), opened);
    c.Close(At(0), Duration::Seconds(2));
    Work work;
    c.FinishClose(At(0), false, work);
    ASSERT_TRUE(work.seal);
    c.FinishClose(At(1), leaving, work);
    EXPECT_EQ(work.leave, leaving);
    c.FinishClose(At(1999), false, work);
    EXPECT_FALSE(work.stop);
    c.FinishClose(At(2000), false, work);
    ASSERT_TRUE(work.stop);
    EXPECT_TRUE(work.stop->ok());
  }
}

TEST_F(ProducerCoreTest, ClosingWaitsForWhatIsNotDurableHoweverLong) {
  Opened(one);
  ASSERT_TRUE(Publish("a").ok());
  DoWork();
  core.Close(At(0), Duration::Seconds(2));
  EXPECT_FALSE(DoWork(5000).stop);
  Appended(Part::kData);
  DoWork(5000);
  Appended(Part::kIndex);
  const auto work = DoWork(5000);
  EXPECT_TRUE(work.seal);
  EXPECT_TRUE(work.stop) << "for the caches there is no time left";
}

TEST_F(ProducerCoreTest, ClosingOpensAnotherFileOnlyForWhatThisOneHasNoRoomFor) {
  Opened(one);
  Deliver("twelve bytes");
  core.Close(At(0), Duration::Seconds(2));
  auto work = DoWork(0);
  EXPECT_FALSE(work.open);
  EXPECT_TRUE(work.seal);
}

TEST_F(ProducerCoreTest, ClosingWhileARollOverIsUnderWayGoesOnInTheNextFile) {
  Opened(one);
  ASSERT_TRUE(Publish("twelve bytes").ok());
  ASSERT_TRUE(Publish("rest").ok());
  DoWork();
  Appended(Part::kData);
  core.Close(At(0), Duration::Seconds(2));
  DoWork();
  Appended(Part::kIndex);
  EXPECT_TRUE(DoWork().open);
  Opened(two, {{one, {{12, 32}}}});
  EXPECT_EQ(DoWork().append.data->bytes, "rest");
  Appended(Part::kData);
  DoWork();
  Appended(Part::kIndex);
  EXPECT_EQ(DoWork().seal, (stream::Seal{{4, 32}}));
}

TEST_F(ProducerCoreTest, WithoutRoomMessagesWaitAndTheReasonIsKnown) {
  Opened(one);
  Deliver("twelve bytes");
  ASSERT_TRUE(DoWork().open);
  core.OnFull(ResourceExhaustedError("no room"));
  EXPECT_TRUE(IsResourceExhausted(core.trouble()));
  ASSERT_TRUE(Publish("x").ok());
  core.Close(At(0), Duration::Seconds(1));
  EXPECT_FALSE(DoWork(5000).seal) << "what is not durable is waited for, however long";
  Opened(two, {{one, {{12, 32}}}});
  EXPECT_TRUE(core.trouble().ok());
  EXPECT_TRUE(DoWork().append.data);
}

TEST_F(ProducerCoreTest, ALimitIsReachedOnceHoweverManyFilesWaitForRoom) {
  const Status full = ResourceExhaustedError("no room");
  Opened(one);
  Deliver("twelve bytes");
  ASSERT_TRUE(DoWork().open);
  EXPECT_TRUE(core.OnFull(full));
  EXPECT_FALSE(core.OnFull(full)) << "looked for again";
  Opened(two, {{one, {{12, 32}}}});
  Deliver("twelve bytes");
  ASSERT_TRUE(DoWork().open);
  EXPECT_FALSE(core.OnFull(full)) << "it is still there";
  Opened(three, {{two, {{12, 32}}}});
  Deliver("twelve bytes");
  ASSERT_TRUE(DoWork().open);
  Opened(four, {{three, {{12, 32}}}});  // at once
  Deliver("twelve bytes");
  ASSERT_TRUE(DoWork().open);
  EXPECT_TRUE(core.OnFull(full));
}

TEST_F(ProducerCoreTest, WhoClosesWithoutRoomForAnotherFileNeedsNone) {
  Opened(one);
  Deliver("twelve bytes");
  ASSERT_TRUE(DoWork().open);
  core.Close(At(0), Duration::Seconds(1));
  EXPECT_FALSE(DoWork().seal) << "the next file may come";
  core.OnFull(ResourceExhaustedError("no room"));
  const Work work = DoWork();
  ASSERT_TRUE(work.seal);
  EXPECT_EQ(*work.seal, (stream::Seal{{12, 32}}));
  EXPECT_EQ(core.state(), State::kSealed);
  EXPECT_TRUE(DoWork(0, true).leave);
}

TEST_F(ProducerCoreTest, AnErrorOfThePrimaryLayerIsNotLackOfRoom) {
  Opened(one);
  Deliver("twelve bytes");
  ASSERT_TRUE(DoWork().open);
  core.OnFull(ResourceExhaustedError("no room"));
  core.OnOpenFailed(UnavailableError("no disk"), At(0));
  EXPECT_TRUE(IsUnavailable(core.trouble()));
}

TEST_F(ProducerCoreTest, AStepThatNoStateKnowsIsOurOwnBug) {
  Opened(one);
  EXPECT_DEATH(Opened(one), "from state");
}

}  // namespace
}  // namespace tailcast::producer
