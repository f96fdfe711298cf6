// A machine that is slow and does not fail (paper §5, "bad machines"; scheduler/worker_speed.h):
// what it runs goes to others, consumers have their messages as soon as before, and it gets work
// again when it is healthy.
#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/world/pools.h"

namespace tailcast::world {
namespace {

class SlowWorkerTest : public ::testing::Test {
 protected:
  SlowWorkerTest() { (void)SetLogLevels("off"); }
  ~SlowWorkerTest() override { (void)SetLogLevels("info"); }

  // Six shards whose files are full after ten seconds.
  static PoolOptions Shards(int workers) {
    PoolOptions options;
    options.readers = options.writers = workers;
    options.bytes_per_second = {20'000, 20'000, 20'000, 20'000, 20'000, 20'000};
    options.roll_bytes = 200'000;
    options.slow_after_ms = 200;
    return options;
  }
  // Each request of the process to its disk takes so much longer, and each to a cache two thirds.
  static void SlowDown(Pools& pools, const std::string& cell, const std::string& name,
                       Duration by) {
    pools.world.process(cell, name).store->SetDelay(by);
    for (int cache = 1; cache <= 3; ++cache) {
      const std::string server = cell + "/cache-" + std::to_string(cache);
      for (const char* instance : {".data", ".metadata"}) {
        pools.world.fabric().link(cell + "/" + name, server + instance).latency =
            std::max(by / 3, fabric::FakeLink().latency);
      }
    }
  }
  static int64_t Runs(Pools& pools, const std::string& cell, const std::string& name) {
    return pools.world.process(cell, name)
        .metrics.Value(name.starts_with("reader") ? "tailcast_reader_operations"
                                                  : "tailcast_writer_operations",
                       {});
  }
  // Operations that were taken from somebody slow.
  static int64_t Moved(Pools& pools) {
    return pools.world.process("us", "scheduler")
        .metrics.Value("tailcast_scheduler_operations_total", {{"event", "slow"}});
  }
  // The longest delay of messages of the next so many seconds.
  static int64_t LongestMs(Pools& pools, int seconds) {
    const MonotonicTime from = pools.time().now();
    pools.Run(Duration::Seconds(seconds));
    return pools.LongestDelay(from).millis();
  }
  static void OneIsSlowAndRecovers(const std::string& cell, const std::string& name);
};

void SlowWorkerTest::OneIsSlowAndRecovers(const std::string& cell, const std::string& name) {
  Pools pools(Shards(2));
  pools.Run(Duration::Seconds(5));
  ASSERT_GE(Runs(pools, cell, name), 4);
  EXPECT_LT(LongestMs(pools, 5), 100);
  SlowDown(pools, cell, name, Duration::Millis(300));
  EXPECT_GT(LongestMs(pools, 2), 150) << "else the test shows nothing";
  pools.Run(Duration::Seconds(8));
  EXPECT_EQ(Runs(pools, cell, name), 0);
  EXPECT_LT(LongestMs(pools, 10), 100) << "while it is slow";
  const int64_t moved = Moved(pools);
  EXPECT_GE(moved, 4);
  SlowDown(pools, cell, name, Duration());
  EXPECT_LT(LongestMs(pools, 60), 100) << "while it comes back";
  EXPECT_GE(Runs(pools, cell, name), 4);
  EXPECT_EQ(Moved(pools), moved);
  pools.Finish();
}

TEST_F(SlowWorkerTest, AWriterGetsNoWorkUntilItIsHealthyAgain) {
  OneIsSlowAndRecovers("eu", "writer-1");
}

TEST_F(SlowWorkerTest, AReaderGetsNoWorkUntilItIsHealthyAgain) {
  OneIsSlowAndRecovers("us", "reader-1");
}

// It is tried every now and then, less and less often.
TEST_F(SlowWorkerTest, WhoStaysSlowIsTriedWithLittleAndSeldom) {
  Pools pools(Shards(2));
  pools.Run(Duration::Seconds(5));
  const int64_t runs = Runs(pools, "eu", "writer-1");
  SlowDown(pools, "eu", "writer-1", Duration::Millis(300));
  pools.Run(Duration::Seconds(15));
  const int64_t moved = Moved(pools);
  EXPECT_GE(moved, runs - 1);
  pools.Run(Duration::Seconds(300));
  EXPECT_GT(Moved(pools), moved) << "it was tried";
  EXPECT_LE(Moved(pools), moved + 5);
  pools.Finish();
}

TEST_F(SlowWorkerTest, IfItWereLeftThereMessagesWouldBeLateForGood) {
  if (!kFaultPointsCompiledIn) GTEST_SKIP() << "no bugs can be planted in this build";
  const PlantedFault fault("scheduler.slow_stay");
  Pools pools(Shards(2));
  pools.Run(Duration::Seconds(5));
  SlowDown(pools, "eu", "writer-1", Duration::Millis(300));
  pools.Run(Duration::Seconds(10));
  EXPECT_GT(LongestMs(pools, 10), 150);
  pools.Finish();
}

TEST_F(SlowWorkerTest, NobodyIsAvoidedUnlessTheTopologyAsksForIt) {
  PoolOptions options = Shards(2);
  options.slow_after_ms = 0;
  Pools pools(options);
  pools.Run(Duration::Seconds(5));
  SlowDown(pools, "eu", "writer-1", Duration::Millis(300));
  pools.Run(Duration::Seconds(20));
  EXPECT_EQ(Moved(pools), 0);
  EXPECT_GE(Runs(pools, "eu", "writer-1"), 4);
  pools.Finish();
}

TEST_F(SlowWorkerTest, WhereAllAreSlowNothingMoves) {
  Pools pools(Shards(2));
  pools.Run(Duration::Seconds(5));
  for (const char* name : {"writer-1", "writer-2"}) {
    SlowDown(pools, "eu", name, Duration::Millis(300));
  }
  pools.Run(Duration::Seconds(60));
  EXPECT_EQ(Moved(pools), 0);
  pools.Finish();
}

TEST_F(SlowWorkerTest, WhoIsAloneKeepsItsWork) {
  Pools pools(Shards(1));
  pools.Run(Duration::Seconds(5));
  SlowDown(pools, "eu", "writer-1", Duration::Millis(300));
  SlowDown(pools, "us", "reader-1", Duration::Millis(300));
  pools.Run(Duration::Seconds(30));
  EXPECT_EQ(Moved(pools), 0);
  pools.Finish();
}

TEST_F(SlowWorkerTest, ASlowOneIsBetterThanNobody) {
  Pools pools(Shards(3));
  pools.Run(Duration::Seconds(5));
  SlowDown(pools, "eu", "writer-1", Duration::Millis(300));
  pools.Run(Duration::Seconds(10));
  pools.world.Kill("eu", "writer-2");
  pools.world.Kill("eu", "writer-3");
  pools.Run(Duration::Seconds(3));
  EXPECT_GE(Runs(pools, "eu", "writer-1"), 12) << "there is nobody else";
  pools.Finish();
}

}  // namespace
}  // namespace tailcast::world
