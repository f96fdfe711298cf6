#include "tailcast/scheduler/disk_reclaim.h"

#include "gtest/gtest.h"
#include "tailcast/scheduler/disk_testing.h"

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

  std::vector<stream::StreamId> done_;
  DiskReclaim reclaim_{*loop_, store_, {}, [this](const auto& stream) { done_.push_back(stream); }};
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

TEST_F(DiskReclaimTest, WhatIsForgottenStaysBeforeAfterAndInTheMiddleOfAnyStep) {
  // Forgotten after so many microseconds: while it is listed, while a file is deleted, between
  // looks.
  for (int64_t after_us = 0; after_us < 12'000; after_us += 500) {
    const stream::StreamId id{"s" + std::to_string(after_us), stream::StreamIncarnation{1}};
    for (int i = 0; i < 6; ++i) Create({id, 0}, ("f" + std::to_string(i)).c_str());
    reclaim_.Add(id, 1);
    time_.RunFor(Duration::Micros(after_us));
    const size_t left = Files({id, 0});
    reclaim_.Forget(id);
    time_.RunFor(Duration::Seconds(20));
    EXPECT_GE(Files({id, 0}) + 1, left) << after_us;
    EXPECT_TRUE(done_.empty());
    const size_t kept = Files({id, 0});
    // It may go all the same, later.
    reclaim_.Add(id, 1);
    reclaim_.Forget(id);
    reclaim_.Add(id, 1);
    ASSERT_TRUE(RunUntilDone(1)) << after_us << ", of which " << kept << " were kept";
    EXPECT_EQ(Files({id, 0}), 0u);
    done_.clear();
  }
}

}  // namespace
}  // namespace tailcast::scheduler
