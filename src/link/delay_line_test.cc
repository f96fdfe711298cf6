#include "tailcast/link/delay_line.h"

#include <gtest/gtest.h>

namespace tailcast::link {
namespace {

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

TEST(DelayLine, HoldsBytesForTheDelay) {
  LinkDirection link({.delay = Duration::Millis(65)});
  DelayLine line(link);
  line.Push(At(0), "abc");
  EXPECT_EQ(line.NextArrival(), At(65));
  EXPECT_EQ(line.Front(At(64)), "");
  EXPECT_EQ(line.Front(At(65)), "abc");
  line.Pop(1);
  EXPECT_EQ(line.Front(At(65)), "bc");
  line.Pop(2);
  EXPECT_TRUE(line.empty());
}

TEST(DelayLine, KeepsTheOrderOfPieces) {
  LinkDirection link({.delay = Duration::Millis(10)});
  DelayLine line(link);
  line.Push(At(0), "a");
  line.Push(At(5), "b");
  EXPECT_EQ(line.Front(At(20)), "a");
  line.Pop(1);
  EXPECT_EQ(line.Front(At(20)), "b");
}

TEST(DelayLine, SharesTheRateBetweenConnections) {
  LinkDirection link({.delay = Duration::Millis(10), .bytes_per_second = 1000});
  DelayLine first(link), second(link);
  first.Push(At(0), std::string(100, 'x'));
  second.Push(At(0), std::string(100, 'y'));
  EXPECT_EQ(first.NextArrival(), At(110));
  EXPECT_EQ(second.NextArrival(), At(210));
}

TEST(DelayLine, IsFullWhenALinkCouldCarryNoMore) {
  LinkDirection link({.delay = Duration::Millis(100), .bytes_per_second = 10 << 20});
  DelayLine line(link);
  EXPECT_FALSE(line.full());
  line.Push(At(0), std::string(link.bytes_in_flight_max(), 'x'));
  EXPECT_TRUE(line.full());
}

}  // namespace
}  // namespace tailcast::link
