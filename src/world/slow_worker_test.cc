// A machine that is slow and does not fail (paper §5, "bad machines"; scheduler/worker_speed.h):
// what it runs goes to others, as far as they can bear it, consumers have their messages as soon as
// before, and it gets work again when it is healthy.
#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/names.h"
#include "tailcast/world/pools.h"

namespace tailcast::world {
namespace {

class SlowWorkerTest : public ::testing::Test {
 protected:
  SlowWorkerTest() { (void)SetLogLevels("off"); }
  ~SlowWorkerTest() override { (void)SetLogLevels("info"); }

  // Six shards whose files are full after ten seconds: 200 messages, data and index.
  static PoolOptions Shards(int workers) {
    PoolOptions options;
    options.readers = options.writers = workers;
    options.bytes_per_second = {20'000, 20'000, 20'000, 20'000, 20'000, 20'000};
    options.roll_bytes = 200 * (1000 + stream::kIndexRecordSize);
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
  // Each writer of "eu" appends so much; of twelve shards with 20 kB/s each three of them use two
  // thirds.
  static constexpr int64_t kRate = 120'000;
  static PoolOptions TwoThirds() {
    PoolOptions options = Shards(3);
    options.bytes_per_second = std::vector<int64_t>(12, 20'000);
    return options;
  }
  static void SetRate(Pools& pools, const std::string& name, int64_t bytes_per_second) {
    pools.world.process("eu", name).store->SetAppendRate(bytes_per_second);
  }
  // Bytes of the stream that the disk of "us" has, and that of "eu" has not.
  static int64_t Behind(Pools& pools) {
    int64_t behind = 0;
    for (const stream::ShardId& shard : pools.Shards()) {
      const std::string dir = stream::ShardDir(shard);
      for (const auto& [cell, sign] : {std::pair("us", 1), {"eu", -1}}) {
        const storage::FakeDisk& disk = *pools.world.cell(cell).disk;
        for (const std::string& name : disk.PeekNames(dir)) {
          const auto bytes = disk.Peek(dir, name);
          if (bytes.ok()) behind += sign * static_cast<int64_t>(bytes->size());
        }
      }
    }
    return behind;
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
  pools.Run(Duration::Seconds(23));
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
  pools.Run(Duration::Seconds(25));
  const int64_t moved = Moved(pools);
  EXPECT_GE(moved, runs - 1);
  pools.Run(Duration::Seconds(300));
  EXPECT_GT(Moved(pools), moved) << "it was tried";
  EXPECT_LE(Moved(pools), moved + 8);
  pools.Finish();
}

TEST_F(SlowWorkerTest, IfItWereLeftThereMessagesWouldBeLateForGood) {
  if (!kFaultPointsCompiledIn) GTEST_SKIP() << "no bugs can be planted in this build";
  const PlantedFault fault("scheduler.slow_stay");
  Pools pools(Shards(2));
  pools.Run(Duration::Seconds(5));
  SlowDown(pools, "eu", "writer-1", Duration::Millis(300));
  pools.Run(Duration::Seconds(25));
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
  pools.Run(Duration::Seconds(30));
  ASSERT_EQ(Runs(pools, "eu", "writer-1"), 0);
  pools.world.Kill("eu", "writer-2");
  pools.world.Kill("eu", "writer-3");
  pools.Run(Duration::Seconds(3));
  EXPECT_GE(Runs(pools, "eu", "writer-1"), 12) << "there is nobody else";
  pools.Finish();
}

// It is slow for four seconds, and for as long again until it has done what waited.
TEST_F(SlowWorkerTest, AHiccupOfAPoolThatHasLittleToSpareIsOverSoon) {
  Pools pools(TwoThirds());
  for (const char* name : {"writer-1", "writer-2", "writer-3"}) SetRate(pools, name, kRate);
  pools.Run(Duration::Seconds(20));
  EXPECT_LT(Behind(pools), 60'000);
  SetRate(pools, "writer-1", kRate / 10);
  pools.Run(Duration::Seconds(4));
  EXPECT_GT(Behind(pools), 200'000) << "else the test shows nothing";
  SetRate(pools, "writer-1", kRate);
  pools.Run(Duration::Seconds(20));
  EXPECT_LT(Behind(pools), 60'000) << "what waited is done";
  const int64_t moved = Moved(pools);
  for (int second = 0; second < 100; second += 5) {
    pools.Run(Duration::Seconds(5));
    ASSERT_LT(Behind(pools), 60'000) << second << " s later";
  }
  EXPECT_EQ(Moved(pools), moved);
  pools.Finish();
}

// Of two writers that are busy to two thirds one becomes slow for good: the other one can't do the
// work of both.
TEST_F(SlowWorkerTest, NobodyGetsMoreThanItCanBear) {
  int64_t most[2] = {0, 0}, at_last[2] = {0, 0};
  for (const bool avoid : {false, true}) {
    PoolOptions options = TwoThirds();
    options.writers = 2;
    options.bytes_per_second = std::vector<int64_t>(8, 20'000);
    if (!avoid) options.slow_after_ms = 0;
    Pools pools(options);
    for (const char* name : {"writer-1", "writer-2"}) SetRate(pools, name, kRate);
    pools.Run(Duration::Seconds(10));
    pools.world.process("eu", "writer-1").store->SetDelay(Duration::Millis(300));
    for (int second = 0; second < 200; second += 5) {
      pools.Run(Duration::Seconds(5));
      at_last[avoid] = Behind(pools);
      most[avoid] = std::max(most[avoid], at_last[avoid]);
    }
    EXPECT_LE(Moved(pools), 16);
    pools.Finish();
  }
  EXPECT_LT(most[true], most[false] * 3 / 2);
  EXPECT_LT(at_last[true], at_last[false] * 3 / 2);
}

TEST_F(SlowWorkerTest, AReaderThatIsSlowToSendIsAvoidedAndNotItsWriters) {
  for (const int workers : {2, 3}) {
    Pools pools(Shards(workers));
    pools.Run(Duration::Seconds(10));
    const int64_t runs = Runs(pools, "us", "reader-1");
    ASSERT_GE(runs, 4);
    pools.world.network().SetSlow("us/reader-1", "eu", Duration::Millis(500));
    EXPECT_GT(LongestMs(pools, 3), 400) << "else the test shows nothing";
    pools.Run(Duration::Seconds(27));
    EXPECT_EQ(Runs(pools, "us", "reader-1"), 0);
    EXPECT_LE(Moved(pools), runs + 3) << "a quarter, to find out that it is not a writer";
    EXPECT_LT(LongestMs(pools, 20), 150);
    for (int w = 1; w <= workers; ++w) {
      EXPECT_GE(Runs(pools, "eu", "writer-" + std::to_string(w)), 1) << w;
    }
    pools.Finish();
  }
}

// One shard is more than any writer bears, so that it and what is beside it are late wherever they
// are.
TEST_F(SlowWorkerTest, AShardThatIsSlowByItselfIsNotMovedAroundForEver) {
  PoolOptions options = Shards(3);
  options.bytes_per_second = {130'000, 5'000, 5'000, 5'000, 5'000, 5'000};
  options.roll_bytes = 100'000'000;
  Pools pools(options);
  for (const char* name : {"writer-1", "writer-2", "writer-3"}) SetRate(pools, name, kRate);
  pools.Run(Duration::Seconds(300));
  const int64_t moved = Moved(pools);
  EXPECT_LE(moved, 24);
  pools.Run(Duration::Seconds(300));
  EXPECT_LE(Moved(pools), moved + 6) << "less and less often";
}

}  // namespace
}  // namespace tailcast::world
