#include "tailcast/scheduler/leaver_core.h"

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/fault_point.h"

namespace tailcast::scheduler {
namespace {

using stream::Stem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

PairLengths File(int64_t seq, int64_t length = 100) {
  return {{seq, seq * 1000, (seq - 1) * 100, 0}, {length, 32}};
}
ShardProgress Has(std::vector<PairLengths> files, int64_t floor = 1) {
  ShardProgress progress;
  progress.floor = floor;
  progress.files = std::move(files);
  return progress;
}

TEST(CompareCopies, WhatTheSourceHasIsNoLastCopy) {
  const auto all = Has({File(1), File(2), File(3)});
  EXPECT_EQ(CompareCopies(all, all).lost, 0);
  EXPECT_EQ(CompareCopies(all, all).next, INT64_MAX);
  EXPECT_EQ(CompareCopies(Has({File(2), File(3, 40)}), all).lost, 0) << "it has less";
  EXPECT_EQ(CompareCopies(Has({}), Has({})).lost, 0);
  EXPECT_EQ(CompareCopies(all, Has({File(3)}, 3)).lost, 0) << "below the floor";
}

TEST(CompareCopies, WhatTheSourceLacksIsTheLastCopy) {
  const auto all = Has({File(1), File(2), File(3)});
  EXPECT_EQ(CompareCopies(all, Has({File(1), File(3)})).lost, 2);
  EXPECT_EQ(CompareCopies(all, Has({File(1), File(2)})).lost, 3) << "its newest";
  EXPECT_EQ(CompareCopies(all, Has({})).lost, 1);
  EXPECT_EQ(CompareCopies(all, Has({File(1), File(2, 40), File(3)})).lost, 2) << "it was cut";
  auto other = File(2);
  other.stem.created_us += 1;
  EXPECT_EQ(CompareCopies(all, Has({File(1), other, File(3)})).lost, 2) << "of another producer";
  const PlantedFault planted("scheduler.last_copy_goes");
  EXPECT_EQ(CompareCopies(all, Has({})).lost, 0);
}

TEST(CompareCopies, GoesOnWhereEitherSideEnds) {
  auto there = Has({File(1), File(2)});
  there.covered_to = 2;
  auto here = Has({File(1), File(2)});
  EXPECT_EQ(CompareCopies(there, here).next, 3);
  here.covered_to = 2;
  EXPECT_EQ(CompareCopies(Has({File(1), File(5)}), here).next, 5)
      << "what the source has of the fifth was not looked at";
  EXPECT_EQ(CompareCopies(Has({File(1), File(5)}), here).lost, 0);
}

TEST(CompareCopies, WhatEitherSideCanNotReadMayBeTheLastCopy) {
  const auto all = Has({File(1), File(2), File(3)});
  auto there = Has({File(1), File(3)});
  there.unread = {2};
  there.covered_to = 3;
  EXPECT_EQ(CompareCopies(there, all).lost, 2);
  EXPECT_EQ(CompareCopies(there, all).why, LastCopyWhy::kUnreadThere);
  EXPECT_EQ(CompareCopies(there, Has({File(2), File(3)})).why, LastCopyWhy::kLacking);
  EXPECT_EQ(CompareCopies(there, Has({File(1), File(2)})).lost, 2) << "the first one";
  EXPECT_EQ(CompareCopies(there, Has({File(2), File(3)})).lost, 1);
  EXPECT_EQ(CompareCopies(there, Has({File(3)}, 3)).lost, 0) << "below the floor";
  auto here = Has({File(1), File(3)});
  here.unread = {2};
  here.covered_to = 3;
  EXPECT_EQ(CompareCopies(all, here).lost, 2);
  EXPECT_EQ(CompareCopies(all, here).why, LastCopyWhy::kUnreadHere);
  here = Has({File(1)});
  here.unread = {2};
  here.covered_to = 2;
  EXPECT_EQ(CompareCopies(Has({File(1), File(2)}), here).lost, 2) << "its newest";
  here = Has({});
  here.unread = {1, 2};
  here.covered_to = 2;
  EXPECT_EQ(CompareCopies(all, here).lost, 1) << "a page of such";
}

class LeaverCoreTest : public ::testing::Test {
 protected:
  LeaverCoreTest() { known_ = {{id_, 2, false, false}}; }
  LeaverEffects Work(Duration passed = Duration()) {
    now_ = now_ + passed;
    LeaverEffects out;
    core_.OnLeavers(now_, known_);
    core_.DoWork(now_, out);
    return out;
  }
  LeaverPhase phase() const { return core_.Rows().at(0).phase; }
  void Rest() {
    Work();
    core_.OnTold(now_, id_, true);
    Work(options_.rest);
  }
  void CompareAll() {
    for (int shard = 0; shard < 2; ++shard) {
      core_.OnCompared(now_, id_, {});
      Work();
    }
  }

  const LeaverOptions options_;
  LeaverCore core_{options_};
  const LeaverId id_{{"flights", stream::StreamIncarnation{7}}, "asia", 3};
  std::vector<KnownLeaver> known_;
  MonotonicTime now_ = MonotonicTime::FromMicros(1000);
};

TEST_F(LeaverCoreTest, ALeaverIsToldRestsIsComparedAndGoes) {
  EXPECT_THAT(Work().tell, ElementsAre(id_));
  EXPECT_THAT(Work(Duration::Seconds(60)).tell, IsEmpty()) << "it was not answered";
  core_.OnTold(now_, id_, true);
  EXPECT_EQ(core_.NextWork(), now_ + options_.rest);
  EXPECT_THAT(Work(options_.rest - Duration::Micros(1)).compare, IsEmpty());
  auto compare = Work(Duration::Micros(1)).compare;
  ASSERT_EQ(compare.size(), 1u);
  EXPECT_EQ(compare[0].shard, 0);
  EXPECT_EQ(compare[0].from_seq, 1);
  core_.OnCompared(now_, id_, {.next = 201});
  compare = Work().compare;
  ASSERT_EQ(compare.size(), 1u);
  EXPECT_EQ(compare[0].shard, 0);
  EXPECT_EQ(compare[0].from_seq, 201);
  core_.OnCompared(now_, id_, {});
  compare = Work().compare;
  ASSERT_EQ(compare.size(), 1u);
  EXPECT_EQ(compare[0].shard, 1);
  EXPECT_EQ(compare[0].from_seq, 1);
  core_.OnCompared(now_, id_, {});
  const auto go = Work();
  EXPECT_THAT(go.go, ElementsAre(id_));
  EXPECT_THAT(go.order, IsEmpty()) << "it is not durable";
  known_[0].going = true;
  EXPECT_THAT(Work().order, ElementsAre(id_));
  core_.OnOrdered(now_, id_);
  EXPECT_THAT(Work().order, IsEmpty());
  EXPECT_THAT(Work(options_.poll).order, ElementsAre(id_)) << "until it is gone";
  known_.clear();
  Work();
  EXPECT_TRUE(core_.empty());
}

TEST_F(LeaverCoreTest, WhatGoesAlreadyGoesOn) {
  known_[0].going = true;
  EXPECT_THAT(Work().order, ElementsAre(id_));
}

TEST_F(LeaverCoreTest, WhomATreeOrAnOpenChangeNamesWaitsAndBeginsAnew) {
  known_[0].named = true;
  EXPECT_THAT(Work().tell, IsEmpty());
  EXPECT_EQ(core_.NextWork(), MonotonicTime::Max());
  known_[0].named = false;
  Rest();
  EXPECT_EQ(phase(), LeaverPhase::kComparing);
  known_[0].named = true;
  Work();
  EXPECT_EQ(phase(), LeaverPhase::kWaiting);
  core_.OnCompared(now_, id_, {});
  EXPECT_EQ(phase(), LeaverPhase::kWaiting) << "an answer of before";
  known_[0].named = false;
  EXPECT_THAT(Work().tell, ElementsAre(id_));
}

TEST_F(LeaverCoreTest, TheLastCopyStaysUntilTheSourceHasTheFileAgain) {
  Rest();
  core_.OnCompared(now_, id_, {});
  Work();
  core_.OnCompared(now_, id_, {.lost = 4, .why = LastCopyWhy::kUnreadThere});
  EXPECT_EQ(phase(), LeaverPhase::kKeeping);
  EXPECT_EQ(core_.Rows().at(0).lacking, 4);
  EXPECT_EQ(core_.Rows().at(0).why, LastCopyWhy::kUnreadThere);
  EXPECT_EQ(core_.Rows().at(0).shard, 1);
  EXPECT_THAT(Work().go, IsEmpty());
  const auto again = Work(options_.look_again);
  ASSERT_EQ(again.compare.size(), 1u);
  EXPECT_EQ(again.compare[0].shard, 0) << "all of it";
  CompareAll();
  EXPECT_EQ(phase(), LeaverPhase::kComparing);
}

TEST_F(LeaverCoreTest, WhoIsSilentIsAskedAgain) {
  Work();
  core_.OnTold(now_, id_, false);
  EXPECT_THAT(Work().tell, IsEmpty());
  EXPECT_THAT(Work(options_.retry).tell, ElementsAre(id_));
  core_.OnTold(now_, id_, true);
  Work(options_.rest);
  core_.OnCompareFailed(now_, id_);
  EXPECT_THAT(Work(options_.retry).tell, ElementsAre(id_)) << "it may have begun anew";
}

TEST_F(LeaverCoreTest, WhoseAnswersLeadNowhereIsAskedAgainAfterAPause) {
  Rest();
  core_.OnCompared(now_, id_, {.next = 1});
  const auto work = Work();
  EXPECT_THAT(work.compare, IsEmpty());
  EXPECT_THAT(work.tell, IsEmpty());
  EXPECT_THAT(Work(options_.retry).tell, ElementsAre(id_));
}

TEST_F(LeaverCoreTest, AnotherLeavingOfTheSameCellBeginsAnew) {
  Rest();
  known_[0].id.order = 4;
  EXPECT_THAT(Work().tell, ElementsAre(known_[0].id));
  core_.OnCompared(now_, id_, {});
  EXPECT_EQ(phase(), LeaverPhase::kTelling);
}

TEST_F(LeaverCoreTest, OnlySoManyAreCalledAtOnce) {
  known_.clear();
  for (uint64_t n = 0; n < 100; ++n) {
    known_.push_back(
        {{{"s" + std::to_string(n), id_.stream.incarnation}, "asia", 1}, 1, false, false});
  }
  const auto first = Work();
  EXPECT_EQ(first.tell.size(), static_cast<size_t>(options_.calls_max));
  EXPECT_EQ(core_.NextWork(), MonotonicTime::Max());
  core_.OnTold(now_, first.tell[0], true);
  EXPECT_EQ(core_.NextWork(), now_) << "the next one";
  EXPECT_EQ(Work().tell.size(), 1u);
}

}  // namespace
}  // namespace tailcast::scheduler
