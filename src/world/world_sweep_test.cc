// Whole deployments under the faults of their seeds. The seeds that ./dev test always runs; others:
// ./dev sim --seed N --runs M.
#include <gtest/gtest.h>

#include "tailcast/base/log.h"
#include "tailcast/world/found_seeds.h"
#include "tailcast/world/world.h"

namespace tailcast::world {
namespace {

class WorldSweep : public ::testing::TestWithParam<uint64_t> {
 protected:
  WorldSweep() { EXPECT_TRUE(SetLogLevels("off").ok()); }
};

TEST_P(WorldSweep, DeliversEverythingAfterTheFaultsOfTheSeed) {
  const Outcome outcome = World(Options::Swarm(GetParam())).Run();
  EXPECT_EQ(outcome.problem, "") << "again: ./dev sim --seed " << GetParam() << " --timeline";
}
INSTANTIATE_TEST_SUITE_P(Seeds, WorldSweep, ::testing::Range<uint64_t>(1, 25));
INSTANTIATE_TEST_SUITE_P(Found, WorldSweep, ::testing::ValuesIn(kFoundSeeds));

}  // namespace
}  // namespace tailcast::world
