#include "tailcast/scheduler/room_watch.h"

#include "gtest/gtest.h"
#include "tailcast/scheduler/disk_testing.h"

namespace tailcast::scheduler {
namespace {

class RoomWatchTest : public DiskTest {
 protected:
  void Look() { time_.RunFor(Duration::Seconds(3)); }
  int64_t Full() { return metrics_.GetGauge("tailcast_scheduler_disk_full", "").value(); }
  int64_t Unseen() {
    return metrics_.GetGauge("tailcast_scheduler_disk_unseen_seconds", "").value();
  }

  MetricRegistry metrics_;
  Status no_room_;
  int looks_ = 0;
  Status fails_;
  RoomWatch watch_{*loop_,
                   metrics_,
                   {.cell = "here"},
                   [this](Callback<void(Result<storage::StoreRoom>)> done) {
                     ++looks_;
                     if (!fails_.ok()) {
                       return loop_->Post(std::move(done).With(Result<storage::StoreRoom>(fails_)));
                     }
                     store_.Room(std::move(done));
                   },
                   [this] { return no_room_; }};
};

TEST_F(RoomWatchTest, TellsWhenTheDiskIsFullAndWhenItIsNoMore) {
  EXPECT_FALSE(watch_.room().has_value());
  storage::FakeDiskOptions small;
  small.capacity_bytes = 1'000'000;
  small.file_bytes = 4096;
  small.reserve_bytes = 100'000;
  disk_.SetOptions(small);
  watch_.Begin();
  Look();
  ASSERT_TRUE(watch_.room().has_value());
  EXPECT_FALSE(watch_.room()->low);
  EXPECT_EQ(watch_.room()->total_bytes, 1'000'000);
  EXPECT_EQ(watch_.room()->free_bytes, 900'000);
  EXPECT_EQ(Full(), 0);
  for (int i = 0; i < 200; ++i) Create({flights_, 0}, std::to_string(i));
  Look();
  EXPECT_TRUE(watch_.room()->low);
  EXPECT_EQ(Full(), 1);
  disk_.SetOptions({});
  Look();
  EXPECT_FALSE(watch_.room()->low);
  EXPECT_EQ(Full(), 0);
}

TEST_F(RoomWatchTest, ADiskThatHangsIsLookedAtOnceAndSinceWhenIsSaid) {
  storage::FakeDiskOptions small;
  small.capacity_bytes = 1'000'000;
  disk_.SetOptions(small);
  watch_.Begin();
  Look();
  EXPECT_FALSE(watch_.unseen().has_value());
  disk_.Freeze();
  const int before = looks_;
  time_.RunFor(Duration::Seconds(60));
  EXPECT_EQ(looks_, before + 1);
  ASSERT_TRUE(watch_.unseen().has_value());
  EXPECT_EQ(watch_.unseen()->why, "it does not answer");
  EXPECT_GE(watch_.unseen()->since, Duration::Seconds(58));
  EXPECT_LE(watch_.unseen()->since, Duration::Seconds(63));
  EXPECT_GE(Unseen(), 55);
  EXPECT_TRUE(watch_.room().has_value()) << "as it was";
  disk_.Thaw();
  Look();
  EXPECT_FALSE(watch_.unseen().has_value());
  EXPECT_EQ(Unseen(), 0);
  EXPECT_GT(looks_, before + 1);
}

TEST_F(RoomWatchTest, WhyALookFailsIsSaid) {
  watch_.Begin();
  fails_ = UnavailableError("statvfs /d: Input/output error");
  time_.RunFor(Duration::Seconds(10));
  ASSERT_TRUE(watch_.unseen().has_value());
  EXPECT_EQ(watch_.unseen()->why, "statvfs /d: Input/output error");
}

TEST_F(RoomWatchTest, ADriverThatDoesNotKnowIsNotUnseen) {
  fails_ = UnimplementedError("room");
  watch_.Begin();
  time_.RunFor(Duration::Seconds(60));
  EXPECT_FALSE(watch_.unseen().has_value());
  EXPECT_FALSE(watch_.room().has_value());
  EXPECT_EQ(Unseen(), 0);
}

}  // namespace
}  // namespace tailcast::scheduler
