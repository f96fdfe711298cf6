#include "tailcast/reader/step_clock.h"

#include "gtest/gtest.h"

namespace tailcast::reader {
namespace {

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

TEST(StepClock, WhatWasDoneLatelyTookItsTimeAndWhatWaitsTakesItNow) {
  StepClock clock;
  EXPECT_EQ(clock.takes(At(10)), Duration()) << "nothing to do";
  clock.OnGiven(At(100), 1000);
  EXPECT_EQ(clock.takes(At(130)).millis(), 30);
  clock.OnDone(At(140), 1000);
  EXPECT_EQ(clock.takes(At(150)).millis(), 40);
  clock.OnGiven(At(200), 2000);
  EXPECT_EQ(clock.takes(At(210)).millis(), 40) << "too early to say that it is faster now";
  EXPECT_EQ(clock.takes(At(290)).millis(), 90);
  clock.OnDone(At(300), 2000);
  EXPECT_EQ(clock.takes(At(1299)).millis(), 100);
  EXPECT_EQ(clock.takes(At(1300)), Duration()) << "that was long ago";
}

TEST(StepClock, WhatIsDoneBeforeItWasGivenTookNothing) {
  StepClock clock;
  clock.OnDone(At(100), 500);  // the far end had it
  clock.OnGiven(At(110), 400);
  EXPECT_EQ(clock.takes(At(5000)), Duration());
}

}  // namespace
}  // namespace tailcast::reader
