#include "tailcast/reader/wait_clock.h"

#include "gtest/gtest.h"

namespace tailcast::reader {
namespace {

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }
constexpr Duration kLate = Duration::Seconds(3), kInTime = Duration::Millis(10);

TEST(WaitClock, WhatIsUnderWayForLessThanASecondIsNotWaitedFor) {
  WaitClock clock;
  clock.Look(At(5000), Duration::Millis(999), v1::WAITS_FOR_WRITER);
  EXPECT_EQ(clock.waits_for(), v1::WAITS_FOR_NOBODY);
  EXPECT_EQ(clock.waited(At(9000)), Duration());
  clock.Look(At(5050), Duration::Seconds(1), v1::WAITS_FOR_WRITER);
  EXPECT_EQ(clock.waits_for(), v1::WAITS_FOR_WRITER);
  EXPECT_EQ(clock.waited(At(5050)), Duration::Seconds(1));
}

TEST(WaitClock, ItWaitsOnWhileItCatchesUpAndForASecondAfter) {
  WaitClock clock;
  clock.Look(At(5000), kLate, v1::WAITS_FOR_LINK);
  for (int64_t ms = 5050; ms < 20'000; ms += 50) clock.Look(At(ms), kLate, v1::WAITS_FOR_LINK);
  EXPECT_EQ(clock.waited(At(20'000)), Duration::Seconds(18)) << "not only as long as the lag is";
  clock.Look(At(20'000), kInTime, v1::WAITS_FOR_LINK);
  clock.Look(At(20'900), kInTime, v1::WAITS_FOR_LINK);
  EXPECT_EQ(clock.waits_for(), v1::WAITS_FOR_LINK);
  clock.Look(At(20'950), kInTime, v1::WAITS_FOR_LINK);
  EXPECT_EQ(clock.waits_for(), v1::WAITS_FOR_NOBODY);
}

TEST(WaitClock, TheEndThatIsMostlyInTheWayIsNamedAndANewOneFromItsOwnTime) {
  WaitClock clock;
  int64_t ms = 5000;
  // One look in ten finds something on its way to the writer.
  for (int i = 0; i < 100; ++i, ms += 50) {
    clock.Look(At(ms), kLate, i % 10 == 9 ? v1::WAITS_FOR_WRITER : v1::WAITS_FOR_SOURCE);
    ASSERT_EQ(clock.waits_for(), v1::WAITS_FOR_SOURCE) << i;
  }
  EXPECT_EQ(clock.waited(At(ms)), Duration::Millis(3000 + 100 * 50));
  int looks = 0;
  for (; clock.waits_for() == v1::WAITS_FOR_SOURCE && looks < 100; ++looks, ms += 50) {
    clock.Look(At(ms), kLate, v1::WAITS_FOR_WRITER);
  }
  EXPECT_LE(looks, 25) << "about a second";
  EXPECT_GE(looks, 5);
  EXPECT_EQ(clock.waits_for(), v1::WAITS_FOR_WRITER);
  EXPECT_LE(clock.waited(At(ms)), Duration::Millis(50));
}

TEST(WriterLoad, IsIdleWhenItIsBusyForLessThanHalfOfTheTimeAndStillHeard) {
  WriterLoad load(At(0));
  EXPECT_FALSE(load.idle(At(0))) << "not known";
  load.OnProgress(At(100), Duration());
  EXPECT_FALSE(load.idle(At(100))) << "too short a time to tell";
  load.OnProgress(At(1000), Duration::Millis(490));
  EXPECT_TRUE(load.idle(At(1000)));
  EXPECT_FALSE(load.idle(At(6000))) << "silent";
  load.OnProgress(At(6100), Duration::Millis(490 + 2600));
  EXPECT_FALSE(load.idle(At(6100)));
}

}  // namespace
}  // namespace tailcast::reader
