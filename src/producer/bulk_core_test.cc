#include "tailcast/producer/bulk_core.h"

#include <gtest/gtest.h>

namespace tailcast::producer {
namespace {

// From when the machine was started, as a clock says.
constexpr int64_t kStart = 7'000'000;

class BulkCoreTest : public ::testing::Test {
 protected:
  // So many bytes a second for so long, each 10 ms. How often in_bulk() became another.
  int Write(int64_t bytes_per_second, double seconds) {
    int changes = 0;
    for (int i = 0; i < seconds * 100; ++i) {
      at_us_ += 10'000;
      const bool before = core_.in_bulk();
      (void)core_.Add(bytes_per_second / 100, MonotonicTime::FromMicros(at_us_));
      changes += core_.in_bulk() != before ? 1 : 0;
    }
    return changes;
  }
  int64_t at_us_ = kStart;
  BulkCore core_;
};

TEST_F(BulkCoreTest, OneThatIsPacedIsNoBulk) {
  EXPECT_EQ(Write(4'000'000, 60), 0);
  EXPECT_EQ(Write(kBulkBytes * 9 / 10, 60), 0);
  EXPECT_FALSE(core_.in_bulk());
}

TEST_F(BulkCoreTest, OneThatWritesAsFastAsItGetsIsWithinTwoSeconds) {
  Write(4'000'000, 10);
  EXPECT_EQ(Write(80'000'000, 2), 1);
  EXPECT_TRUE(core_.in_bulk());
  EXPECT_EQ(Write(80'000'000, 60), 0);
}

TEST_F(BulkCoreTest, ItStaysSoWhileItGetsHalfAsFar) {
  Write(80'000'000, 3);
  EXPECT_EQ(Write(kBulkBytes * 6 / 10, 60), 0);
  EXPECT_TRUE(core_.in_bulk());
  EXPECT_EQ(Write(kBulkBytes * 4 / 10, 2), 1);
  EXPECT_FALSE(core_.in_bulk());
}

TEST_F(BulkCoreTest, ABurstOfLessThanASecondsWorthIsNone) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Write(80'000'000, 0.1), 0);
    EXPECT_EQ(Write(0, 2), 0);
  }
}

TEST_F(BulkCoreTest, OneThatWasSilentIsNoneWithTheFirstThatComes) {
  Write(80'000'000, 3);
  at_us_ += 60'000'000;
  EXPECT_TRUE(core_.Add(1000, MonotonicTime::FromMicros(at_us_)));
  EXPECT_FALSE(core_.in_bulk());
}

TEST_F(BulkCoreTest, SaysWhenASecondHasEnded) {
  Write(4'000'000, 3);
  int ends = 0;
  for (int i = 0; i < 50; ++i) {
    at_us_ += 100'000;
    ends += core_.Add(1, MonotonicTime::FromMicros(at_us_)) ? 1 : 0;
  }
  EXPECT_EQ(ends, 5);
}

TEST_F(BulkCoreTest, TheFirstMessageOfAllIsNone) {
  EXPECT_TRUE(core_.Add(kBulkBytes, MonotonicTime::FromMicros(kStart)));
  EXPECT_FALSE(core_.in_bulk());
  EXPECT_EQ(Write(4'000'000, 10), 0);
}

}  // namespace
}  // namespace tailcast::producer
