#include "tailcast/node/leaving.h"

#include <gtest/gtest.h>

namespace tailcast::node {
namespace {

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

class LeavingTest : public ::testing::Test {
 protected:
  // What it says, or "" while it has to wait.
  std::string Says(int64_t ms, int64_t operations, bool others = true) {
    return leaving_.MayEnd(At(ms), operations, others).value_or("");
  }
  Leaving leaving_{At(0),
                   {.least = Duration::Millis(500),
                    .unanswered = Duration::Seconds(2),
                    .limit = Duration::Seconds(10)}};
};

TEST_F(LeavingTest, ItEndsWhenOthersRunWhatItRan) {
  EXPECT_EQ(Says(1, 3), "");
  leaving_.OnKnown(At(10));
  EXPECT_EQ(Says(600, 3), "");
  EXPECT_EQ(Says(700, 0), "others run what it ran");
}

TEST_F(LeavingTest, NotBeforeEverybodyHadTimeToHear) {
  leaving_.OnKnown(At(100));
  leaving_.OnKnown(At(400));
  EXPECT_EQ(Says(599, 0), "") << "an order may be on its way";
  EXPECT_EQ(Says(600, 0), "others run what it ran");
}

TEST_F(LeavingTest, TheLastOneDoesNotWait) {
  EXPECT_EQ(Says(0, 7, false), "nobody is there to take its 7 operations");
  EXPECT_EQ(Says(0, 1, false), "nobody is there to take its 1 operation");
}

TEST_F(LeavingTest, ASchedulerThatIsAwayIsNotWaitedForLong) {
  EXPECT_EQ(Says(1999, 0), "") << "nobody was told";
  EXPECT_EQ(Says(2000, 2), "its scheduler does not answer; it runs 2 operations");
  leaving_.OnKnown(At(2000));
  EXPECT_EQ(Says(2001, 2), "");
}

TEST_F(LeavingTest, WhatNobodyTakesOverIsWaitedForUpToALimit) {
  leaving_.OnKnown(At(10));
  EXPECT_EQ(Says(9999, 2), "");
  EXPECT_EQ(Says(10000, 2), "2 operations were not taken over in 10000 ms");
}

}  // namespace
}  // namespace tailcast::node
