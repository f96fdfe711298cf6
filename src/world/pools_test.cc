// Pools of readers and writers: work goes to them by bytes, and they grow and shrink while messages
// flow.
#include "tailcast/world/pools.h"

#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"

namespace tailcast::world {
namespace {

class PoolsTest : public ::testing::Test {
 protected:
  PoolsTest() { (void)SetLogLevels("off"); }
  ~PoolsTest() override { (void)SetLogLevels("info"); }
};

// One reader of "us" becomes three; after 40 seconds, the bytes per second of the busiest one and
// of the least busy one, over ten seconds.
std::pair<int64_t, int64_t> MostAndLeastOfThree(Pools& pools) {
  pools.Run(Duration::Seconds(5));
  pools.Add("us", "reader", 2);
  pools.Add("us", "reader", 3);
  pools.Run(Duration::Seconds(40));
  const auto before = pools.SentBytes();
  pools.Run(Duration::Seconds(10));
  std::vector<int64_t> rates;
  for (const auto& [name, sent] : pools.SentBytes()) rates.push_back((sent - before.at(name)) / 10);
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  return {*most, *least};
}

// One shard moves as much as all the others together; each shard is copied to two layers. At first
// there is one reader, then there are three.
PoolOptions OneHeavyAndTenLight() {
  PoolOptions options;
  options.bytes_per_second = {20'000, 20'000, 20'000, 20'000, 20'000, 200'000,
                              20'000, 20'000, 20'000, 20'000, 20'000};
  return options;
}

TEST_F(PoolsTest, ReadersOfOneHeavyAndManyLightShardsMoveAlikeWithin40Seconds) {
  Pools pools(OneHeavyAndTenLight());
  const auto [most, least] = MostAndLeastOfThree(pools);
  EXPECT_LT(most, least * 5 / 4);
  pools.Finish();
  // A flush, a hop of 20 ms, and the change of hands of what was shed.
  EXPECT_LT(pools.LongestDelay().millis(), 100);
}

TEST_F(PoolsTest, ByCountOneOfThemMovesAThirdMoreAndStaysSo) {
  if (!kFaultPointsCompiledIn) GTEST_SKIP() << "no bugs can be planted in this build";
  const PlantedFault fault("scheduler.load_by_count");
  PoolOptions options = OneHeavyAndTenLight();
  options.slack = 2 * 160;  // of two operations
  Pools pools(options);
  const auto [most, least] = MostAndLeastOfThree(pools);
  EXPECT_GT(most, least * 4 / 3);
}

// Readers and writers come and go while messages flow; what is said of the longest delay is of all
// messages.
class GrowAndShrink : public PoolsTest {
 protected:
  static PoolOptions Even(uint64_t seed) {
    PoolOptions options;
    options.seed = seed;
    options.bytes_per_second = {30'000, 30'000, 30'000, 30'000};
    options.roll_bytes = 10 << 20;  // or they would only have to wait for the next file
    return options;
  }
  // In both cells, from one of each to three and back. Those that are there end up with the work.
  static void Change(Pools& pools) {
    pools.Run(Duration::Seconds(3));
    for (const std::string cell : {"us", "eu"}) {
      for (const std::string role : {"reader", "writer"}) {
        pools.Add(cell, role, 2);
        pools.Add(cell, role, 3);
      }
    }
    pools.Run(Duration::Seconds(30));
    for (const std::string cell : {"us", "eu"}) {
      for (const std::string role : {"reader", "writer"}) {
        pools.world.AskToEnd(cell, role + "-1");
        pools.world.AskToEnd(cell, role + "-3");
      }
    }
  }
  // Operations that failed and were started anew.
  static int64_t Restarted(Pools& pools) {
    int64_t restarted = 0;
    for (const std::string cell : {"us", "eu"}) {
      for (const MetricSample& m : pools.world.process(cell, "scheduler").metrics.Snapshot()) {
        if (m.name == "tailcast_scheduler_operations_total" &&
            m.labels.at("event") == "restarted") {
          restarted += m.value;
        }
      }
    }
    return restarted;
  }
  static size_t There(Pools& pools) {
    size_t there = 0;
    for (const std::string cell : {"us", "eu"}) {
      for (const auto& [name, process] : pools.world.cell(cell).processes) {
        if (name.starts_with("reader") || name.starts_with("writer")) ++there;
      }
    }
    return there;
  }
};

TEST_F(GrowAndShrink, NothingIsLateOrLost) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Pools pools(Even(seed));
    Change(pools);
    const int64_t failed = Restarted(pools);
    const MonotonicTime asked = pools.time().now();
    while (There(pools) > 4 && pools.time().now() < asked + Duration::Seconds(20)) {
      pools.Run(Duration::Millis(100));
    }
    EXPECT_EQ(There(pools), 4u) << "of eight that were asked to end";
    EXPECT_LT((pools.time().now() - asked).millis(), 5000);
    pools.Run(Duration::Seconds(3));
    pools.Finish();
    EXPECT_LT(pools.LongestDelay().millis(), 100) << "seed " << seed;
    EXPECT_EQ(Restarted(pools), failed) << "what was handed over has not failed";
  }
}

TEST_F(GrowAndShrink, IfTheyKeptWhatTheyRunItWouldFail) {
  if (!kFaultPointsCompiledIn) GTEST_SKIP() << "no bugs can be planted in this build";
  const PlantedFault fault("scheduler.leavers_keep");
  Pools pools(Even(1));
  Change(pools);
  const int64_t failed = Restarted(pools);
  pools.Run(Duration::Seconds(5));
  EXPECT_GT(There(pools), 4u);
  pools.Run(Duration::Seconds(7));
  EXPECT_EQ(There(pools), 4u) << "they end all the same, when they have waited long enough";
  pools.Finish();
  EXPECT_GT(Restarted(pools), failed);
}

// While they leave, others die, and the schedulers are restarted.
TEST_F(GrowAndShrink, WithFaultsNothingIsLostAndTheyEndAllTheSame) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Pools pools(Even(seed));
    Change(pools);
    Rng rng(seed);
    pools.Run(Duration::Millis(rng.Between(0, 300)));
    pools.world.Restart("us", "scheduler");
    pools.Run(Duration::Millis(rng.Between(0, 1000)));
    pools.world.Restart("eu", "writer-2");
    pools.world.Restart("us", "reader-2");
    pools.Run(Duration::Millis(rng.Between(0, 1000)));
    pools.world.Restart("eu", "scheduler");
    pools.Run(Duration::Seconds(15));
    EXPECT_EQ(There(pools), 4u) << "seed " << seed;
    pools.Finish();
    // A scheduler that begins waits up to 1.5 s before it starts anew what was lost meanwhile.
    EXPECT_LT(pools.LongestDelay().millis(), 2000) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tailcast::world
