// Which operations follow from files, edges and layers, and what the answers of targets make of
// them.
#include "tailcast/scheduler/copy_set.h"

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/scheduler/tree_testing.h"

namespace tailcast::scheduler {
namespace {

using stream::Layer;
using stream::Stem;
using stream::TreeVersion;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Each file has 100 bytes of data and 64 of index.
Stem File(int64_t seq) { return {seq, 1000 + seq, (seq - 1) * 100, (seq - 1) * 2}; }
PairLengths Whole(int64_t seq) { return {File(seq), {100, 64}}; }
constexpr std::optional<int64_t> kOpen[stream::kParts] = {};
constexpr std::optional<int64_t> kSealed[stream::kParts] = {100, 64};

class CopySetTest : public ::testing::Test {
 protected:
  using Row = OperationTable::Row;

  explicit CopySetTest(const std::string& cell = "a")
      : set_({.cell = cell, .files_per_shard_max = 4}, operations_) {}

  void Notice(int64_t seq, const std::optional<int64_t> (&seal)[stream::kParts] = kOpen) {
    EXPECT_TRUE(set_.OnNotice(At(0), {shard_, File(seq)}, seal, out_));
  }
  void Listing(const std::vector<Stem>& stems, int64_t floor = 1) {
    set_.OnListing(At(0), shard_, floor, stems, out_);
  }
  void Progress(int64_t ms, const std::string& cell, const std::vector<PairLengths>& there,
                const std::vector<PairLengths>& here = {}, int64_t floor = 1,
                int64_t covered_to = INT64_MAX) {
    set_.OnProgress(At(ms), shard_, cell, floor, there, here, covered_to);
  }
  Row Find(int64_t seq, Layer layer, const std::string& cell) {
    return operations_.Find({{shard_, File(seq)}, layer, cell});
  }
  Row Start(int64_t seq, Layer layer, const std::string& cell) {
    const Row row = Find(seq, layer, cell);
    operations_.Start(row, TreeVersion{1}, {"r0", "w0", "b:1", ""}, {});
    return row;
  }
  // "1 primary b: held", ... in the table's order.
  std::vector<std::string> Rows() const {
    std::vector<std::string> rows;
    for (const auto& [target, op] : operations_) {
      rows.push_back(std::to_string(target.file.stem.seq) + " " +
                     std::string(stream::LayerName(target.layer)) + " " + target.cell + ": " +
                     std::string(PhaseName(op.phase)));
    }
    return rows;
  }

  const stream::StreamId stream_{"s", stream::StreamIncarnation{7}};
  const stream::ShardId shard_{stream_, 0};
  WorkerTable workers_{{}};
  OperationTable operations_{{}, workers_, 1};
  CopySet set_;
  Effects out_;
};

TEST_F(CopySetTest, EveryFileEdgeAndLayerIsAnOperation) {
  set_.OnStream(At(0), Tree({{"a", "b"}, {"a", "c"}, {"c", "d"}}), out_);
  EXPECT_THAT(out_.list, ElementsAre(shard_)) << "files may be there already";
  Notice(1);
  EXPECT_THAT(Rows(), ElementsAre("1 primary b: wanted", "1 primary c: wanted", "1 cache b: wanted",
                                  "1 cache c: wanted"));
  EXPECT_TRUE(Find(1, Layer::kCache, "b")->second.fresh);
  EXPECT_THAT(set_.Targets(), ElementsAre("b", "c")) << "others copy to d";
}

TEST_F(CopySetTest, WhatIsOfNoStreamHereIsNotTaken) {
  EXPECT_FALSE(set_.OnNotice(At(0), {shard_, File(1)}, kOpen, out_));
  set_.OnStream(At(0), Tree({{"a", "b"}}), out_);
  EXPECT_FALSE(set_.OnNotice(At(0), {{stream_, 1}, File(1)}, kOpen, out_)) << "it has one shard";
  EXPECT_THAT(Rows(), IsEmpty());
}

TEST_F(CopySetTest, ListedFilesButTheNewestWaitForTheAnswerAndAreCopiedToThePrimaryLayer) {
  set_.OnStream(At(0), Tree({{"a", "b"}}), out_);
  Listing({File(1), File(2), File(3), File(4)});
  EXPECT_THAT(Rows(), ElementsAre("1 primary b: held", "2 primary b: held", "3 primary b: held",
                                  "4 primary b: wanted", "4 cache b: wanted"));
  EXPECT_FALSE(Find(4, Layer::kPrimary, "b")->second.fresh) << "some of it may be downstream";
  EXPECT_THAT(out_.progress, ElementsAre(std::pair(shard_, std::string("b"))));
  EXPECT_EQ(set_.AskFrom(shard_, "b"), 1);
  // It keeps nothing below 2, has all of 2, and said nothing of 4.
  Progress(10, "b", {Whole(2)}, {}, 2, 3);
  EXPECT_THAT(Rows(),
              ElementsAre("3 primary b: wanted", "4 primary b: wanted", "4 cache b: wanted"));
  EXPECT_EQ(set_.AskFrom(shard_, "b"), 4) << "nothing is held: the newest";
}

TEST_F(CopySetTest, AQuestionIsRepeatedUntilItIsAnswered) {
  set_.OnStream(At(0), Tree({{"a", "b"}}), out_);
  Listing({File(1), File(2)});
  EXPECT_EQ(set_.NextQuestion(), MonotonicTime::Max()) << "it is out";
  set_.OnProgressFailed(At(10), shard_, "b");
  const MonotonicTime next = set_.NextQuestion();
  EXPECT_GT(next, At(10));
  out_ = Effects();
  set_.AskDue(At(10), out_);
  EXPECT_THAT(out_.progress, IsEmpty());
  set_.AskDue(next, out_);
  EXPECT_EQ(out_.progress.size(), 1u);
  Progress(500, "b", {});
  EXPECT_EQ(set_.NextQuestion(), MonotonicTime::Max()) << "nothing is held any more";
}

TEST_F(CopySetTest, AnotherFileUnderTheNumberIsDataLossAndLeftAlone) {
  set_.OnStream(At(0), Tree({{"a", "b"}}), out_);
  Listing({File(1), File(2)});
  PairLengths forked = Whole(1);
  forked.stem.created_us += 5;
  Progress(10, "b", {forked});
  EXPECT_EQ(set_.data_loss(), 1);
  EXPECT_EQ(Find(1, Layer::kPrimary, "b"), operations_.end()) << "given up, so it is forgotten";
}

TEST_F(CopySetTest, AFileIsForgottenWhenAllOfItsOperationsAreOver) {
  set_.OnStream(At(0), Tree({{"a", "b"}}), out_);
  Notice(1);
  Notice(2);
  set_.OnCopied(Start(1, Layer::kPrimary, "b"), 100, 64);
  EXPECT_EQ(Rows().size(), 4u);
  set_.OnCopied(Start(1, Layer::kCache, "b"), 100, 64);
  EXPECT_THAT(Rows(), ElementsAre("2 primary b: wanted", "2 cache b: wanted"));
  Notice(1, kSealed);
  Listing({File(1), File(2)});
  EXPECT_EQ(Rows().size(), 2u) << "it is not copied again";
  EXPECT_EQ(set_.AddReported(At(0), {{shard_, File(1)}, Layer::kPrimary, "b"}, out_),
            operations_.end());
}

TEST_F(CopySetTest, WhatATargetHasLostIsCopiedAgain) {
  set_.OnStream(At(0), Tree({{"a", "b"}}), out_);
  Listing({});
  for (int64_t seq = 1; seq <= 3; ++seq) {
    Notice(seq);
    for (const Layer layer : {Layer::kPrimary, Layer::kCache}) {
      set_.OnCopied(Start(seq, layer, "b"), 100, 64);
    }
  }
  EXPECT_THAT(Rows(), ElementsAre("3 primary b: done", "3 cache b: done"));
  out_ = Effects();
  const auto lacks = [&](int64_t seq, v1::LackingFile::Kind kind = v1::LackingFile::ABSENT) {
    return set_.OnLacking(At(1), shard_, "b", seq, kind, out_);
  };
  EXPECT_TRUE(lacks(1));
  EXPECT_THAT(out_.list, ElementsAre(shard_)) << "for its stem";
  EXPECT_FALSE(lacks(1)) << "it is on its way";
  EXPECT_TRUE(lacks(3)) << "the newest is known";
  EXPECT_FALSE(lacks(9));
  Listing({File(1), File(2), File(3)});
  EXPECT_THAT(Rows(), ElementsAre("1 primary b: held", "3 primary b: wanted", "3 cache b: done"));
  Progress(10, "b", {Whole(2)});
  const Row row = Start(1, Layer::kPrimary, "b");
  EXPECT_EQ(set_.Describe(row).seal[0], 100) << "its successor is forgotten";
  EXPECT_FALSE(set_.Describe(row).fresh);
  set_.OnCopied(row, 100, 64);
  EXPECT_THAT(Rows(), ElementsAre("3 primary b: wanted", "3 cache b: done"));
}

TEST_F(CopySetTest, AnOperationThatWritesWhereNobodySeesItIsMoved) {
  set_.OnStream(At(0), Tree({{"a", "b"}}), out_);
  Notice(1);
  const Row row = Start(1, Layer::kPrimary, "b");
  const auto lacks = [&](v1::LackingFile::Kind kind) {
    return set_.OnLacking(At(1), shard_, "b", 1, kind, out_);
  };
  EXPECT_FALSE(lacks(v1::LackingFile::ABSENT)) << "it is about to open it";
  operations_.Confirm(row);
  v1::OperationReport report;
  report.set_opened(true);
  operations_.Note(At(1), row, report);
  EXPECT_FALSE(lacks(v1::LackingFile::INCOMPLETE)) << "it is at it";
  EXPECT_TRUE(lacks(v1::LackingFile::DAMAGED));
  EXPECT_EQ(row->second.phase, Phase::kWanted);
}

TEST_F(CopySetTest, ANoticeThatLeavesAHoleAsksForAListing) {
  set_.OnStream(At(0), Tree({{"a", "b"}}), out_);
  Listing({});
  Notice(1);
  out_ = Effects();
  Notice(2);
  EXPECT_THAT(out_.list, IsEmpty());
  Notice(4);
  EXPECT_THAT(out_.list, ElementsAre(shard_));
}

TEST_F(CopySetTest, NoMoreFilesAreTakenThanTheLimit) {
  set_.OnStream(At(0), Tree({{"a", "b"}}), out_);
  for (int64_t seq = 1; seq <= 6; ++seq) Notice(seq);
  EXPECT_EQ(Rows().size(), 8u);
}

// One cell is dead, and lacks more than the scheduler keeps in mind. The other one gets what is
// new all the same, and the dead one's files are found again when there is room.
TEST_F(CopySetTest, ACellThatLacksTooManyFilesKeepsNoNewOneFromTheOthers) {
  set_.OnStream(At(0), Tree({{"a", "b"}, {"a", "c"}}), out_);
  const auto copied = [&](int64_t seq, const std::string& cell) {
    for (const Layer layer : {Layer::kPrimary, Layer::kCache}) {
      set_.OnCopied(Start(seq, layer, cell), 100, 64);
    }
  };
  std::vector<Stem> stems;
  for (int64_t seq = 1; seq <= 20; ++seq) {
    Notice(seq);
    stems.push_back(File(seq));
    ASSERT_NE(Find(seq, Layer::kPrimary, "b"), operations_.end()) << seq;
    copied(seq, "b");
  }
  EXPECT_EQ(set_.memory().put_off(), 16);
  ASSERT_TRUE(set_.memory().last_put_off());
  EXPECT_EQ(*set_.memory().last_put_off(), shard_);
  EXPECT_NE(Find(1, Layer::kPrimary, "c"), operations_.end());
  Listing(stems);
  EXPECT_EQ(set_.memory().put_off(), 32) << "there is no room yet";
  for (const int64_t seq : {1, 20}) copied(seq, "c");
  Listing(stems);
  EXPECT_NE(Find(18, Layer::kPrimary, "c"), operations_.end());
}

// Each of its events would cost all of them, and to catch up the square.
TEST_F(CopySetTest, WhatACellThatWasAwayLacksCostsNoticesAndCopiesNothing) {
  constexpr int64_t kFiles = 1000;
  CopySet set({.cell = "a"}, operations_);
  set.OnStream(At(0), Tree({{"a", "b"}, {"a", "c"}}), out_);
  std::vector<Stem> stems;
  for (int64_t seq = 1; seq <= kFiles; ++seq) stems.push_back(File(seq));
  set.OnListing(At(0), shard_, 1, stems, out_);
  // Since the last time.
  auto looks = [&, before = int64_t{0}]() mutable {
    return set.memory().looks() - std::exchange(before, set.memory().looks());
  };
  looks();
  EXPECT_TRUE(set.OnNotice(At(0), {shard_, File(kFiles + 1)}, kOpen, out_));
  EXPECT_LE(looks(), 2) << "it, and the one before";
  // c is back, and has 100; b has all.
  std::vector<PairLengths> whole;
  for (const Stem& stem : stems) whole.push_back({stem, {100, 64}});
  set.OnProgress(At(10), shard_, "b", 1, whole, {}, INT64_MAX);
  looks();
  whole.resize(100);
  set.OnProgress(At(10), shard_, "c", 1, whole, {}, INT64_MAX);
  EXPECT_LE(looks(), 100);
  EXPECT_EQ(Find(100, Layer::kPrimary, "c"), operations_.end());
  for (int64_t seq = 101; seq < kFiles; ++seq) {
    set.OnCopied(Start(seq, Layer::kPrimary, "c"), 100, 64);
    EXPECT_EQ(Find(seq, Layer::kPrimary, "c"), operations_.end()) << seq;
  }
  EXPECT_LE(looks(), kFiles);
}

TEST_F(CopySetTest, WhatOnlyACellThatIsNotCopiedToAnyMoreLackedIsForgotten) {
  set_.OnStream(At(0), Tree({{"a", "b"}, {"a", "c"}}), out_);
  Notice(1);
  Notice(2);
  for (const Layer layer : {Layer::kPrimary, Layer::kCache}) {
    set_.OnCopied(Start(1, layer, "b"), 100, 64);
  }
  set_.OnStream(At(1), Tree({{"a", "b"}}, 2), out_);
  EXPECT_THAT(Rows(), ElementsAre("2 primary b: wanted", "2 cache b: wanted"));
}

TEST_F(CopySetTest, ReadersThatCopyTheFileAreToldItsSeal) {
  set_.OnStream(At(0), Tree({{"a", "b"}}), out_);
  Notice(1);
  const Row row = Start(1, Layer::kPrimary, "b");
  out_ = Effects();
  Notice(1, kSealed);
  ASSERT_EQ(out_.start.size(), 1u) << "nobody copies the other layer";
  ASSERT_EQ(out_.start["r0"].size(), 1u);
  const stream::Operation& told = out_.start["r0"][0];
  EXPECT_EQ(told.id, row->second.id);
  EXPECT_EQ(told.source_cell, "a");
  EXPECT_EQ(told.chunk_size, 4096);
  EXPECT_EQ(told.writer_address, "b:1");
  EXPECT_EQ(told.seal[0], 100);
  EXPECT_EQ(told.seal[1], 64);
}

TEST_F(CopySetTest, WhatAReaderReportsIsTakenIfSomebodyWantsIt) {
  set_.OnStream(At(0), Tree({{"a", "b"}}), out_);
  EXPECT_EQ(set_.AddReported(At(0), {{shard_, File(1)}, Layer::kCache, "x"}, out_),
            operations_.end());
  const Row row = set_.AddReported(At(0), {{shard_, File(1)}, Layer::kCache, "b"}, out_);
  ASSERT_NE(row, operations_.end());
  EXPECT_EQ(row->first.layer, Layer::kCache);
  EXPECT_EQ(Rows().size(), 2u) << "its file is known now";
}

TEST_F(CopySetTest, OperationsOfARemovedEdgeOrStreamAreStopped) {
  set_.OnStream(At(0), Tree({{"a", "b"}, {"a", "c"}}), out_);
  Notice(1);
  const stream::OperationId to_b = Start(1, Layer::kPrimary, "b")->second.id;
  const stream::OperationId to_c = Start(1, Layer::kPrimary, "c")->second.id;
  out_ = Effects();
  set_.OnStream(At(1), Tree({{"a", "c"}}, 2), out_);
  EXPECT_THAT(out_.stop["r0"], ElementsAre(to_b));
  EXPECT_THAT(Rows(), ElementsAre("1 primary c: starting", "1 cache c: wanted"));
  out_ = Effects();
  set_.OnStreamRemoved(stream_, out_);
  EXPECT_THAT(out_.stop["r0"], ElementsAre(to_c));
  EXPECT_THAT(Rows(), IsEmpty());
  EXPECT_THAT(set_.Targets(), IsEmpty());
}

const Edges kFlat = {{"a", "b"}, {"a", "c"}};
const Edges kChain = {{"a", "c"}, {"c", "b"}};

// The old parent of b.
TEST_F(CopySetTest, WhatTheNewEdgeTookOverIsNotCopiedAnyMore) {
  set_.OnStream(At(0), Tree(kFlat), out_);
  Notice(1);
  const Row row = Start(1, Layer::kPrimary, "b");
  EXPECT_FALSE(set_.OnTakenOver(row, TreeVersion{2})) << "the edge does not leave";
  set_.OnStream(At(0), Change(kFlat, kChain, 2), out_);
  EXPECT_FALSE(set_.OnTakenOver(row, TreeVersion{1})) << "an attempt of our own";
  EXPECT_TRUE(set_.OnTakenOver(row, TreeVersion{2}));
  Notice(2);
  EXPECT_THAT(Rows(), ElementsAre("1 primary b: given up", "1 primary c: wanted",
                                  "1 cache b: wanted", "1 cache c: wanted", "2 primary c: wanted",
                                  "2 cache b: wanted", "2 cache c: wanted"))
      << "the other layer goes on";
}

// The new parent of b.
class CopySetJoinTest : public CopySetTest {
 protected:
  CopySetJoinTest() : CopySetTest("c") {
    v1::StreamConfig change = Change(kFlat, kChain, 2);
    change.set_settled_version(2);
    set_.OnStream(At(0), change, out_);
    Listing({File(1), File(2)});
  }
};

TEST_F(CopySetJoinTest, OperationsOfAnEdgeThatJoinsAreHeldUntilItGetsSoFar) {
  EXPECT_THAT(Rows(), ElementsAre("1 primary b: held", "2 primary b: held", "2 cache b: held"));
  Progress(10, "b", {Whole(1), Whole(2)}, {Whole(1), Whole(2)});
  EXPECT_THAT(Rows(), ElementsAre("2 primary b: wanted", "2 cache b: held"))
      << "the primary layer is taken over";
  // Its writer has the file, so the old edge is fenced; the next look ends the wait.
  const Row row = Start(2, Layer::kPrimary, "b");
  operations_.Confirm(row);
  v1::OperationReport opened;
  opened.set_state(v1::OPERATION_RUNNING);
  opened.set_opened(true);
  operations_.Note(At(20), row, opened);
  set_.AskDue(At(500), out_);
  Progress(510, "b", {Whole(1), Whole(2)}, {Whole(1), Whole(2)});
  EXPECT_THAT(Rows(), ElementsAre("2 primary b: running", "2 cache b: wanted"));
  EXPECT_EQ(set_.FindEdge(stream_, "b")->state(), EdgeState::kMade);
  std::vector<copytree::StepKind> steps;
  for (const StepTaken& step : set_.TakeSteps()) steps.push_back(step.kind);
  EXPECT_THAT(steps, ElementsAre(copytree::StepKind::kAddEdge, copytree::StepKind::kWaitCaughtUp));
  EXPECT_THAT(set_.TakeSteps(), IsEmpty()) << "they are told once";
}

TEST_F(CopySetJoinTest, ATargetThatIsSettledAlreadyIsNotWaitedFor) {
  set_.OnSettled(At(10), stream_, "b", TreeVersion{2}, out_);
  EXPECT_THAT(Rows(), ElementsAre("1 primary b: held", "2 primary b: wanted", "2 cache b: wanted"))
      << "the cold file waits for the answer";
}

}  // namespace
}  // namespace tailcast::scheduler
