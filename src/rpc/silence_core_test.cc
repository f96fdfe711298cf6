#include "tailcast/rpc/silence_core.h"

#include "gtest/gtest.h"

namespace tailcast::rpc {
namespace {

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

TEST(SilenceCoreTest, AQuietMachineNoticesAStopWithinTheLeast) {
  SilenceCore core({});
  for (int64_t ms = 100; ms <= 1000; ms += 100) core.OnBeat(At(ms), false);
  EXPECT_EQ(core.limit(), At(1200));
}

TEST(SilenceCoreTest, WhereBeatsComeLateTheLimitFollowsAndComesBack) {
  SilenceCore core({});
  int64_t ms = 100;
  core.OnBeat(At(ms), false);
  core.OnBeat(At(ms += 350), false);
  EXPECT_EQ(core.limit_duration(), Duration::Millis(100 + 4 * 250 + 100));
  core.OnBeat(At(ms += 20), false);
  EXPECT_GT(core.limit_duration(), Duration::Seconds(1))
      << "one that comes soon takes nothing back";
  for (int i = 0; i < 6000; ++i) core.OnBeat(At(ms += 100), false);
  EXPECT_LE(core.limit_duration().millis(), 203);
  core.OnBeat(At(ms += 100000), false);
  EXPECT_LE(core.limit_duration().millis(), 1830) << "it was stopped";
  for (int i = 0; i < 5; ++i) core.OnBeat(At(ms += 5000), false);
  EXPECT_EQ(core.limit_duration(), Duration::Seconds(3)) << "but again and again";
}

TEST(SilenceCoreTest, WhoIsIdleMayBeSilentForLonger) {
  SilenceCore core({});
  core.OnBeat(At(100), false);
  core.OnBeat(At(200), true);
  EXPECT_EQ(core.limit(), At(2300));
  core.OnBeat(At(1200), true);
  core.OnBeat(At(1210), false);
  EXPECT_EQ(core.limit(), At(1410)) << "it was in time, and early when it got something to do";
}

}  // namespace
}  // namespace tailcast::rpc
