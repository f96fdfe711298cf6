// Sweeps over many seeds of what cache_members_sweep_testing.h describes.
#include "tailcast/cell/cache_members_sweep_testing.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>

namespace tailcast::cell {
namespace {

TEST(CacheMembersSweepTest, CompleteReadsSeeWhatWasAcknowledged) {
  const char* text = std::getenv("TAILCAST_SEEDS");
  const uint64_t seeds = text == nullptr ? 60 : std::strtoull(text, nullptr, 10);
  uint64_t reads = 0, partial = 0, acknowledged = 0, epochs = 0, changed = 0, taken_back = 0,
           rewritten = 0, outdated = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    Sweep sweep(seed);
    sweep.Run();
    ASSERT_EQ(sweep.failure(), "") << "seed " << seed;
    reads += sweep.reads_;
    partial += sweep.partial_;
    acknowledged += sweep.acknowledged_;
    epochs += sweep.world().epochs;
    changed += sweep.world().changed;
    taken_back += sweep.world().taken_back;
    rewritten += sweep.rewritten_;
    outdated += sweep.outdated_;
  }
  EXPECT_GT(acknowledged, 20 * seeds);
  EXPECT_GT(epochs, seeds) << "the faults are too weak";
  EXPECT_GT(changed, 2 * seeds) << "too few rings changed";
  EXPECT_GT(taken_back, seeds / 4);
  EXPECT_GT(rewritten, seeds);
  EXPECT_GT(outdated, seeds);
  EXPECT_GT(partial * 100, reads) << "the faults are too weak";
  EXPECT_LT(partial * 2, reads) << "the faults are too strong";
}

}  // namespace
}  // namespace tailcast::cell
