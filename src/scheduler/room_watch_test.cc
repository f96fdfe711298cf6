#include "tailcast/scheduler/room_watch.h"

#include "gtest/gtest.h"
#include "tailcast/scheduler/disk_testing.h"

namespace tailcast::scheduler {
namespace {

class RoomWatchTest : public DiskTest {
 protected:
  void Look() { time_.RunFor(Duration::Seconds(3)); }
  int64_t Full() { return metrics_.GetGauge("tailcast_scheduler_disk_full", "").value(); }

  MetricRegistry metrics_;
  Status no_room_;
  RoomWatch watch_{*loop_, store_, metrics_, {.cell = "here"}, [this] { return no_room_; }};
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

}  // namespace
}  // namespace tailcast::scheduler
