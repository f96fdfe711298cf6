// Workers that leave: they get nothing more, and what they run goes to others, make before break.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/scheduler/core_fixture.h"

namespace tailcast::scheduler {
namespace {

using stream::Layer;
using stream::Operation;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LeavingWorkersTest : public SchedulerCoreTest {
 protected:
  LeavingWorkersTest() {
    core_.OnStream(At(0), Stream({{"a", "b"}}), out_);
    Workers();
    core_.OnNotice(At(1), {shard_, File(1)}, kOpen, out_);
  }
  void Readers(int64_t ms, bool r0_leaves, bool r1_leaves = false) {
    core_.OnReaders(At(ms), {{"r0", "a:1", ProcessIncarnation{1}, r0_leaves},
                             {"r1", "a:2", ProcessIncarnation{2}, r1_leaves}});
  }
  void Confirm(const std::vector<Operation>& operations) {
    for (const Operation& o : operations) core_.OnStarted(reader_of_[o.id], {o});
  }
  void ReportRunning(int64_t ms, const Operation& o, bool opened) {
    Report(At(ms), o, v1::OPERATION_RUNNING, v1::CAUSE_NONE, {}, opened);
  }
  const Operation& On(const std::vector<Operation>& operations, const std::string& reader) {
    for (const Operation& o : operations) {
      if (reader_of_[o.id] == reader) return o;
    }
    ADD_FAILURE() << "nothing runs on " << reader;
    return operations.front();
  }
};

TEST_F(LeavingWorkersTest, WhatAReaderRunsGoesToAnotherAndThenIsStopped) {
  const auto first = Started(At(1));
  ASSERT_EQ(first.size(), 2u);
  Confirm(first);
  const Operation old = On(first, "r0");
  Readers(10, true);
  const auto moved = Started(At(10));
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(moved[0].target, old.target);
  EXPECT_EQ(reader_of_[moved[0].id], "r1");
  EXPECT_GT(moved[0].id.term, old.id.term);
  EXPECT_TRUE(stopped_.empty()) << "the old one goes on";
  ReportRunning(20, moved[0], false);
  Started(At(20));
  EXPECT_TRUE(stopped_.empty()) << "until the new one has the file";
  ReportRunning(30, moved[0], true);
  Started(At(30));
  EXPECT_THAT(stopped_["r0"], ElementsAre(old.id));
  ReportRunning(40, moved[0], true);
  Started(At(40));
  EXPECT_TRUE(stopped_.empty()) << "it is told once";
  EXPECT_EQ(core_.counters().left, 1);
  EXPECT_EQ(core_.counters().restarted, 0) << "nothing failed";
}

TEST_F(LeavingWorkersTest, NothingNewIsGivenToWhoLeaves) {
  Readers(1, true);
  for (const Operation& o : Started(At(1))) EXPECT_EQ(reader_of_[o.id], "r1");
}

TEST_F(LeavingWorkersTest, WhatWasNotConfirmedMovesWhenItIs) {
  const auto first = Started(At(1));
  const Operation old = On(first, "r0");
  Readers(2, true);
  EXPECT_THAT(Started(At(2)), IsEmpty());
  Confirm(first);
  const auto moved = Started(At(3));
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(moved[0].target, old.target);
}

TEST_F(LeavingWorkersTest, TheLastOneKeepsWhatItRunsUntilSomebodyIsThere) {
  Confirm(Started(At(1)));
  Readers(2, true, true);
  EXPECT_THAT(Started(At(2)), IsEmpty());
  core_.OnReaders(At(3), {{"r0", "a:1", ProcessIncarnation{1}, true},
                          {"r1", "a:2", ProcessIncarnation{2}, true},
                          {"r2", "a:3", ProcessIncarnation{3}}});
  const auto moved = Started(At(3));
  ASSERT_EQ(moved.size(), 2u);
  for (const Operation& o : moved) EXPECT_EQ(reader_of_[o.id], "r2");
}

TEST_F(LeavingWorkersTest, AReaderThatStaysAfterAllIsUsedAgain) {
  Readers(1, true);
  Started(At(1));
  Readers(2, false);
  Readers(3, false, true);
  core_.OnNotice(At(3), {shard_, File(2)}, kOpen, out_);
  for (const Operation& o : Started(At(3))) {
    if (o.target.file.stem.seq == 2) {
      EXPECT_EQ(reader_of_[o.id], "r0");
    }
  }
}

TEST_F(LeavingWorkersTest, WhatAWriterHasGoesToAnotherWithItsReaderAsBefore) {
  const auto first = Started(At(1));
  Confirm(first);
  core_.OnWriters(
      At(10), "b", "via:1",
      {{"w0", "b:1", ProcessIncarnation{1}, true}, {"w1", "b:2", ProcessIncarnation{2}}});
  const auto moved = Started(At(10));
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(moved[0].writer_name, "w1");
  for (const Operation& o : first) {
    if (o.target == moved[0].target) {
      EXPECT_EQ(o.writer_name, "w0");
      EXPECT_EQ(reader_of_[o.id], reader_of_[moved[0].id]);
    }
  }
}

TEST_F(LeavingWorkersTest, OneThatEndsBeforeIsReplacedAsAnyOther) {
  Confirm(Started(At(1)));
  Readers(10, true);
  const auto moved = Started(At(10));
  ASSERT_EQ(moved.size(), 1u);
  core_.OnReaders(At(11), {{"r1", "a:2", ProcessIncarnation{2}}});
  EXPECT_THAT(Started(At(11)), IsEmpty()) << "its successor starts already";
  ReportRunning(12, moved[0], true);
  EXPECT_EQ(core_.counters().restarted, 0);
}

}  // namespace
}  // namespace tailcast::scheduler
