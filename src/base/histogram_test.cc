#include "tailcast/base/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tailcast/base/rng.h"

namespace tailcast {
namespace {

TEST(Histogram, IsEmptyAtFirst) {
  Histogram h;
  EXPECT_EQ(h.Count(), 0u);
  EXPECT_EQ(h.Percentile(50), 0);
  EXPECT_EQ(h.Mean(), 0);
  EXPECT_EQ(h.Min(), 0);
  EXPECT_EQ(h.Max(), 0);
  EXPECT_EQ(
      h.ToJson(),
      "{\"count\":0,\"mean\":0.0,\"min\":0,\"p50\":0,\"p90\":0,\"p99\":0,\"p999\":0,\"max\":0}");
}

TEST(Histogram, IsExactForSmallValues) {
  Histogram h;
  for (int64_t v = 0; v < 128; ++v) h.Record(v);
  EXPECT_EQ(h.Percentile(0), 0);
  EXPECT_EQ(h.Percentile(50), 63);
  EXPECT_EQ(h.Percentile(100), 127);
  EXPECT_EQ(h.CountAtMost(9), 10u);
  EXPECT_DOUBLE_EQ(h.Mean(), 63.5);
}

TEST(Histogram, StaysWithinOnePercentOfTheSortedRecords) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Rng rng(seed);
    Histogram h;
    std::vector<int64_t> sorted;
    for (int i = 0; i < 5000; ++i) {
      const auto v = static_cast<int64_t>(rng.Exponential(std::pow(10.0, 1 + rng.Unit() * 8)));
      h.Record(v);
      sorted.push_back(v);
    }
    std::sort(sorted.begin(), sorted.end());
    for (double percent : {0.1, 1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
      const auto rank = static_cast<size_t>(std::ceil(percent / 100 * 5000));
      const auto exact = static_cast<double>(sorted[std::max<size_t>(rank, 1) - 1]);
      EXPECT_NEAR(static_cast<double>(h.Percentile(percent)), exact, exact * 0.01) << percent;
    }
    EXPECT_EQ(h.Max(), sorted.back());
    EXPECT_EQ(h.Min(), sorted.front());
  }
}

TEST(Histogram, MergingEqualsRecordingEverythingInOne) {
  Rng rng(5);
  Histogram a, b, both;
  for (int i = 0; i < 1000; ++i) {
    const int64_t v = rng.Between(0, int64_t{1} << (i % 60));
    (i % 3 == 0 ? a : b).Record(v);
    both.Record(v);
  }
  a.Merge(b);
  EXPECT_EQ(a.Count(), both.Count());
  for (double p : {1.0, 50.0, 99.0}) EXPECT_EQ(a.Percentile(p), both.Percentile(p));
  EXPECT_EQ(a.Min(), both.Min());
  EXPECT_EQ(a.Max(), both.Max());
  a.Merge(Histogram());
  EXPECT_EQ(a.Count(), both.Count());
  EXPECT_EQ(a.Min(), both.Min());
}

TEST(Histogram, TakesTheExtremesOfItsRange) {
  Histogram h;
  h.Record(-5);
  h.Record(INT64_MAX);
  EXPECT_EQ(h.Min(), 0);
  EXPECT_EQ(h.Percentile(1), 0);
  EXPECT_EQ(h.Max(), INT64_MAX);
  EXPECT_NEAR(static_cast<double>(h.Percentile(100)), static_cast<double>(INT64_MAX), 9.3e16);
}

}  // namespace
}  // namespace tailcast
