#include "tailcast/world/world.h"

#include <gtest/gtest.h>

#include "tailcast/base/log.h"

namespace tailcast::world {
namespace {

class WorldTest : public ::testing::Test {
 protected:
  WorldTest() { EXPECT_TRUE(SetLogLevels("off").ok()); }
};

TEST_F(WorldTest, DeliversEverythingToEveryCellWithoutFaults) {
  Options options;
  options.roll_bytes = 20000;
  const Outcome outcome = World(options).Run();
  EXPECT_EQ(outcome.problem, "");
  EXPECT_EQ(outcome.delivered, 3 * options.messages);
}

TEST_F(WorldTest, IsAFunctionOfItsSeed) {
  const Outcome a = World(Options::Swarm(7)).Run();
  const Outcome b = World(Options::Swarm(7)).Run();
  EXPECT_EQ(a.trace_hash, b.trace_hash);
  EXPECT_EQ(a.events, b.events);
  EXPECT_NE(a.trace_hash, World(Options::Swarm(8)).Run().trace_hash);
}

// The tree changes again and again while processes die, schedulers among them.
TEST_F(WorldTest, ChangesOfTheTreeEndWhateverDiesInTheMiddle) {
  for (uint64_t seed = 101; seed <= 104; ++seed) {
    Options options = Options::Swarm(seed);
    options.faults.insert({"reroute", "kill"});
    const Outcome outcome = World(options).Run();
    EXPECT_EQ(outcome.problem, "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace tailcast::world
