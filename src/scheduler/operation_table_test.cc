#include "tailcast/scheduler/operation_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::scheduler {
namespace {

using stream::Layer;
using stream::OperationTarget;
using stream::Term;
using ::testing::ElementsAre;

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

const stream::ShardId kShard{{"s", stream::StreamIncarnation{7}}, 0};
OperationTarget Target(int64_t seq, Layer layer = Layer::kPrimary, const std::string& cell = "b") {
  return {{kShard, {seq, 1000 + seq, (seq - 1) * 100, (seq - 1) * 2}}, layer, cell};
}

constexpr Phase kPhases[] = {Phase::kHeld,    Phase::kWanted, Phase::kStarting,
                             Phase::kRunning, Phase::kDone,   Phase::kGivenUp};

class OperationTableTest : public ::testing::Test {
 protected:
  using Row = OperationTable::Row;
  static constexpr stream::TreeVersion kTree{3};
  static constexpr stream::SchedulerIncarnation kScheduler{5};

  // A row that went to the phase on the shortest way.
  Row MakeRow(int64_t seq, Phase phase) {
    const Row row = table_.Add(Target(seq), true).first;
    if (phase == Phase::kHeld) return row;
    if (phase == Phase::kDone) {
      table_.Finish(row);
      return row;
    }
    if (phase == Phase::kGivenUp) {
      table_.GiveUp(row, "why");
      return row;
    }
    table_.Release(At(seq), row);
    if (phase == Phase::kWanted) return row;
    table_.Start(row, kTree, {"r0", "w0", "b:1", ""}, {});
    if (phase == Phase::kRunning) table_.Confirm(row);
    return row;
  }

  void Report(MonotonicTime now, Row row, bool opened, int64_t length) {
    v1::OperationReport report;
    report.set_opened(opened);
    report.set_data_length(length);
    table_.Note(now, row, report);
  }

  static constexpr Duration kStuckAfter = Duration::Seconds(2);
  WorkerTable workers_{{}};
  OperationTable table_{{.incarnation = kScheduler, .stuck_after = kStuckAfter}, workers_, 1};
};

TEST_F(OperationTableTest, TheDiagramIsWhatMayFollow) {
  const auto after = [](Phase from) {
    std::vector<std::string> phases;
    for (const Phase to : kPhases) {
      if (MayFollow(from, to)) phases.emplace_back(PhaseName(to));
    }
    return phases;
  };
  EXPECT_THAT(after(Phase::kHeld), ElementsAre("wanted", "running", "done", "given up"));
  EXPECT_THAT(after(Phase::kWanted), ElementsAre("wanted", "starting", "running", "given up"));
  EXPECT_THAT(after(Phase::kStarting), ElementsAre("wanted", "running", "done", "given up"));
  EXPECT_THAT(after(Phase::kRunning), ElementsAre("wanted", "running", "done", "given up"));
  EXPECT_THAT(after(Phase::kDone), ElementsAre("held"));
  EXPECT_THAT(after(Phase::kGivenUp), ElementsAre("running"));
}

TEST_F(OperationTableTest, CountersAndLoadsFollowThePhase) {
  for (const Phase phase : kPhases) {
    SCOPED_TRACE(PhaseName(phase));
    const Row row = MakeRow(1, phase);
    EXPECT_EQ(row->second.phase, phase);
    EXPECT_EQ(table_.held().size(), phase == Phase::kHeld ? 1u : 0u);
    EXPECT_EQ(table_.NextDueAt(), phase == Phase::kWanted ? At(1) : MonotonicTime::Max());
    EXPECT_EQ(table_.starting(), phase == Phase::kStarting ? 1 : 0);
    EXPECT_EQ(table_.unfinished(), IsOver(phase) ? 0 : 1);
    EXPECT_EQ(workers_.ReaderLoad("r0").operations, IsAssigned(phase) ? 1 : 0);
    EXPECT_EQ(workers_.WriterLoad("b", "w0").operations, IsAssigned(phase) ? 1 : 0);
    EXPECT_EQ(table_.AssignedTo("r0").size(), IsAssigned(phase) ? 1u : 0u);
    EXPECT_EQ(table_.LowestHeld(kShard, "b"), phase == Phase::kHeld ? 1 : 0);

    EXPECT_EQ(table_.Remove(row), table_.end());
    EXPECT_TRUE(table_.held().empty());
    EXPECT_EQ(table_.NextDueAt(), MonotonicTime::Max());
    EXPECT_EQ(table_.starting(), 0);
    EXPECT_EQ(table_.unfinished(), 0);
    EXPECT_EQ(workers_.ReaderLoad("r0").operations, 0);
    EXPECT_EQ(workers_.WriterLoad("b", "w0").operations, 0);
  }
}

TEST_F(OperationTableTest, EachAttemptHasAGreaterTermAndANonceOfItsOwn) {
  const Row row = MakeRow(1, Phase::kRunning);
  const stream::OperationId first = row->second.id;
  EXPECT_EQ(first.term, (Term{kTree, kScheduler, 1}));
  table_.Retry(At(10), row, Duration());
  ASSERT_TRUE(table_.Start(row, kTree, {"r1", "w1", "", ""}, {}));
  EXPECT_EQ(row->second.id.term, (Term{kTree, kScheduler, 2}));
  EXPECT_NE(row->second.id.nonce, first.nonce);
}

TEST_F(OperationTableTest, WhatTheTargetHasLostIsNotFreshAndHasAGreaterTermThanBefore) {
  const Row row = MakeRow(1, Phase::kDone);
  const stream::OperationId before = row->second.id;
  table_.Reopen(row);
  EXPECT_EQ(row->second.phase, Phase::kHeld);
  EXPECT_EQ(table_.unfinished(), 1);
  table_.Release(At(10), row);
  table_.SkipTo(row, 7);
  ASSERT_TRUE(table_.Start(row, kTree, {"r0", "w0", "", ""}, {}));
  EXPECT_FALSE(row->second.fresh);
  EXPECT_GT(row->second.id.term, before.term);
  EXPECT_EQ(row->second.id.term.attempt, 8u);
  table_.SkipTo(row, 3);
  EXPECT_EQ(row->second.attempt, 8u) << "it never goes back";
}

TEST_F(OperationTableTest, TheFirstFailureIsRetriedAtOnceTheOthersWithBackOff) {
  const Row row = MakeRow(1, Phase::kRunning);
  int64_t now = 1000;
  std::vector<int64_t> delays;
  for (int i = 0; i < 10; ++i) {
    table_.Retry(At(now), row, Duration());
    delays.push_back((table_.NextDueAt() - At(now)).millis());
    now += delays.back();
    table_.Start(row, kTree, {"r0", "w0", "", ""}, {});
  }
  EXPECT_THAT(delays, ElementsAre(0, 50, 100, 200, 400, 800, 1600, 3200, 5000, 5000));
  EXPECT_FALSE(row->second.fresh);
}

TEST_F(OperationTableTest, OpeningIsNotGettingOn) {
  const Row row = MakeRow(1, Phase::kRunning);
  for (int failures = 1; failures <= 3; ++failures) {
    Report(At(failures), row, false, 0);
    EXPECT_EQ(row->second.written[0], failures == 1 ? 0 : 1000) << "it says nothing of the target";
    Report(At(failures), row, true, 1000);
    table_.Retry(At(failures), row, Duration());
    EXPECT_EQ(row->second.failures_left, failures);
    EXPECT_EQ(table_.NextDueAt(), At(failures)) << "who could open is tried again at once";
    table_.Start(row, kTree, {"r0", "w0", "", ""}, {});
  }
  EXPECT_EQ(table_.StuckAtFirst(row), kStuckAfter * 8);
  Report(At(10), row, false, 0);
  Report(At(10), row, true, 1000);
  EXPECT_EQ(row->second.failures_left, 3);
  Report(At(11), row, true, 1001);
  EXPECT_EQ(row->second.failures_left, 2);
}

TEST_F(OperationTableTest, FailuresAreForgottenOneByOneWhileItGetsOn) {
  const Row row = MakeRow(1, Phase::kRunning);
  for (int i = 0; i < 20; ++i) {
    table_.Retry(At(i), row, Duration());
    table_.Start(row, kTree, {"r0", "w0", "", ""}, {});
  }
  EXPECT_EQ(table_.StuckAtFirst(row), kStuckAfter * 16);
  std::vector<int64_t> at_s;  // from the first that gets on
  Report(At(1000), row, true, 1);
  for (int64_t s = 0, failures = 20; s <= 100; ++s) {
    Report(At(1000 * (s + 1)), row, true, 2 + s);
    if (row->second.failures_left == failures) continue;
    failures = row->second.failures_left;
    at_s.push_back(s);
  }
  EXPECT_EQ(row->second.failures_left, 0);
  EXPECT_THAT(at_s, ElementsAre(0, 16, 24, 28)) << "more than four count for no more than these";
}

TEST_F(OperationTableTest, AReportWithANegativeLengthIsNone) {
  const Row row = MakeRow(1, Phase::kRunning);
  v1::OperationReport report;
  report.set_opened(true);
  report.set_source_data_length(100);
  report.set_data_length(60);
  table_.Note(At(1), row, report);
  v1::OperationReport bad = report;
  bad.set_source_data_length(INT64_MAX);
  bad.set_data_length(INT64_MIN);
  table_.Note(At(2), row, bad);
  EXPECT_EQ(row->second.source[0], 100);
  EXPECT_EQ(row->second.written[0], 60);
}

TEST_F(OperationTableTest, ACauseMayAskForALongerDelayThanTheBackOff) {
  const Row row = MakeRow(1, Phase::kStarting);
  table_.Retry(At(0), row, Duration::Millis(700));
  EXPECT_EQ(table_.NextDueAt(), At(700));
}

TEST_F(OperationTableTest, WantedOnesAreDueInTheOrderOfTheirTimes) {
  MakeRow(20, Phase::kWanted);
  const Row second = MakeRow(10, Phase::kWanted);
  EXPECT_EQ(table_.NextDue(At(9)), table_.end());
  EXPECT_EQ(table_.NextDue(At(10)), second);
  table_.Postpone(At(30), second);
  EXPECT_EQ(table_.NextDue(At(25))->first.file.stem.seq, 20);
}

TEST_F(OperationTableTest, AnOrphanIsAdoptedInAnyPhaseButDone) {
  int64_t seq = 0;
  for (const Phase phase : kPhases) {
    if (phase == Phase::kDone) continue;
    SCOPED_TRACE(PhaseName(phase));
    const Row row = MakeRow(++seq, phase);
    table_.Adopt(row, {{kTree, stream::SchedulerIncarnation{4}, 9}, stream::Nonce{77}},
                 {"r1", "w1", "b:2", ""});
    EXPECT_EQ(row->second.phase, Phase::kRunning);
    EXPECT_EQ(row->second.id.nonce, stream::Nonce{77});
    EXPECT_EQ(workers_.ReaderLoad("r1").operations, seq);
    EXPECT_EQ(workers_.WriterLoad("b", "w1").operations, seq);
  }
  EXPECT_EQ(workers_.ReaderLoad("r0").operations, 0) << "who had it before has it no more";
  EXPECT_EQ(table_.unfinished(), seq);
}

TEST_F(OperationTableTest, AnOperationMovesWithoutAFailure) {
  const Row row = MakeRow(1, Phase::kRunning);
  table_.Move(At(5), row);
  EXPECT_EQ(row->second.failures_left, 0);
  EXPECT_EQ(table_.NextDueAt(), At(5));
}

TEST_F(OperationTableTest, TheLowestHeldFileIsOfTheCell) {
  table_.Add(Target(4), false);
  table_.Add(Target(2, Layer::kPrimary, "c"), false);
  table_.Add(Target(3, Layer::kCache), false);
  EXPECT_EQ(table_.LowestHeld(kShard, "b"), 3);
  EXPECT_EQ(table_.LowestHeld(kShard, "c"), 2);
  EXPECT_EQ(table_.LowestHeld(kShard, "d"), 0);
  EXPECT_EQ(table_.LowestHeld({{"s", stream::StreamIncarnation{8}}, 0}, "b"), 0);
}

TEST_F(OperationTableTest, AddKeepsTheOneThatIsThere) {
  const Row row = MakeRow(1, Phase::kRunning);
  const auto [again, is_new] = table_.Add(Target(1), false);
  EXPECT_FALSE(is_new);
  EXPECT_EQ(again, row);
  EXPECT_EQ(row->second.phase, Phase::kRunning);
}

using OperationTableDeathTest = OperationTableTest;

TEST_F(OperationTableDeathTest, ATransitionThatIsNotDrawnIsOurBug) {
  const Row done = MakeRow(1, Phase::kDone);
  EXPECT_DEATH(table_.Adopt(done, {}, {}), "done and can't be running");
  EXPECT_DEATH(table_.Release(At(0), done), "held");
  const Row held = MakeRow(2, Phase::kHeld);
  EXPECT_DEATH(table_.Start(held, kTree, {}, {}), "held and can't be starting");
  EXPECT_DEATH(table_.Retry(At(0), held, Duration()), "started");
}

}  // namespace
}  // namespace tailcast::scheduler
