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

}  // namespace
}  // namespace tailcast::scheduler
