#include "tailcast/reader/operation_table.h"

#include <vector>

#include "gtest/gtest.h"

namespace tailcast::reader {
namespace {

using stream::SchedulerIncarnation;
using Verdict = OperationTable::Verdict;

stream::OperationId Id(uint32_t attempt, uint32_t nonce = 1) {
  return {stream::Term{.attempt = attempt}, stream::Nonce{nonce}};
}
stream::Operation Op(int64_t seq, uint32_t attempt, uint32_t nonce = 1) {
  stream::Operation operation;
  operation.target.file.stem.seq = seq;
  operation.id = Id(attempt, nonce);
  return operation;
}
v1::OperationReport Report(const std::string& message) {
  v1::OperationReport report;
  report.set_message(message);
  return report;
}
std::vector<uint64_t> Changed(const OperationTable& table, uint64_t known) {
  std::vector<uint64_t> numbers;
  for (const auto& [number, entry] : table.ChangedSince(known)) numbers.push_back(number);
  return numbers;
}

TEST(OperationTable, TheNewestSchedulerIsObeyed) {
  OperationTable table(10);
  EXPECT_TRUE(IsInvalidArgument(table.CheckScheduler(SchedulerIncarnation{0})));
  EXPECT_TRUE(table.CheckScheduler(SchedulerIncarnation{5}).ok());
  EXPECT_TRUE(IsFailedPrecondition(table.CheckScheduler(SchedulerIncarnation{4})));
  EXPECT_TRUE(table.CheckScheduler(SchedulerIncarnation{5}).ok());
  EXPECT_TRUE(table.CheckScheduler(SchedulerIncarnation{6}).ok());
}

TEST(OperationTable, AGreaterOperationReplacesTheOneOfItsTarget) {
  OperationTable table(10);
  EXPECT_EQ(table.Judge(Op(1, 7)).first, Verdict::kStart);
  const uint64_t first = table.Add(Op(1, 7));
  EXPECT_EQ(table.Judge(Op(1, 7)), std::make_pair(Verdict::kKnown, first)) << "asked twice";
  EXPECT_EQ(table.Judge(Op(1, 6)).first, Verdict::kLate);
  EXPECT_EQ(table.Judge(Op(1, 7, 2)), std::make_pair(Verdict::kReplace, first));
  EXPECT_EQ(table.Judge(Op(2, 1)).first, Verdict::kStart) << "of another file";
  table.OnEnded(first, Report("replaced"));
  EXPECT_EQ(table.Judge(Op(1, 8)).first, Verdict::kStart);
}

TEST(OperationTable, AnEndedOperationIsNotStartedByACallThatComesAgain) {
  OperationTable table(2);
  const auto run = [&table](int64_t seq, uint32_t attempt) {
    table.OnEnded(table.Add(Op(seq, attempt)), Report("gone"));
  };
  run(1, 7);
  EXPECT_EQ(table.Judge(Op(1, 7)), std::make_pair(Verdict::kLate, uint64_t{0}));
  EXPECT_EQ(table.Judge(Op(1, 8)).first, Verdict::kStart);
  EXPECT_EQ(table.Judge(Op(2, 7)).first, Verdict::kStart) << "of another file";
  EXPECT_EQ(table.Judge(Op(1, 6)).first, Verdict::kStart) << "its scheduler may count anew";
  EXPECT_EQ(table.Judge(Op(1, 7, 2)).first, Verdict::kStart);
  table.Acknowledge(table.version());
  EXPECT_EQ(table.Judge(Op(1, 7)).first, Verdict::kLate) << "the scheduler knows of the end";
  run(1, 9);
  EXPECT_EQ(table.Judge(Op(1, 9)).first, Verdict::kLate);
  EXPECT_EQ(table.Judge(Op(1, 7)).first, Verdict::kLate);
  run(2, 1);
  EXPECT_EQ(table.Judge(Op(1, 9)).first, Verdict::kLate);
  EXPECT_EQ(table.Judge(Op(1, 7)).first, Verdict::kStart) << "two ends are remembered";
}

TEST(OperationTable, ListsTellWhatChangedSinceTheVersionThatIsKnown) {
  OperationTable table(10);
  const uint64_t a = table.Add(Op(1, 7));
  const uint64_t b = table.Add(Op(2, 7));
  EXPECT_TRUE(table.HasNews(0));
  EXPECT_EQ(Changed(table, 0), (std::vector<uint64_t>{a, b}));
  const uint64_t known = table.version();
  EXPECT_FALSE(table.HasNews(known));
  table.OnChanged(b);
  EXPECT_FALSE(table.HasNews(known)) << "progress waits until somebody asks";
  table.OnOpened(b);
  EXPECT_TRUE(table.HasNews(known)) << "a change of the tree waits for it";
  EXPECT_FALSE(table.HasNews(table.version()));
  EXPECT_EQ(Changed(table, known), (std::vector<uint64_t>{b}));
  const uint64_t opened = table.version();
  table.OnEnded(a, Report("gone"));
  EXPECT_TRUE(table.HasNews(opened));
  EXPECT_EQ(Changed(table, known), (std::vector<uint64_t>{a, b}));
}

TEST(OperationTable, AVersionOfAnotherLifeIsToldEverything) {
  OperationTable table(10);
  const uint64_t a = table.Add(Op(1, 7));
  EXPECT_TRUE(table.MustTellAll(table.version() + 1));
  EXPECT_TRUE(table.HasNews(table.version() + 1));
  EXPECT_EQ(Changed(table, table.version() + 1), (std::vector<uint64_t>{a}));
}

TEST(OperationTable, EndedOperationsAreKeptUntilTheyAreAcknowledged) {
  OperationTable table(10);
  const uint64_t a = table.Add(Op(1, 7));
  const uint64_t before = table.version();
  table.OnEnded(a, Report("gone"));
  EXPECT_EQ(table.running(), 0);
  table.Acknowledge(before);
  table.Acknowledge(0);
  table.Acknowledge(table.version() + 1);
  ASSERT_EQ(Changed(table, 0), (std::vector<uint64_t>{a}));
  EXPECT_EQ(table.ChangedSince(0)[0].second->last_report->message(), "gone");
  table.Acknowledge(table.version());
  EXPECT_TRUE(Changed(table, 0).empty());
  table.OnChanged(a);  // late
  EXPECT_TRUE(Changed(table, 0).empty());
}

TEST(OperationTable, EndedOperationsThatNobodyAsksForAreBounded) {
  OperationTable table(2);
  std::vector<uint64_t> numbers;
  for (int64_t seq = 1; seq <= 4; ++seq) numbers.push_back(table.Add(Op(seq, 7)));
  for (int i = 0; i < 3; ++i) table.OnEnded(numbers[i], Report(""));
  EXPECT_EQ(Changed(table, 0), (std::vector<uint64_t>{numbers[1], numbers[2], numbers[3]}));
  EXPECT_EQ(table.Running(), (std::vector<uint64_t>{numbers[3]}));
}

TEST(OperationTable, FindsRunningOperationsByTheirIds) {
  OperationTable table(10);
  const uint64_t a = table.Add(Op(1, 7));
  const uint64_t b = table.Add(Op(2, 7, 2));
  table.Add(Op(3, 8));
  EXPECT_EQ(table.RunningOf({Id(7, 1), Id(7, 2), Id(9, 9)}), (std::vector<uint64_t>{a, b}));
  table.OnEnded(a, Report(""));
  EXPECT_EQ(table.RunningOf({Id(7, 1), Id(7, 2)}), (std::vector<uint64_t>{b}));
}

}  // namespace
}  // namespace tailcast::reader
