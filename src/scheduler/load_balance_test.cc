#include "tailcast/scheduler/load_balance.h"

#include <gtest/gtest.h>

namespace tailcast::scheduler {
namespace {

const BalanceOptions kOptions{.idle_bytes_per_s = 10,
                              .windows = 4,
                              .catch_up_s = 10,
                              .waiting_max = 5000,
                              .busier_percent = 125,
                              .slack = 40,
                              .move_gain_percent = 25};

class OperationLoadTest : public ::testing::Test {
 protected:
  OperationLoadTest() { load_.Begin({}, kOptions); }
  // A window in which so much was sent.
  int64_t Window(int64_t bytes) {
    sent_ += bytes;
    load_.OnReport(sent_, 0);
    load_.OnWindows(1, kOptions);
    return load_.bytes_per_s(kOptions);
  }
  OperationLoad load_;
  int64_t sent_ = 0;
};

TEST_F(OperationLoadTest, WhatMovesNothingCostsALittle) {
  EXPECT_EQ(load_.bytes_per_s(kOptions), 10);
  EXPECT_TRUE(load_.idle());
  EXPECT_EQ(load_.rate(), std::nullopt) << "nothing was measured";
}

TEST_F(OperationLoadTest, TheRateIsTheMeanOfTheFirstWindowsThenItFollowsSlowly) {
  EXPECT_EQ(Window(1000), 10 + 1000);
  EXPECT_EQ(Window(0), 10 + 500);
  EXPECT_EQ(Window(500), 10 + 500);
  EXPECT_EQ(Window(900), 10 + 600);
  EXPECT_EQ(Window(1000), 10 + 700) << "a quarter of the way";
  EXPECT_EQ(load_.rate(), 700);
}

TEST_F(OperationLoadTest, WhatFallsSilentIsIdleInTheEnd) {
  Window(1000);
  int windows = 0;
  for (; !load_.idle(); ++windows) ASSERT_LT(Window(0), 10 + 1000);
  EXPECT_EQ(load_.bytes_per_s(kOptions), 10);
  EXPECT_LT(windows, 40);
  EXPECT_EQ(load_.rate(), 0) << "that is known, now";
}

TEST_F(OperationLoadTest, WindowsThatWereMissedShareWhatWasSentInThem) {
  for (int i = 0; i < 4; ++i) Window(1000);
  OperationLoad late = load_;
  late.OnReport(sent_ + 3000, 0);
  late.OnWindows(3, kOptions);
  EXPECT_EQ(late.rate(), 1000);
  late.OnWindows(1'000'000'000, kOptions);
  EXPECT_TRUE(late.idle());
}

TEST_F(OperationLoadTest, WhatIsExpectedHoldsUntilItIsMeasured) {
  OperationLoad load;
  load.Begin({.rate = 800, .waiting = 100}, kOptions);
  EXPECT_EQ(load.bytes_per_s(kOptions), 10 + 800 + 10);
  load.OnReport(0, 0);
  load.OnWindows(1, kOptions);
  EXPECT_EQ(load.bytes_per_s(kOptions), 10 + 600);
  load.Begin({.rate = 90000}, kOptions);
  EXPECT_EQ(load.bytes_per_s(kOptions), 10 + 600)
      << "the next attempt: what was measured is better";
}

TEST_F(OperationLoadTest, WhatWaitsCountsAsIfItWereMovedSoonUpToALimit) {
  load_.OnReport(0, 300);
  EXPECT_EQ(load_.bytes_per_s(kOptions), 10 + 30);
  load_.OnReport(0, 1'000'000);
  EXPECT_EQ(load_.bytes_per_s(kOptions), 10 + 500);
  load_.OnReport(0, -5);
  EXPECT_EQ(load_.bytes_per_s(kOptions), 10) << "a peer may say anything";
}

TEST_F(OperationLoadTest, WhatWasSentBeforeItWasAdoptedIsNotCounted) {
  OperationLoad load;
  load.Adopt();
  load.OnReport(1'000'000, 0);
  EXPECT_TRUE(load.idle());
  load.OnReport(1'000'300, 0);
  load.OnWindows(1, kOptions);
  EXPECT_EQ(load.rate(), 300);
  load.OnReport(0, 0);
  load.OnWindows(1, kOptions);
  EXPECT_EQ(load.rate(), 150) << "nothing is taken back";
}

TEST(LoadBalance, OneIsClearlyBusierWithAQuarterMoreAndTheSlack) {
  EXPECT_FALSE(ClearlyBusier(kOptions, 40, 0));
  EXPECT_TRUE(ClearlyBusier(kOptions, 41, 0));
  EXPECT_FALSE(ClearlyBusier(kOptions, 1290, 1000));
  EXPECT_TRUE(ClearlyBusier(kOptions, 1291, 1000));
  EXPECT_FALSE(ClearlyBusier(kOptions, 1000, 1291));
}

TEST(LoadBalance, AMoveGainsWhatItTakesOffTheBusierOfTheTwo) {
  EXPECT_EQ(MoveGain(kOptions, 10, 100), 10);
  EXPECT_EQ(MoveGain(kOptions, 50, 100), 50) << "even";
  EXPECT_EQ(MoveGain(kOptions, 80, 100), 20);
  EXPECT_EQ(MoveGain(kOptions, 81, 100), 0) << "too little for what it costs";
  EXPECT_EQ(MoveGain(kOptions, 100, 100), 0);
  EXPECT_EQ(MoveGain(kOptions, 150, 100), 0);
}

// However big it is: a move that was worth it is not taken back while the loads stand still.
TEST(LoadBalance, WhatWasMovedDoesNotMoveBack) {
  for (int64_t gap = 1; gap < 200; ++gap) {
    for (int64_t load = 1; load < 300; ++load) {
      if (MoveGain(kOptions, load, gap) == 0) continue;
      EXPECT_EQ(MoveGain(kOptions, load, 2 * load - gap), 0) << load << " over " << gap;
      EXPECT_EQ(MoveGain(kOptions, load, 2 * load - gap + load * 49 / 100), 0)
          << load << " over " << gap << ", and it has grown by half of what was moved";
    }
  }
}

}  // namespace
}  // namespace tailcast::scheduler
