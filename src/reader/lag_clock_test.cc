#include "tailcast/reader/lag_clock.h"

#include "gtest/gtest.h"

namespace tailcast::reader {
namespace {

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

TEST(LagClock, CountsFromTheFirstUnconfirmedByte) {
  LagClock clock;
  EXPECT_EQ(clock.lag(At(50)), Duration());
  clock.OnSource(At(100), 100);
  clock.OnSource(At(105), 250);
  EXPECT_EQ(clock.lag(At(106)), Duration::Millis(6));
  clock.OnWritten(At(107), 100);
  EXPECT_EQ(clock.delay(), Duration::Millis(7));
  EXPECT_EQ(clock.lag(At(110)), Duration::Millis(5));
  clock.OnWritten(At(112), 180);
  EXPECT_EQ(clock.delay(), Duration::Millis(7)) << "no mark was reached";
  clock.OnWritten(At(115), 250);
  EXPECT_EQ(clock.delay(), Duration::Millis(10));
  EXPECT_EQ(clock.lag(At(900)), Duration());
}

TEST(LagClock, IgnoresWhatGoesBackAndWhatIsThereAlready) {
  LagClock clock;
  clock.OnWritten(At(1), 300);
  clock.OnSource(At(2), 200);
  EXPECT_EQ(clock.lag(At(9)), Duration());
  clock.OnSource(At(10), 400);
  clock.OnSource(At(11), 350);
  clock.OnWritten(At(12), 200);
  EXPECT_EQ(clock.lag(At(20)), Duration::Millis(10));
}

TEST(LagClock, StaysBoundedAndNeverTooYoung) {
  LagClock clock;
  for (int64_t i = 1; i <= 10000; ++i) clock.OnSource(At(i), i);
  EXPECT_EQ(clock.lag(At(10000)), Duration::Millis(9999));
  clock.OnWritten(At(10001), 10000);
  EXPECT_EQ(clock.lag(At(10001)), Duration());
  EXPECT_GE(clock.delay(), Duration::Millis(1));
}

}  // namespace
}  // namespace tailcast::reader
