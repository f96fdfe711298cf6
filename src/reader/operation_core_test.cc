#include "tailcast/reader/operation_core.h"

#include <memory>
#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace tailcast::reader {
namespace {

using stream::Layer;
using stream::PairMetadata;
using stream::Part;
using Phase = OperationCore::Phase;

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

class OperationCoreTest : public ::testing::Test {
 protected:
  static constexpr Duration kTicks = Duration::Millis(50);
  static constexpr Duration kStuckAfter = Duration::Seconds(2);

  void Make(Layer layer, bool fresh) {
    stream::Operation operation;
    operation.target.file.shard.stream = {"flights", stream::StreamIncarnation{5}};
    operation.target.file.stem = {7, 1000, 4096, 3};
    operation.target.layer = layer;
    operation.target.cell = "eu";
    operation.id = {stream::Term{.attempt = 7}, stream::Nonce{1}};
    operation.source_cell = "us";
    operation.chunk_size = 512;
    operation.fresh = fresh;
    operation.stuck_after = kStuckAfter;
    operation.stuck_at_first = stuck_at_first_;
    core_ = std::make_unique<OperationCore>(options_, operation, counters_, now_);
  }
  OperationCore& core() { return *core_; }

  Effects Opened(int64_t data = 0, int64_t index = 0) {
    v1::CopyReply reply;
    reply.mutable_opened()->set_data_length(data);
    reply.mutable_opened()->set_index_length(index);
    reply.mutable_opened()->set_window_bytes(1 << 20);
    return Reply(reply);
  }
  Effects Progress(int64_t data, int64_t index) {
    v1::CopyReply reply;
    reply.mutable_progress()->set_data_length(data);
    reply.mutable_progress()->set_index_length(index);
    reply.mutable_progress()->set_busy_us((now_ - At(1000)).micros());  // all the time
    return Reply(reply);
  }
  Effects Reply(const v1::CopyReply& reply) {
    Effects out;
    core().OnReply(now_, reply, out);
    return out;
  }
  Effects Closed(const Status& status) {
    Effects out;
    core().OnClosed(status, out);
    return out;
  }
  Effects Tick(Duration after) {
    now_ = now_ + after;
    Effects out;
    core().OnTick(now_, queued_, out);
    return out;
  }
  // The loop turns for so long, or until the operation ends.
  Effects TickFor(Duration time) {
    Effects out;
    for (Duration gone; gone < time && !core().ended(); gone = gone + kTicks) out = Tick(kTicks);
    return out;
  }
  // Both layers have these lengths.
  Effects Source(int64_t data, int64_t index) {
    PairMetadata pair;
    pair.created_us = 1000;
    pair.cache_length[0] = pair.primary_length[0] = data;
    pair.cache_length[1] = pair.primary_length[1] = index;
    Effects out;
    core().OnMetadata(now_, pair, {}, out);
    return out;
  }
  Effects Seal(int64_t data, int64_t index) {
    Effects out;
    core().OnSeal(now_, data, index, out);
    return out;
  }
  // Reads all that may be read now, up to `end` at most; the bytes that leave.
  int64_t ReadAll(int64_t end = INT64_MAX) {
    int64_t sent = 0;
    while (const auto read = core().NextRead(now_, 0)) {
      stream::RangeResult result;
      result.end = std::min(end, read->to);
      const int64_t base = read->from - read->from % 512;
      const auto bytes = core().OnRead(now_, *read, result, base,
                                       std::string(static_cast<size_t>(read->to - base), 'a'));
      if (bytes) sent += static_cast<int64_t>(bytes->bytes().bytes().size());
    }
    return sent;
  }

  v1::OperationReport Waits() {
    v1::OperationReport report;
    core().Report(now_, &report);
    return report;
  }

  MetricRegistry metrics_;
  Counters counters_{metrics_};
  ReaderOptions options_;
  Duration stuck_at_first_ = kStuckAfter;
  int64_t queued_ = 0;  // in the stream
  MonotonicTime now_ = At(1000);

 private:
  std::unique_ptr<OperationCore> core_;
};

TEST_F(OperationCoreTest, AFreshOperationReadsBeforeTheWriterAnswered) {
  Make(Layer::kCache, true);
  EXPECT_TRUE(Source(100, 32).do_work);
  EXPECT_EQ(ReadAll(), 132);
  EXPECT_EQ(core().phase(), Phase::kOpening);
}

TEST_F(OperationCoreTest, AKnownFileWaitsForWhatTheWriterHas) {
  Make(Layer::kPrimary, false);
  Source(100, 32);
  EXPECT_EQ(ReadAll(), 0);
  const Effects out = Opened(60, 0);
  EXPECT_TRUE(out.do_work);
  EXPECT_TRUE(out.changed);
  EXPECT_TRUE(out.opened);
  EXPECT_EQ(core().phase(), Phase::kCopying);
  EXPECT_EQ(ReadAll(), 40 + 32);
}

TEST_F(OperationCoreTest, NothingIsReadWhileTheStreamIsFull) {
  Make(Layer::kCache, true);
  Source(100, 32);
  EXPECT_FALSE(core().NextRead(now_, options_.queued_bytes_max));
  EXPECT_TRUE(core().NextRead(now_, options_.queued_bytes_max - 1));
}

// --- back-pressure

TEST_F(OperationCoreTest, AWindowThatIsFullForASecondIsWaitedFor) {
  Make(Layer::kPrimary, true);
  Opened();
  Source(4 << 20, 32);
  EXPECT_EQ(ReadAll(), (1 << 20) + 32) << "the window";
  TickFor(Duration::Millis(900));
  EXPECT_EQ(Waits().waits_for(), v1::WAITS_FOR_NOBODY) << "under way";
  TickFor(Duration::Millis(300));
  EXPECT_EQ(Waits().waits_for(), v1::WAITS_FOR_WRITER);
  EXPECT_EQ(Waits().waits_us(), 1'200'000) << "since the first byte that it lacks came";
  Progress(1 << 20, 32);
  ReadAll();
  TickFor(Duration::Millis(500));
  EXPECT_EQ(Waits().waits_us(), 1'700'000) << "it gets on, and is behind";
  for (int64_t at = 2 << 20; at <= 4 << 20; at += 1 << 20) {
    Progress(at, 32);
    ReadAll();
  }
  TickFor(Duration::Millis(1100));
  EXPECT_EQ(Waits().waits_for(), v1::WAITS_FOR_NOBODY);
  EXPECT_EQ(Waits().waits_us(), 0);
}

TEST_F(OperationCoreTest, AStreamThatTakesNothingIsTheLinksAndAReadThatHangsTheSources) {
  Make(Layer::kPrimary, true);
  Opened();
  Source(4 << 20, 32);
  queued_ = options_.queued_bytes_max;
  TickFor(Duration::Millis(1500));
  EXPECT_EQ(Waits().waits_for(), v1::WAITS_FOR_LINK);
  queued_ = 0;
  auto read = core().NextRead(now_, 0);
  ASSERT_TRUE(read);
  TickFor(Duration::Millis(200));
  EXPECT_EQ(Waits().waits_for(), v1::WAITS_FOR_LINK) << "most of the looks";
  for (int i = 1; i <= 20; ++i) {  // something comes, far from all
    stream::RangeResult result;
    result.end = read->from + 1000;
    core().OnRead(now_, *read, result, read->from, std::string(1000, 'a'));
    Progress(result.end, 0);
    Tick(kTicks);
    read = core().NextRead(now_, 0);
    ASSERT_TRUE(read);
  }
  EXPECT_EQ(Waits().waits_for(), v1::WAITS_FOR_SOURCE);
  EXPECT_LT(Waits().waits_us(), 1'500'000) << "since the end changed";
}

// The window is full though the writer writes at once whatever comes.
TEST_F(OperationCoreTest, AWriterThatIsIdleMostOfTheTimeWaitsForTheLinkItself) {
  for (const auto& [busy_percent, end] :
       {std::pair(10, v1::WAITS_FOR_LINK), {90, v1::WAITS_FOR_WRITER}}) {
    Make(Layer::kPrimary, true);
    Opened();
    Source(64 << 20, 32);
    for (int i = 1; i <= 10; ++i) {
      ReadAll();
      TickFor(Duration::Millis(250));
      v1::CopyReply reply;
      reply.mutable_progress()->set_data_length(int64_t{i} << 18);
      reply.mutable_progress()->set_index_length(32);
      reply.mutable_progress()->set_busy_us(int64_t{i} * 250'000 * busy_percent / 100);
      Reply(reply);
    }
    ReadAll();
    TickFor(Duration::Millis(100));
    EXPECT_EQ(Waits().waits_for(), end) << busy_percent;
  }
}

TEST_F(OperationCoreTest, AStreamThatFlowsWaitsForNobody) {
  Make(Layer::kCache, true);
  Opened();
  for (int64_t at = 1000; at < 100'000; at += 1000) {
    Source(at, 0);
    ReadAll();
    TickFor(Duration::Millis(100));
    Progress(at - 500, 0);  // never quite there
    ASSERT_EQ(Waits().waits_for(), v1::WAITS_FOR_NOBODY) << at;
  }
}

TEST_F(OperationCoreTest, AReadThatComesShortPausesUntilTheNextTick) {
  Make(Layer::kCache, true);
  Source(100, 0);
  EXPECT_EQ(ReadAll(70), 70);
  EXPECT_FALSE(core().NextRead(now_, 0));
  EXPECT_TRUE(Tick(Duration::Millis(50)).do_work);
  EXPECT_EQ(ReadAll(), 30);
  EXPECT_EQ(counters_.short_reads.value(), 1);
  v1::OperationReport report;
  core().Report(now_, &report);
  EXPECT_EQ(report.sent_bytes(), 100);
}

TEST_F(OperationCoreTest, AReadOfAnOperationThatEndedIsNotSent) {
  Make(Layer::kCache, true);
  Source(100, 0);
  const auto read = core().NextRead(now_, 0);
  ASSERT_TRUE(read);
  Effects out;
  core().Stop(v1::CAUSE_STOPPED, "enough", out);
  EXPECT_TRUE(out.ended);
  stream::RangeResult result;
  result.end = 100;
  EXPECT_FALSE(core().OnRead(now_, *read, result, 0, std::string(100, 'a')));
  EXPECT_EQ(counters_.sent_bytes.value(), 0);
}

TEST_F(OperationCoreTest, ASuccessorsStartIsTheSeal) {
  Make(Layer::kCache, true);
  PairMetadata next;
  next.created_us = 2000;
  next.start_byte = 4096 + 100;
  next.start_number = 3 + 2;
  Effects out;
  core().OnMetadata(now_, {}, next, out);
  const auto message = core().NextMessage();
  ASSERT_TRUE(message);
  EXPECT_EQ(message->seal().data_length(), 100);
  EXPECT_EQ(message->seal().index_length(), 64);
  EXPECT_FALSE(core().NextMessage()) << "told once";
}

TEST_F(OperationCoreTest, TwoSealsThatDifferEndItWithDataLoss) {
  Make(Layer::kCache, true);
  Seal(100, 32);
  EXPECT_TRUE(Seal(101, 32).ended);
  EXPECT_EQ(core().ending().cause, v1::CAUSE_DATA_LOSS);
}

TEST_F(OperationCoreTest, ItIsDoneWhenTheWriterClosesWithOkAtTheSeal) {
  Make(Layer::kPrimary, true);
  Source(100, 32);
  Seal(100, 32);
  Opened();
  ReadAll();
  Progress(100, 32);
  EXPECT_TRUE(Closed(OkStatus()).ended);
  EXPECT_EQ(core().ending().state, v1::OPERATION_DONE);
  EXPECT_EQ(counters_.done.value(), 1);
}

TEST_F(OperationCoreTest, AnOkBeforeTheSealIsALostWriter) {
  Make(Layer::kPrimary, true);
  Opened();
  Closed(OkStatus());
  EXPECT_EQ(core().ending().state, v1::OPERATION_FAILED);
  EXPECT_EQ(core().ending().cause, v1::CAUSE_WRITER_LOST);
}

TEST_F(OperationCoreTest, TheCauseOfAFailureFollowsTheWritersStatus) {
  struct Case {
    Status status;
    v1::FailureCause cause;
  };
  for (const auto& [status, cause] : {Case{AbortedError("x"), v1::CAUSE_SUPERSEDED},
                                      Case{DataLossError("x"), v1::CAUSE_DATA_LOSS},
                                      Case{OutOfRangeError("x"), v1::CAUSE_REFUSED},
                                      Case{ResourceExhaustedError("x"), v1::CAUSE_REFUSED},
                                      Case{InvalidArgumentError("x"), v1::CAUSE_REFUSED},
                                      Case{UnavailableError("x"), v1::CAUSE_WRITER_LOST},
                                      Case{CancelledError("x"), v1::CAUSE_WRITER_LOST}}) {
    Make(Layer::kCache, true);
    EXPECT_TRUE(Closed(status).ended);
    EXPECT_EQ(core().ending().cause, cause) << status;
  }
}

TEST_F(OperationCoreTest, WhoSupersededItIsReported) {
  Make(Layer::kCache, true);
  v1::CopyReply reply;
  reply.mutable_superseded()->set_term(9);
  Reply(reply);
  Closed(AbortedError("superseded"));
  v1::OperationReport report;
  core().Report(now_, &report);
  EXPECT_EQ(report.superseding_term(), 9u);
  EXPECT_EQ(report.state(), v1::OPERATION_FAILED);
}

TEST_F(OperationCoreTest, AWriterThatDoesNotGetOnIsGivenUp) {
  Make(Layer::kCache, true);
  Source(100, 0);
  Opened();
  ReadAll();
  EXPECT_FALSE(TickFor(kStuckAfter).ended);
  EXPECT_TRUE(TickFor(kTicks * 2).ended);
  EXPECT_EQ(core().ending().cause, v1::CAUSE_WRITER_LOST);
  EXPECT_EQ(counters_.stuck_writers.value(), 1);
}

// Each append takes longer than stuck_after.
TEST_F(OperationCoreTest, ASlowWriterIsLearnedAndKept) {
  stuck_at_first_ = kStuckAfter * 2;
  Make(Layer::kCache, true);
  Source(100, 0);
  Opened();
  ReadAll();
  for (int i = 1; i <= 10; ++i) {
    EXPECT_FALSE(TickFor(kStuckAfter * 5 / 4).ended) << i;
    Progress(i, 0);
  }
  EXPECT_TRUE(TickFor(kStuckAfter * 3).ended);
}

TEST_F(OperationCoreTest, APartThatHangsIsNotHiddenByTheOther) {
  Make(Layer::kCache, true);
  Opened();
  bool ended = false;
  int64_t data = 0;
  for (; data < 100 && !ended; ++data) {
    Source(data * 10 + 10, 32);
    ReadAll();
    Progress(data * 10 + 10, 0);
    ended = Tick(kTicks).ended;
  }
  EXPECT_TRUE(ended) << "its index hangs";
  EXPECT_EQ(core().ending().cause, v1::CAUSE_WRITER_LOST);
}

TEST_F(OperationCoreTest, AnIndexThatWaitsForDataOfTheSourceIsTheSources) {
  Make(Layer::kPrimary, true);
  Source(100, 32);
  Opened();
  const auto data = core().NextRead(now_, 0);
  ASSERT_TRUE(data);
  ASSERT_EQ(data->part, stream::Part::kData);
  EXPECT_EQ(ReadAll(), 32) << "the index goes out, and its data does not come";
  EXPECT_TRUE(TickFor(kStuckAfter * 2).ended);
  EXPECT_EQ(core().ending().cause, v1::CAUSE_SOURCE);
}

TEST_F(OperationCoreTest, WhoIsToldNothingOfTheSourceIsStuckToo) {
  Make(Layer::kPrimary, true);
  Opened();
  EXPECT_FALSE(TickFor(kStuckAfter).ended);
  const Effects out = TickFor(kStuckAfter * 2);
  EXPECT_TRUE(out.ended) << "sizes were asked, and nobody answers";
  EXPECT_EQ(core().ending().cause, v1::CAUSE_SOURCE);
}

TEST_F(OperationCoreTest, AnOverloadedReadersTicksCountAsTheyAre) {
  Make(Layer::kCache, true);
  Source(100, 0);
  Opened();
  ReadAll();
  Effects out;
  MonotonicTime begin = now_;
  while (!out.ended && now_ < begin + kStuckAfter * 3) out = Tick(kTicks * 3);
  EXPECT_LE(now_ - begin, kStuckAfter + kTicks * 6);
}

TEST_F(OperationCoreTest, AWriterThatGetsOnSlowlyIsNot) {
  Make(Layer::kCache, true);
  Source(100, 0);
  Opened();
  ReadAll();
  for (int i = 1; i <= 5; ++i) {
    EXPECT_FALSE(TickFor(kStuckAfter).ended);
    Progress(i, 0);
  }
  bool ended = false;
  for (int i = 0; i < 3 && !ended; ++i) {
    Progress(5, 0);
    ended = TickFor(kStuckAfter).ended;
  }
  EXPECT_TRUE(ended) << "to say the same again is not to get on";
}

TEST_F(OperationCoreTest, AfterFailuresItHasMoreTimeToGetOnForTheFirstTime) {
  stuck_at_first_ = kStuckAfter * 4;
  Make(Layer::kCache, true);
  Source(100, 0);
  Opened();
  ReadAll();
  EXPECT_FALSE(TickFor(kStuckAfter * 4).ended);
  EXPECT_TRUE(TickFor(kTicks * 2).ended);
}

TEST_F(OperationCoreTest, AReadThatHangsIsTheSources) {
  Make(Layer::kPrimary, true);
  Source(100, 0);
  Opened();
  ASSERT_TRUE(core().NextRead(now_, 0));
  EXPECT_FALSE(TickFor(kStuckAfter).ended);
  EXPECT_TRUE(TickFor(kTicks * 2).ended);
  EXPECT_EQ(core().ending().cause, v1::CAUSE_SOURCE);
  EXPECT_EQ(counters_.stuck_sources.value(), 1);
}

TEST_F(OperationCoreTest, ASourceThatNeverHasWhatItSaidIsGivenUp) {
  Make(Layer::kPrimary, true);
  Source(100, 0);
  Opened();
  EXPECT_EQ(ReadAll(70), 70);
  Progress(70, 0);
  Effects out;
  for (int i = 0; i < 100 && !out.ended; ++i) {
    ReadAll(70);
    out = Tick(kTicks);
  }
  EXPECT_TRUE(out.ended);
  EXPECT_EQ(core().ending().cause, v1::CAUSE_SOURCE);
}

TEST_F(OperationCoreTest, WithNothingToDoNobodyIsStuck) {
  Make(Layer::kCache, true);
  Opened();
  for (int i = 0; i < 20; ++i) {
    Source(0, 0);
    EXPECT_FALSE(TickFor(kStuckAfter / 2).ended);
  }
}

TEST_F(OperationCoreTest, TheReadersOwnStallIsNobodysFault) {
  Make(Layer::kCache, true);
  Source(100, 0);
  Opened();
  ReadAll();
  EXPECT_FALSE(Tick(kStuckAfter * 3).ended);
  EXPECT_FALSE(TickFor(kStuckAfter - kTicks * 2).ended);
  EXPECT_TRUE(TickFor(kTicks * 4).ended);
}

TEST_F(OperationCoreTest, AWriterThatIsThroughMayTakeItsTimeToClose) {
  Make(Layer::kCache, true);
  Source(100, 0);
  Seal(100, 0);
  Opened();
  ReadAll();
  Progress(100, 0);
  EXPECT_FALSE(TickFor(kStuckAfter * 2).ended);
  EXPECT_TRUE(TickFor(options_.end_timeout).ended);
}

TEST_F(OperationCoreTest, PrimaryOperationsAskForSizesOnceASecond) {
  Make(Layer::kPrimary, true);
  Opened();
  EXPECT_FALSE(Tick(Duration::Millis(999)).ask_sizes);
  EXPECT_TRUE(Tick(Duration::Millis(1)).ask_sizes);
  EXPECT_FALSE(Tick(Duration::Seconds(2)).ask_sizes) << "not answered yet";
  Effects out;
  core().OnPrimarySize(now_, Part::kData, Result<int64_t>(100), out);
  EXPECT_TRUE(out.do_work);
  core().OnPrimarySize(now_, Part::kIndex, Result<int64_t>(NotFoundError("not yet")), out);
  EXPECT_EQ(core().copy().available(Part::kData), 100);
  EXPECT_EQ(counters_.source_errors.value(), 0) << "the cache copy may run ahead";
  EXPECT_TRUE(Tick(Duration::Seconds(1)).ask_sizes);
}

TEST_F(OperationCoreTest, CacheOperationsAskOnlyWhenTheMetadataCacheKnowsNothing) {
  Make(Layer::kCache, true);
  Opened();
  for (int i = 0; i < 5; ++i) {
    Source(0, 0);
    EXPECT_FALSE(Tick(Duration::Seconds(1)).ask_sizes);
  }
  EXPECT_TRUE(Tick(Duration::Seconds(1)).ask_sizes);
}

TEST_F(OperationCoreTest, ACompleteSourceIsNotAskedAnyMore) {
  Make(Layer::kPrimary, true);
  Opened();
  Source(100, 32);
  Seal(100, 32);
  Progress(0, 0);
  EXPECT_FALSE(Tick(Duration::Seconds(2)).ask_sizes);
}

TEST_F(OperationCoreTest, AnAnswerAboutSizesThatNobodyAskedForIsIgnored) {
  Make(Layer::kPrimary, true);
  Effects out;
  core().OnPrimarySize(now_, Part::kData, Result<int64_t>(100), out);
  EXPECT_EQ(core().copy().available(Part::kData), 0);
}

TEST_F(OperationCoreTest, WhatAWriterMayNotSayEndsIt) {
  Make(Layer::kCache, true);
  EXPECT_TRUE(Progress(1, 0).ended) << "before it opened";
  Make(Layer::kCache, true);
  Opened();
  EXPECT_TRUE(Opened().ended) << "twice";
  Make(Layer::kCache, true);
  Effects out;
  core().OnWrongMessage(InvalidArgumentError("not valid"), out);
  EXPECT_TRUE(out.ended);
  EXPECT_EQ(counters_.rejected_input.value(), 3);
}

TEST_F(OperationCoreTest, AnEndedOperationIgnoresWhatComes) {
  for (const bool opened : {false, true}) {
    Make(Layer::kCache, true);
    if (opened) Opened();
    Closed(UnavailableError("gone"));
    for (const Effects& out : {Opened(), Progress(5, 5), Source(100, 32), Seal(1, 0),
                               Closed(DataLossError("late")), Tick(Duration::Seconds(60))}) {
      EXPECT_FALSE(out.do_work || out.ask_sizes || out.changed || out.ended);
    }
    EXPECT_EQ(core().ending().cause, v1::CAUSE_WRITER_LOST);
    EXPECT_FALSE(core().NextMessage());
    EXPECT_FALSE(core().NextRead(now_, 0));
    EXPECT_FALSE(core().TakeHeartbeat());
  }
}

}  // namespace
}  // namespace tailcast::reader
