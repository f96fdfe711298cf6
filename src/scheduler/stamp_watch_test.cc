#include "tailcast/scheduler/stamp_watch.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::scheduler {
namespace {

using stream::Stem;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kHour = 3'600'000'000;
const stream::ShardId kShard{{"s", stream::StreamIncarnation{1}}, 0};

WallTime At(int64_t us) { return WallTime::FromMicros(us); }
Stem Stamped(int64_t seq, int64_t us) { return {seq, us, 0, 0}; }

TEST(StampWatch, SaysNothingOfClocksThatAgree) {
  StampWatch watch;
  watch.OnListed(kShard, Stamped(1, kHour));
  watch.OnNotice(kShard, Stamped(2, 9 * kHour), At(9 * kHour + 1'000'000));
  watch.OnNotice(kShard, Stamped(3, 9 * kHour + 3'000'000), At(9 * kHour));
  EXPECT_THAT(watch.All(At(9 * kHour)), IsEmpty());
  EXPECT_THAT(watch.All(At(20 * kHour)), IsEmpty()) << "it is quiet";
}

TEST(StampWatch, AStampIsAheadUntilItIsPassed) {
  StampWatch watch;
  watch.OnListed(kShard, Stamped(1, 5 * kHour));
  const auto off = watch.All(At(3 * kHour));
  ASSERT_THAT(off, SizeIs(1));
  EXPECT_EQ(off[0].shard, kShard);
  EXPECT_EQ(off[0].seq, 1);
  EXPECT_EQ(off[0].ahead.micros(), 2 * kHour);
  EXPECT_THAT(watch.All(At(5 * kHour)), IsEmpty());
}

TEST(StampWatch, AStampIsBehindWhenTheFileIsAnnounced) {
  StampWatch watch;
  watch.OnNotice(kShard, Stamped(1, kHour), At(3 * kHour));
  EXPECT_THAT(watch.All(At(3 * kHour)), IsEmpty()) << "it may have waited for the scheduler";
  watch.OnNotice(kShard, Stamped(2, 2 * kHour), At(3 * kHour));
  watch.OnNotice(kShard, Stamped(1, kHour), At(3 * kHour));
  auto off = watch.All(At(7 * kHour));
  ASSERT_THAT(off, SizeIs(1));
  EXPECT_EQ(off[0].ahead.micros(), -kHour);
  watch.OnListed(kShard, Stamped(2, 2 * kHour));
  EXPECT_THAT(watch.All(At(7 * kHour)), SizeIs(1));
  watch.OnNotice(kShard, Stamped(3, 7 * kHour), At(7 * kHour));
  EXPECT_THAT(watch.All(At(7 * kHour)), IsEmpty());
}

TEST(StampWatch, ForgetsStreams) {
  StampWatch watch;
  watch.OnListed(kShard, Stamped(1, 5 * kHour));
  watch.Forget(kShard.stream);
  EXPECT_THAT(watch.All(At(0)), IsEmpty());
}

}  // namespace
}  // namespace tailcast::scheduler
