#include "tailcast/base/rng.h"

#include <cmath>

#include "gtest/gtest.h"

namespace tailcast {
namespace {

TEST(Rng, ExponentialNumbersHaveTheirDistribution) {
  Rng rng(1);
  constexpr int kDraws = 200'000;
  double sum = 0;
  int above_mean = 0, above_three = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = rng.Exponential(5);
    sum += x;
    above_mean += x > 5 ? 1 : 0;
    above_three += x > 15 ? 1 : 0;
  }
  EXPECT_NEAR(sum / kDraws, 5, 0.05);
  EXPECT_NEAR(static_cast<double>(above_mean) / kDraws, std::exp(-1), 0.005);
  EXPECT_NEAR(static_cast<double>(above_three) / kDraws, std::exp(-3), 0.002);
}

// No function of a library is asked, whose last bit another machine may round differently.
TEST(Rng, SmallExponentialNumbersAreUniformOnes) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Rng rng(seed);
    Rng uniform(seed);
    const double x = rng.Exponential(1);
    if (x >= 1) continue;  // the sum has lost the last bits of the uniform number
    bool found = false;
    for (int i = 0; i < 200 && !found; ++i) found = uniform.Unit() == x;
    EXPECT_TRUE(found) << "seed " << seed << ": " << x;
  }
}

}  // namespace
}  // namespace tailcast
