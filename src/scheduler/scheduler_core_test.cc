#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tailcast/scheduler/core_fixture.h"

namespace tailcast::scheduler {
namespace {

using stream::Layer;
using stream::Operation;
using stream::Stem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(SchedulerCoreTest, ANoticedFileGetsTwoOperationsPerEdgeAtOnce) {
  core_.OnStream(At(0), Stream({{"a", "b"}, {"a", "c"}, {"c", "d"}}), out_);
  EXPECT_EQ(out_.list.size(), 1u) << "what was there before is listed";
  Workers();
  ASSERT_TRUE(core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_));
  const auto started = Started(At(1));
  ASSERT_EQ(started.size(), 4u);
  for (const Operation& o : started) {
    EXPECT_TRUE(o.fresh);
    EXPECT_EQ(o.source_cell, "a");
    EXPECT_EQ(o.id.term, TermOf(1, 5, 1));
    EXPECT_EQ(o.writer_via, o.target.cell == "b" ? "via:1" : "");
    EXPECT_FALSE(o.writer_address.empty());
  }
  EXPECT_THAT(core_.Targets(), ElementsAre("b", "c"));
}

TEST_F(SchedulerCoreTest, TheNextFileGoesToTheSamePairAndSealsTheOneBefore) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  const auto first = Started(At(1));
  core_.OnNotice(At(2), {shard_, File(2)}, kOpen, out_);
  const auto second = Started(At(2));
  ASSERT_EQ(second.size(), 4u) << "two new ones, and the seal for the two that run";
  int seals = 0;
  for (const Operation& o : second) {
    if (o.target.file.stem.seq == 1) {
      EXPECT_EQ(o.seal[0], 100);
      EXPECT_EQ(o.seal[1], 64);
      ++seals;
      continue;
    }
    const Operation before = Only(first, o.target.layer);
    EXPECT_EQ(o.writer_name, before.writer_name);
    EXPECT_EQ(reader_of_[o.id], reader_of_[before.id]);
  }
  EXPECT_EQ(seals, 2);
}

TEST_F(SchedulerCoreTest, WorkIsSpreadOverWorkers) {
  v1::StreamConfig s = Stream({{"a", "b"}});
  s.set_shards(10);
  core_.OnStream(At(0), s, out_);
  Workers();
  for (int n = 0; n < 10; ++n)
    core_.OnNotice(At(1), {{{"s", stream::StreamIncarnation{7}}, n}, File(1)}, kOpen, out_);
  std::map<std::string, int> readers, writers;
  for (const Operation& o : Started(At(1))) {
    ++readers[reader_of_[o.id]];
    ++writers[o.writer_name];
  }
  EXPECT_EQ(readers["r0"], 10);
  EXPECT_EQ(writers["w0"], 10);
}

TEST_F(SchedulerCoreTest, ALostWriterIsReplacedAtOnceByAnotherWithAGreaterTerm) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  const Operation first = Only(Started(At(1)), Layer::kCache);
  core_.OnStarted(reader_of_[first.id], {first});
  Report(At(50), first, v1::OPERATION_FAILED, v1::CAUSE_WRITER_LOST);
  const auto again = Started(At(50));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_NE(again[0].writer_name, first.writer_name);
  EXPECT_GT(again[0].id.term, first.id.term);
  EXPECT_FALSE(again[0].fresh);
  // Once more: with back-off, so that nothing spins.
  Report(At(60), again[0], v1::OPERATION_FAILED, v1::CAUSE_WRITER_LOST);
  EXPECT_THAT(Started(At(60)), IsEmpty());
  EXPECT_EQ(core_.NextWork(), At(110));
  EXPECT_EQ(Started(At(110)).size(), 1u);
  // A report of the first attempt that comes late changes nothing.
  Report(At(111), first, v1::OPERATION_FAILED, v1::CAUSE_WRITER_LOST);
  EXPECT_THAT(Started(At(111)), IsEmpty());
  EXPECT_EQ(core_.counters().stale_reports, 1);
}

TEST_F(SchedulerCoreTest, AllOperationsOfALostReaderMoveToAnother) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  const auto first = Started(At(1));
  const std::string dead = reader_of_[first[0].id];
  core_.OnReaderLost(At(50), dead);
  for (const Operation& o : Started(At(50))) EXPECT_NE(reader_of_[o.id], dead);
  EXPECT_EQ(core_.counters().readers_lost, 1);
}

TEST_F(SchedulerCoreTest, AReaderThatIsBackBeforeAnotherWasToldKeepsWhatItRuns) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  core_.OnReaders(At(0), {{"r0", "a:1", ProcessIncarnation{1}}});
  core_.OnWriters(At(0), "b", "", {{"w0", "b:1", ProcessIncarnation{1}}});
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  const auto first = Started(At(1));
  ASSERT_EQ(first.size(), 2u);
  core_.OnReaderLost(At(50), "r0");
  EXPECT_THAT(Started(At(50)), IsEmpty()) << "there is no other one";
  core_.OnReaderFound("r0");
  for (const Operation& o : first) Report(At(500), o, v1::OPERATION_RUNNING);
  core_.OnReportsComplete(At(500), "r0", {first[0].id, first[1].id});
  EXPECT_THAT(Started(At(5000)), IsEmpty());
  EXPECT_THAT(stopped_, IsEmpty());
  EXPECT_EQ(core_.counters().adopted, 2);
  // One that it does not run any more is started again.
  core_.OnReportsComplete(At(5000), "r0", {first[0].id});
  EXPECT_EQ(Started(core_.NextWork()).size(), 1u);
}

// What is moved is left behind on purpose.
TEST_F(SchedulerCoreTest, WhatFailedIsNotAdoptedFromALateReport) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  const Operation first = Only(Started(At(1)), Layer::kCache);
  Report(At(50), first, v1::OPERATION_FAILED, v1::CAUSE_STOPPED);
  Report(At(51), first, v1::OPERATION_RUNNING);
  EXPECT_EQ(core_.counters().adopted, 0);
  EXPECT_EQ(Started(core_.NextWork()).size(), 1u);
}

TEST_F(SchedulerCoreTest, ASecondSchedulerWaitsForReadersBeforeItStartsWhatWasThere) {
  SchedulerCore core(
      {.cell = "a", .incarnation = stream::SchedulerIncarnation{6}, .orphans_until = At(1500)}, 1);
  Effects out;
  core.OnStream(At(0), Stream({{"a", "b"}}), out);
  core.OnReaders(At(0), {{"r0", "a:1", ProcessIncarnation{1}}});
  core.OnWriters(At(0), "b", "", {{"w0", "b:1", ProcessIncarnation{1}}});
  core.OnListing(At(0), shard_, 1, {File(1)}, out);
  out = Effects();
  core.DoWork(At(600), out);
  EXPECT_THAT(out.start, IsEmpty()) << "a reader that we have not heard of may run it";
  core.OnNotice(At(600), {shard_, File(2)}, kOpen, out);
  core.DoWork(At(600), out);
  ASSERT_EQ(out.start["r0"].size(), 2u) << "nobody can have started a new file";
  EXPECT_EQ(out.start["r0"][0].target.file.stem.seq, 2);
  out = Effects();
  core.DoWork(At(1500), out);
  EXPECT_EQ(out.start["r0"].size(), 2u);
}

TEST_F(SchedulerCoreTest, ARestartedReaderLosesItsOperations) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  core_.OnReaders(At(0), {{"r0", "a:1", ProcessIncarnation{1}}});
  core_.OnWriters(At(0), "b", "", {{"w0", "b:1", ProcessIncarnation{1}}});
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  ASSERT_EQ(Started(At(1)).size(), 2u);
  core_.OnReaders(At(500), {{"r0", "a:9", ProcessIncarnation{2}}});
  EXPECT_EQ(Started(At(500)).size(), 2u) << "it is the only one there is";
}

TEST_F(SchedulerCoreTest, WithoutWorkersOperationsWait) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  EXPECT_THAT(Started(At(1)), IsEmpty());
  EXPECT_EQ(core_.counters().no_worker, 2);
  Workers(At(50));
  EXPECT_THAT(Started(At(50)), IsEmpty());
  EXPECT_EQ(Started(core_.NextWork()).size(), 2u);
}

TEST_F(SchedulerCoreTest, ListedFilesAreColdButForTheNewest) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnListing(At(1), shard_, 1, {File(1), File(2), File(3)}, out_);
  const auto hot = Started(At(1));
  ASSERT_EQ(hot.size(), 2u);
  for (const Operation& o : hot) {
    EXPECT_EQ(o.target.file.stem.seq, 3);
    EXPECT_FALSE(o.fresh) << "some of it may be there";
  }
  EXPECT_EQ(asked_.size(), 1u);
  EXPECT_EQ(core_.operations().LowestHeld(shard_, "b"), 1);
  // Downstream has all of 1 and a part of 2.
  core_.OnProgress(At(40), shard_, "b", 1, {{File(1), {100, 64}}, {File(2), {60, 32}}}, {},
                   INT64_MAX);
  const auto cold = Started(At(40));
  ASSERT_EQ(cold.size(), 1u);
  EXPECT_EQ(cold[0].target.file.stem.seq, 2);
  EXPECT_EQ(cold[0].target.layer, Layer::kPrimary);
  EXPECT_EQ(cold[0].seal[0], 100);
}

TEST_F(SchedulerCoreTest, NothingIsCopiedBelowTheNeighboursFloor) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnListing(At(1), shard_, 1, {File(1), File(2), File(3), File(4)}, out_);
  Started(At(1));
  core_.OnProgress(At(40), shard_, "b", 3, {}, {}, INT64_MAX);
  const auto cold = Started(At(40));
  ASSERT_EQ(cold.size(), 1u);
  EXPECT_EQ(cold[0].target.file.stem.seq, 3);
}

TEST_F(SchedulerCoreTest, AFailedQuestionIsAskedAgain) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnListing(At(1), shard_, 1, {File(1), File(2)}, out_);
  Started(At(1));
  core_.OnProgressFailed(At(10), shard_, "b");
  Started(At(20));
  EXPECT_TRUE(asked_.empty());
  EXPECT_EQ(core_.NextWork(), At(210));
  Started(At(210));
  EXPECT_EQ(asked_.size(), 1u);
}

TEST_F(SchedulerCoreTest, ANeighbourWithAnotherFileUnderTheNumberIsDataLoss) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnListing(At(1), shard_, 1, {File(1), File(2)}, out_);
  Started(At(1));
  Stem forked = File(1);
  forked.created_us += 5;
  core_.OnProgress(At(40), shard_, "b", 1, {{forked, {100, 64}}}, {}, INT64_MAX);
  EXPECT_THAT(Started(At(40)), IsEmpty());
  EXPECT_EQ(core_.counters().data_loss, 1);
}

TEST_F(SchedulerCoreTest, OrphansOfTheSchedulerBeforeAreAdoptedNotRestarted) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnListing(At(1), shard_, 1, {File(1)}, out_);
  Operation orphan;
  orphan.target = {{shard_, File(1)}, Layer::kCache, "b"};
  orphan.id = {TermOf(1, 4, 9), stream::Nonce{77}};
  orphan.source_cell = "a";
  orphan.chunk_size = 4096;
  orphan.writer_name = "w1";
  reader_of_[orphan.id] = "r1";
  Report(At(2), orphan, v1::OPERATION_RUNNING);
  const auto started = Started(At(2));
  ASSERT_EQ(started.size(), 1u);
  EXPECT_EQ(started[0].target.layer, Layer::kPrimary);
  EXPECT_EQ(core_.counters().adopted, 1);
  // When it fails its successor has a greater term.
  Report(At(90), orphan, v1::OPERATION_FAILED, v1::CAUSE_WRITER_LOST);
  const auto again = Started(At(90));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_GT(again[0].id.term, orphan.id.term);
}

TEST_F(SchedulerCoreTest, AnOperationThatNobodyWantsIsStopped) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  Operation foreign;
  foreign.target = {{{{"gone", stream::StreamIncarnation{3}}, 0}, File(1)}, Layer::kCache, "b"};
  foreign.id = {TermOf(1, 4, 9), stream::Nonce{77}};
  foreign.source_cell = "a";
  foreign.chunk_size = 4096;
  reader_of_[foreign.id] = "r1";
  Report(At(2), foreign, v1::OPERATION_RUNNING);
  Started(At(2));
  EXPECT_THAT(stopped_["r1"], ElementsAre(foreign.id));
}

TEST_F(SchedulerCoreTest, DoneFilesAreForgottenAndNotCopiedAgain) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  const auto first = Started(At(1));
  core_.OnNotice(At(2), {shard_, File(2)}, kOpen, out_);
  Started(At(2));
  for (const Operation& o : first) Report(At(3), o, v1::OPERATION_DONE);
  EXPECT_EQ(core_.unfinished(), 2);
  EXPECT_EQ(std::distance(core_.operations().begin(), core_.operations().end()), 2);
  core_.OnListing(At(4), shard_, 1, {File(1), File(2)}, out_);
  core_.OnNotice(At(4), {shard_, File(1)}, kOpen, out_);
  EXPECT_THAT(Started(At(4)), IsEmpty());
}

TEST_F(SchedulerCoreTest, AFileThatArrivesAfterItsSuccessorsWereCopiedIsCopiedToo) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(2)}, kOpen, out_);
  core_.OnNotice(At(1), {shard_, File(3)}, kOpen, out_);
  for (const Operation& o : Started(At(1))) {
    if (o.target.file.stem.seq == 2) Report(At(2), o, v1::OPERATION_DONE);
  }
  core_.OnNotice(At(3), {shard_, File(1)}, kOpen, out_);
  EXPECT_EQ(Started(At(3)).size(), 2u);
  core_.OnNotice(At(4), {shard_, File(2)}, kOpen, out_);
  EXPECT_THAT(Started(At(4)), IsEmpty());
}

TEST_F(SchedulerCoreTest, AMissedNoticeMakesItLook) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  Started(At(0));
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  Started(At(1));
  EXPECT_TRUE(listed_.empty());
  core_.OnNotice(At(2), {shard_, File(4)}, kOpen, out_);
  Started(At(2));
  EXPECT_EQ(listed_.size(), 1u);
}

TEST_F(SchedulerCoreTest, NewOperationsAreThrottled) {
  SchedulerCore core(
      {.cell = "a", .incarnation = stream::SchedulerIncarnation{5}, .starting_max = 3}, 1);
  v1::StreamConfig s = Stream({{"a", "b"}});
  s.set_shards(10);
  Effects out;
  core.OnStream(At(0), s, out);
  core.OnReaders(At(0), {{"r0", "a:1", ProcessIncarnation{1}}});
  core.OnWriters(At(0), "b", "", {{"w0", "b:1", ProcessIncarnation{1}}});
  for (int n = 0; n < 10; ++n)
    core.OnNotice(At(1), {{{"s", stream::StreamIncarnation{7}}, n}, File(1)}, kOpen, out);
  core.DoWork(At(1), out);
  ASSERT_EQ(out.start["r0"].size(), 3u);
  EXPECT_GT(core.counters().throttled, 0);
  EXPECT_EQ(core.NextWork(), MonotonicTime::Max()) << "until a reader confirms";
  core.OnStarted("r0", {out.start["r0"][0]});
  core.DoWork(At(2), out);
  EXPECT_EQ(out.start["r0"].size(), 4u);
}

TEST_F(SchedulerCoreTest, AFullReaderIsAvoidedAndNotItsWriter) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  const Operation first = Only(Started(At(1)), Layer::kCache);
  Report(At(50), first, v1::OPERATION_FAILED, v1::CAUSE_READER_FULL);
  const auto again = Started(core_.NextWork());
  ASSERT_EQ(again.size(), 1u);
  EXPECT_NE(reader_of_[again[0].id], reader_of_[first.id]);
  EXPECT_EQ(again[0].writer_name, first.writer_name);
}

TEST_F(SchedulerCoreTest, AReturnedReaderGetsItsShareByShedding) {
  v1::StreamConfig s = Stream({{"a", "b"}});
  s.set_shards(50);
  core_.OnStream(At(0), s, out_);
  core_.OnReaders(At(0), {{"r0", "a:1", ProcessIncarnation{1}}});
  core_.OnWriters(At(0), "b", "", {{"w0", "b:1", ProcessIncarnation{1}}});
  for (int n = 0; n < 50; ++n)
    core_.OnNotice(At(1), {{{"s", stream::StreamIncarnation{7}}, n}, File(1)}, kOpen, out_);
  const auto first = Started(At(1));
  core_.OnStarted("r0", first);
  core_.OnReaders(At(2),
                  {{"r0", "a:1", ProcessIncarnation{1}}, {"r1", "a:2", ProcessIncarnation{2}}});
  core_.Shed(At(3));
  const auto moved = Started(At(3));
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(reader_of_[moved[0].id], "r1");
  const auto old = std::find_if(first.begin(), first.end(),
                                [&](const Operation& o) { return o.target == moved[0].target; });
  Report(At(3), *old, v1::OPERATION_RUNNING);
  EXPECT_THAT(Started(At(3)), IsEmpty());
  EXPECT_TRUE(stopped_.empty()) << "the old one runs until the new one has taken over";
  Report(At(3), moved[0], v1::OPERATION_RUNNING, v1::CAUSE_NONE, {}, /*opened=*/true);
  Started(At(3));
  EXPECT_THAT(stopped_["r0"], ElementsAre(old->id)) << "now it is of no use";
  Report(At(3), *old, v1::OPERATION_RUNNING);
  Started(At(3));
  EXPECT_THAT(stopped_["r0"], ElementsAre(old->id)) << "it was not heard";
  for (int i = 0; i < 100; ++i) {
    core_.Shed(At(4 + i));
    for (const Operation& o : Started(At(4 + i))) core_.OnStarted(reader_of_[o.id], {o});
  }
  EXPECT_LT(core_.counters().shed, 20) << "it ends when the loads are near";
}

TEST_F(SchedulerCoreTest, ADeletedStreamEndsEverywhere) {
  core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
  Workers();
  core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  Started(At(1));
  core_.OnStreamRemoved({"s", stream::StreamIncarnation{7}}, out_);
  EXPECT_THAT(Started(At(2)), IsEmpty());
  EXPECT_FALSE(stopped_.empty());
  EXPECT_EQ(core_.unfinished(), 0);
  EXPECT_FALSE(core_.OnNotice(At(3), {shard_, File(2)}, kOpen, out_));
}

}  // namespace
}  // namespace tailcast::scheduler
