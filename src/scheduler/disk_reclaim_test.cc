#include "tailcast/scheduler/disk_reclaim.h"

#include <utility>

#include "gtest/gtest.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/scheduler/disk_testing.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::scheduler {
namespace {

using stream::ShardDir;
using stream::ShardId;

class DiskReclaimTest : public DiskTest {
 protected:
  size_t Files(const ShardId& shard) { return disk_.PeekNames(ShardDir(shard)).size(); }
  bool RunUntilDone(size_t count) {
    return time_.RunUntil([&] { return done_.size() == count; }, Duration::Seconds(60));
  }

  // Answers all questions that were held, and asks no more to wait.
  void Confirm(const Status& status) {
    hold_ = false;
    for (auto& then : std::exchange(held_, {})) loop_->Post(std::move(then).With(Status(status)));
  }
  // File a.data of flights is copied anew, by those who came after this scheduler.
  void Replace() {
    storage::FakeStore other(&disk_, loop_.get());
    bool deleted = false;
    other.Delete(ShardDir({flights_, 0}), "a.data",
                 scope_.Bind([&](const Status&) { deleted = true; }));
    ASSERT_TRUE(time_.RunUntil([&] { return deleted; }, Duration::Seconds(10)));
    Create({flights_, 0}, "a.data");
  }

  std::vector<stream::StreamId> done_;
  bool hold_ = false;
  std::vector<Callback<void(Status)>> held_;
  DiskReclaim reclaim_{*loop_,
                       store_,
                       {},
                       [this](Callback<void(Status)> then) {
                         if (hold_) return held_.push_back(std::move(then));
                         loop_->Post(std::move(then).With(OkStatus()));
                       },
                       [this](const auto& stream) { done_.push_back(stream); }};
};

TEST_F(DiskReclaimTest, AllFilesOfAllShardsGoAndThoseOfOthersStay) {
  for (int shard : {0, 2}) {
    for (const char* name : {"a.data", "a.index", "b.data"}) Create({flights_, shard}, name);
  }
  Create({prices_, 0}, "a.data");
  reclaim_.Add(flights_, 3);
  reclaim_.Add(flights_, 3);
  ASSERT_TRUE(RunUntilDone(1));
  EXPECT_EQ(done_[0], flights_);
  EXPECT_EQ(reclaim_.files_deleted(), 6);
  EXPECT_EQ(Files({flights_, 0}) + Files({flights_, 2}), 0u);
  EXPECT_EQ(Files({prices_, 0}), 1u);
}

TEST_F(DiskReclaimTest, WhoeverAppendsIsFenced) {
  const auto file = Create({flights_, 0}, "a.data");
  reclaim_.Add(flights_, 1);
  ASSERT_TRUE(RunUntilDone(1));
  std::optional<storage::AppendOutcome> outcome;
  file->AppendAt(0, "bytes", scope_.Bind([&](const storage::AppendResult& result) {
    outcome = result.outcome;
  }));
  ASSERT_TRUE(time_.RunUntil([&] { return outcome.has_value(); }, Duration::Seconds(10)));
  EXPECT_EQ(*outcome, storage::AppendOutcome::kFenced);
}

TEST_F(DiskReclaimTest, AFileOfSomebodyWhoWasSlowIsFoundByTheSecondLook) {
  reclaim_.Add(flights_, 1);
  time_.RunFor(Duration::Seconds(1));
  Create({flights_, 0}, "late.data");
  ASSERT_TRUE(RunUntilDone(1));
  EXPECT_EQ(Files({flights_, 0}), 0u);
}

TEST_F(DiskReclaimTest, WhoIsTheCellsSchedulerNoMoreDeletesNothing) {
  Create({flights_, 0}, "a.data");
  hold_ = true;
  reclaim_.Add(flights_, 1);
  ASSERT_TRUE(time_.RunUntil([&] { return !held_.empty(); }, Duration::Seconds(10)));
  EXPECT_EQ(Files({flights_, 0}), 1u) << "nothing goes before that is known";
  held_.clear();  // it is fenced: its end comes next
  reclaim_.End();
  time_.RunFor(Duration::Seconds(30));
  EXPECT_EQ(Files({flights_, 0}), 1u);
}

// It was stopped between its last word with the registry and the disk, and has a successor.
TEST_F(DiskReclaimTest, WhoWasStoppedOnTheWayDeletesNoFileThatCameLater) {
  for (const bool planted : {false, true}) {
    Create({flights_, 0}, "a.data");
    hold_ = true;
    reclaim_.Add(flights_, 1);
    ASSERT_TRUE(time_.RunUntil([&] { return !held_.empty(); }, Duration::Seconds(10)));
    Replace();
    std::optional<PlantedFault> by_name;
    if (planted) by_name.emplace("scheduler.reclaim_by_name");
    Confirm(OkStatus());
    hold_ = true;
    ASSERT_TRUE(time_.RunUntil(
        [&] {
          return !held_.empty() || Files({flights_, 0}) == 0;
        },
        Duration::Seconds(60)));
    EXPECT_EQ(Files({flights_, 0}), planted ? 0u : 1u);
    if (planted) break;
    Confirm(OkStatus());
    ASSERT_TRUE(RunUntilDone(1));
  }
}

TEST_F(DiskReclaimTest, OfACopyThatGoesTheMarksOfFloorsStay) {
  const std::string marker = stream::FloorName(5);
  Create({flights_, 0}, marker);
  Create({flights_, 0}, "a.data");
  reclaim_.Add(flights_, 1, DiskReclaim::What::kMessageFiles);
  ASSERT_TRUE(RunUntilDone(1));
  EXPECT_EQ(disk_.PeekNames(ShardDir({flights_, 0})), std::vector<std::string>{marker});
  reclaim_.Add(flights_, 1, DiskReclaim::What::kMessageFiles);
  reclaim_.Add(flights_, 1);
  ASSERT_TRUE(RunUntilDone(2));
  EXPECT_EQ(Files({flights_, 0}), 0u) << "the stream was deleted meanwhile";
}

TEST_F(DiskReclaimTest, ManyFilesGoSomeAtATime) {
  for (int i = 0; i < 250; ++i) Create({flights_, 0}, "f" + std::to_string(i));
  reclaim_.Add(flights_, 1);
  ASSERT_TRUE(RunUntilDone(1));
  EXPECT_EQ(Files({flights_, 0}), 0u);
  EXPECT_EQ(reclaim_.files_deleted(), 250);
}

TEST_F(DiskReclaimTest, ADiskThatFailsIsTriedAgainAndHoldsUpNoOtherStream) {
  Create({flights_, 0}, "a.data");
  reclaim_.Add(flights_, 1);
  disk_.Freeze();
  time_.RunFor(Duration::Seconds(30));
  EXPECT_TRUE(done_.empty());
  disk_.Thaw();
  reclaim_.Add(prices_, 1);
  ASSERT_TRUE(RunUntilDone(2));
  EXPECT_EQ(Files({flights_, 0}), 0u);
}

}  // namespace
}  // namespace tailcast::scheduler
