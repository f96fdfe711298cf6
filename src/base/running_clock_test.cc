#include "tailcast/base/running_clock.h"

#include "gtest/gtest.h"

namespace tailcast {
namespace {

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

TEST(RunningClockTest, RunsWithTheOtherClockWhileItIsAsked) {
  RunningClock clock(Duration::Millis(100));
  for (int64_t ms = 7; ms < 2000; ms += 150) EXPECT_EQ(clock.At(At(ms)), At(ms));
  EXPECT_EQ(clock.stalls(), 0);
}

TEST(RunningClockTest, StandsStillWhileItsProcessDoes) {
  RunningClock clock(Duration::Millis(100));
  EXPECT_EQ(clock.At(At(1000)), At(1000));
  EXPECT_EQ(clock.At(At(4000)), At(1100)) << "one tick counts";
  EXPECT_EQ(clock.At(At(4050)), At(1150));
  EXPECT_EQ(clock.When(At(1200)), At(4100));
  EXPECT_EQ(clock.When(MonotonicTime::Max()), MonotonicTime::Max());
  EXPECT_EQ(clock.stalls(), 1);
  EXPECT_EQ(clock.stood(), Duration::Millis(2900));
  EXPECT_EQ(clock.At(At(5000)), At(1250)) << "and again";
}

}  // namespace
}  // namespace tailcast
