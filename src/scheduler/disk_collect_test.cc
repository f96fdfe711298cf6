#include "tailcast/scheduler/disk_collect.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/scheduler/disk_testing.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::scheduler {
namespace {

using stream::FloorName;
using stream::Part;
using stream::ShardDir;
using stream::ShardId;
using stream::Stem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DiskCollectTest : public DiskTest {
 protected:
  const ShardId shard_{flights_, 0}, other_{prices_, 3};

  static std::string Name(int64_t seq, Part part) {
    return stream::FileName(Stem{seq, seq, seq * 100, seq}, part);
  }
  void CreatePairs(const ShardId& shard, int64_t from, int64_t to) {
    for (int64_t seq = from; seq <= to; ++seq) {
      Create(shard, Name(seq, Part::kData));
      Create(shard, Name(seq, Part::kIndex));
    }
  }
  std::vector<std::string> Names(const ShardId& shard) { return disk_.PeekNames(ShardDir(shard)); }
  bool RunUntilIdle() {
    return time_.RunUntil([&] { return collect_->idle(); }, Duration::Seconds(60));
  }
  std::vector<std::string> From(int64_t floor, int64_t newest) {
    std::vector<std::string> names{FloorName(floor)};
    for (int64_t seq = floor; seq <= newest; ++seq) {
      names.push_back(Name(seq, Part::kData));
      names.push_back(Name(seq, Part::kIndex));
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::unique_ptr<DiskCollect> collect_ = std::make_unique<DiskCollect>(*loop_, store_);
};

TEST_F(DiskCollectTest, WhatIsBelowTheFloorGoesAndTheMarkerSaysSo) {
  CreatePairs(shard_, 1, 6);
  CreatePairs(other_, 1, 2);
  Create(shard_, "somebody-elses");
  collect_->Collect(shard_, 4);
  ASSERT_TRUE(RunUntilIdle());
  auto expected = From(4, 6);
  expected.push_back("somebody-elses");
  EXPECT_THAT(Names(shard_), ::testing::UnorderedElementsAreArray(expected));
  EXPECT_EQ(Names(other_).size(), 4u);
  EXPECT_EQ(collect_->files_deleted(), 6);
  // The next floor's marker takes the place of the one before.
  collect_->Collect(shard_, 6);
  ASSERT_TRUE(RunUntilIdle());
  EXPECT_THAT(Names(shard_), ::testing::Contains(FloorName(6)));
  EXPECT_EQ(Names(shard_).size(), 4u);
}

// Whatever is deleted, at every moment the folder says that it is gone on purpose.
TEST_F(DiskCollectTest, TheMarkerIsThereBeforeAnythingGoes) {
  CreatePairs(shard_, 1, 6);
  collect_->Collect(shard_, 4);
  while (!collect_->idle()) {
    time_.RunFor(Duration::Micros(50));
    std::vector<storage::DirEntry> entries;
    for (const std::string& name : Names(shard_)) entries.push_back({name});
    const auto listing = stream::ShardListing::Parse(entries);
    ASSERT_TRUE(listing.ok());
    const size_t files = 12u + (listing->floor() > 1 ? 1u : 0u);
    if (entries.size() < files) {
      EXPECT_EQ(listing->floor(), 4);
    }
    EXPECT_EQ(listing->pairs().size(), listing->floor() == 4 ? 3u : 6u);
  }
}

TEST_F(DiskCollectTest, AnotherOneGoesOnWhereOneDied) {
  for (int after_us = 0; after_us < 20000; after_us += 500) {
    CreatePairs(shard_, 1, 6);
    collect_->Collect(shard_, 4);
    time_.RunFor(Duration::Micros(after_us));
    collect_ = std::make_unique<DiskCollect>(*loop_, store_);
    collect_->Collect(shard_, 4);
    ASSERT_TRUE(RunUntilIdle()) << after_us;
    EXPECT_EQ(Names(shard_), From(4, 6)) << after_us;
    for (const std::string& name : Names(shard_)) {
      store_.Delete(ShardDir(shard_), name, scope_.Bind([](const Status&) {}));
    }
    time_.RunFor(Duration::Seconds(1));
  }
}

TEST_F(DiskCollectTest, AFileOfSomebodyWhoWasSlowGoesWithTheNextLook) {
  CreatePairs(shard_, 1, 6);
  collect_->Collect(shard_, 4);
  ASSERT_TRUE(RunUntilIdle());
  Create(shard_, Name(2, Part::kData));
  collect_->Collect(shard_, 4);
  ASSERT_TRUE(RunUntilIdle());
  EXPECT_EQ(Names(shard_), From(4, 6));
}

TEST_F(DiskCollectTest, AFloorThatRisesMeanwhileIsNotForgotten) {
  CreatePairs(shard_, 1, 6);
  collect_->Collect(shard_, 2);
  time_.RunFor(Duration::Micros(300));
  collect_->Collect(shard_, 5);
  ASSERT_TRUE(RunUntilIdle());
  EXPECT_EQ(Names(shard_), From(5, 6));
}

TEST_F(DiskCollectTest, WhatFailsIsTriedAgainAndHoldsUpNobodyElse) {
  CreatePairs(shard_, 1, 3);
  CreatePairs(other_, 1, 3);
  disk_.Freeze();
  collect_->Collect(shard_, 2);
  collect_->Collect(other_, 2);
  time_.RunFor(Duration::Seconds(5));
  EXPECT_FALSE(collect_->idle());
  disk_.Thaw();
  ASSERT_TRUE(RunUntilIdle());
  EXPECT_EQ(Names(shard_), From(2, 3));
  EXPECT_EQ(Names(other_), From(2, 3));
}

TEST_F(DiskCollectTest, AStreamThatIsDeletedIsLeftAlone) {
  for (int after_us = 0; after_us < 5000; after_us += 250) {
    CreatePairs(shard_, 1, 4);
    CreatePairs(other_, 1, 4);
    Create(shard_, FloorName(2));
    Create(shard_, FloorName(3));
    collect_->Collect(shard_, 4);
    collect_->Collect(other_, 3);
    time_.RunFor(Duration::Micros(after_us));
    collect_->Forget(flights_);
    ASSERT_TRUE(RunUntilIdle());
    EXPECT_EQ(Names(other_), From(3, 4)) << after_us;
    for (const ShardId& shard : {shard_, other_}) {
      for (const std::string& name : Names(shard)) {
        store_.Delete(ShardDir(shard), name, scope_.Bind([](const Status&) {}));
      }
    }
    time_.RunFor(Duration::Seconds(1));
  }
}

// The marker is a file: without the room that is kept for it nothing could go.
TEST_F(DiskCollectTest, ADiskFullOfMessagesIsEmptied) {
  CreatePairs(shard_, 1, 6);
  storage::FakeDiskOptions full;
  full.file_bytes = 4096;
  full.reserve_bytes = 4096;
  full.capacity_bytes = disk_.image().bytes_used(full.file_bytes) + full.reserve_bytes;
  disk_.SetOptions(full);
  collect_->Collect(shard_, 4);
  time_.RunFor(Duration::Seconds(30));
  EXPECT_EQ(Names(shard_).size(), 12u) << "this store writes messages";
  EXPECT_THAT(collect_->Failing(),
              ElementsAre(::testing::StartsWith("retention of flights/0: its floor is not "
                                                "written: ResourceExhausted: ")));
  storage::FakeStore records(&disk_, loop_.get(), storage::StoreUse::kRecords);
  collect_->End();
  collect_ = std::make_unique<DiskCollect>(*loop_, records);
  collect_->Collect(shard_, 4);
  ASSERT_TRUE(RunUntilIdle());
  EXPECT_EQ(Names(shard_), From(4, 6));
  EXPECT_THAT(collect_->Failing(), IsEmpty());
  collect_ = nullptr;
}

}  // namespace
}  // namespace tailcast::scheduler
