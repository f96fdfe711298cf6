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

// Bytes per second of the busiest reader of "us", and of the least busy one, over ten seconds.
std::pair<int64_t, int64_t> MostAndLeast(Pools& pools) {
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
  pools.Run(Duration::Seconds(5));
  pools.Add("us", "reader", 2);
  pools.Add("us", "reader", 3);
  pools.Run(Duration::Seconds(40));
  const auto [most, least] = MostAndLeast(pools);
  EXPECT_LT(most, least * 5 / 4);
  pools.Finish();
  // A flush, a hop of 20 ms, and the change of hands of what was shed.
  EXPECT_LT(pools.LongestDelay().millis(), 100);
}

TEST_F(PoolsTest, ByCountOneOfThemMovesAThirdMoreAndStaysSo) {
  if (!kFaultPointsCompiledIn) GTEST_SKIP();
  const PlantedFault fault("scheduler.load_by_count");
  PoolOptions options = OneHeavyAndTenLight();
  options.slack = 2 * 160;  // of two operations
  Pools pools(options);
  pools.Run(Duration::Seconds(5));
  pools.Add("us", "reader", 2);
  pools.Add("us", "reader", 3);
  pools.Run(Duration::Seconds(40));
  const auto [most, least] = MostAndLeast(pools);
  EXPECT_GT(most, least * 4 / 3);
}

}  // namespace
}  // namespace tailcast::world
