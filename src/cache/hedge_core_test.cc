#include "tailcast/cache/hedge_core.h"

#include <gtest/gtest.h>

#include "tailcast/base/rng.h"

namespace tailcast::cache {
namespace {

TEST(HedgeCore, WaitsAsLongAsAlmostAllReadsTake) {
  HedgeCore hedges(Duration::Millis(30));
  EXPECT_EQ(hedges.delay(), Duration::Millis(30)) << "of a client that has read nothing";
  Rng rng(1);
  // Uniform from 2 to 12 ms: 95 % take less than 11.5.
  for (int i = 0; i < 20'000; ++i) hedges.OnLatency(Duration::Micros(rng.Between(2000, 12'000)));
  EXPECT_NEAR(static_cast<double>(hedges.delay().micros()), 11'500, 1500);
}

TEST(HedgeCore, WaitsAMillisecondAtLeastAndAsLongAsItIsToldAtMost) {
  HedgeCore hedges(Duration::Millis(30));
  for (int i = 0; i < 2000; ++i) hedges.OnLatency(Duration::Micros(40));
  EXPECT_EQ(hedges.delay(), HedgeCore::kDelayMin);
  for (int i = 0; i < 2000; ++i) hedges.OnLatency(Duration::Seconds(1));
  EXPECT_EQ(hedges.delay(), Duration::Millis(30));
}

TEST(HedgeCore, HedgesTwoInAHundredReadsAndWhatWasSavedUp) {
  HedgeCore hedges(Duration::Millis(30));
  int64_t taken = 0;
  while (hedges.Take(1)) ++taken;
  EXPECT_EQ(taken, HedgeCore::kHedgesMax);
  taken = 0;
  for (int i = 0; i < 10'000; ++i) {
    hedges.OnRead();
    taken += hedges.Take(1) ? 1 : 0;
  }
  EXPECT_EQ(taken, 200);
  for (int64_t i = 0; i < 2 * HedgeCore::kHedgesMax * HedgeCore::kReadsPerHedge; ++i) {
    hedges.OnRead();
  }
  taken = 0;
  while (hedges.Take(1)) ++taken;
  EXPECT_EQ(taken, HedgeCore::kHedgesMax);
}

TEST(HedgeCore, ReadsThatAreWaitedForTogetherAreHedgedAllOrNone) {
  HedgeCore hedges(Duration::Millis(30));
  EXPECT_FALSE(hedges.Take(HedgeCore::kHedgesMax + 1)) << "nobody can save so much";
  EXPECT_TRUE(hedges.MayTake(10 * HedgeCore::kHedgesMax)) << "of which some may be left";
  EXPECT_TRUE(hedges.Take(HedgeCore::kHedgesMax));
  EXPECT_FALSE(hedges.MayTake(1));
  for (int i = 0; i < 3 * 50 - 1; ++i) hedges.OnRead();
  EXPECT_FALSE(hedges.MayTake(3));
  EXPECT_FALSE(hedges.Take(3));
  hedges.OnRead();
  EXPECT_TRUE(hedges.MayTake(3)) << "what was refused cost nothing";
  EXPECT_TRUE(hedges.Take(3));
  EXPECT_FALSE(hedges.MayTake(1));
}

}  // namespace
}  // namespace tailcast::cache
