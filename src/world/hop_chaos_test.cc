// A stream through three cells under faults that seeds draw: nothing is lost or forked.
#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/world/faults.h"
#include "tailcast/world/hop.h"

namespace tailcast::world {
namespace {

struct ChaosOptions {
  uint64_t seed = 1;
  // No faults of caches and disks, so that published lengths can be held to account.
  bool calm = false;
  int steps = 60;
};

cache::MemoryFaults DrawCacheFaults(Rng& rng) {
  cache::MemoryFaults faults;
  if (!rng.Chance(0.7)) return faults;
  faults.miss = rng.Unit() * 0.3;
  faults.short_read = rng.Unit() * 0.3;
  faults.lost_write = rng.Unit() * 0.2;
  faults.failed_write = rng.Unit() * 0.3;
  faults.unavailable = rng.Chance(0.2);
  faults.delay = Duration::Millis(rng.Between(0, 50));
  faults.jitter = Duration::Millis(rng.Between(0, 50));
  return faults;
}

Fault RerouteHop(Hop& hop) {
  const auto apply = [&hop](Rng& rng) {
    const Edges trees[] = {{{"us", "eu"}, {"eu", "asia"}},
                           {{"us", "asia"}, {"asia", "eu"}},
                           {{"us", "eu"}, {"us", "asia"}}};
    hop.Reroute(trees[rng.Below(3)]);
  };
  return {.name = "reroute", .apply = apply};
}

// The table of the run: which faults exist, as `rng` draws.
Faults DrawFaults(Hop& hop, const ChaosOptions& chaos, Rng& rng) {
  Faults faults(Rng(chaos.seed).Fork("faults"));
  const bool bad_disks = !chaos.calm && rng.Chance(0.5);
  const bool bad_caches = !chaos.calm && rng.Chance(0.5);
  if (rng.Chance(0.8)) faults.Add(KillProcess(hop.world), 0.15);
  if (rng.Chance(0.5)) faults.Add(StopProcess(hop.world), 0.1, 0.1);
  if (rng.Chance(0.5)) faults.Add(CutLink(hop.world), 0.1);
  if (rng.Chance(0.4)) faults.Add(RerouteHop(hop), 0.1);
  // The source's disk is sound: its producer needs that.
  if (bad_disks) faults.Add(BadDisk(hop.world, {"eu", "asia"}), 0.1);
  if (bad_caches) {
    faults.Add(BadMemoryCache(hop.world, DrawCacheFaults), 0.2);
    faults.Add(EvictMemoryCache(hop.world), 0.06);
  }
  return faults;
}

// Runs a stream through three cells while processes die and stop, links break, caches lose and
// disks fail; then heals everything and requires that all of it arrives. Returns what went wrong.
std::string Chaos(const ChaosOptions& chaos) {
  HopOptions options;
  options.seed = chaos.seed;
  Rng rng = Rng(chaos.seed).Fork("chaos");
  options.doorbells = rng.Chance(0.3);
  options.chunk_size = rng.Chance(0.5) ? 512 : 4096;
  options.link_delay = Duration::Millis(rng.Between(1, 100));
  options.caches_are_sound = chaos.calm;
  Hop hop(options);
  hop.CreateStream();
  Faults faults = DrawFaults(hop, chaos, rng);
  HandProducer producer(hop.world, "us", hop.shard(), hop.options.chunk_size);
  Truth truth;
  const auto append = [&](int64_t size) {
    producer.Append(size);
    truth[producer.file().seq] = {producer.data(), producer.index()};
  };
  for (int step = 0; step < chaos.steps; ++step) {
    if (step == 0 || rng.Chance(0.15)) producer.Roll();
    for (int64_t n = rng.Between(0, 3); n > 0; --n) {
      append(rng.Chance(0.2) ? rng.Between(1, 9000) : rng.Between(1, 300));
    }
    faults.Turn();
    // Often enough to catch a length that is ahead for a moment only.
    const MonotonicTime until = hop.time().now() + Duration::Millis(rng.Between(1, 120));
    while (hop.time().now() < until) {
      hop.world.ReviveDead();
      if (std::string problem = hop.Check(); !problem.empty()) return problem;
      hop.time().RunFor(Duration::Micros(rng.Between(50, 3000)));
    }
  }
  faults.HealAll();
  // Whatever the caches lost, the primary layer has it all in the end, and new bytes take both
  // layers.
  producer.Roll();
  append(100);
  const auto arrived = [&] {
    hop.world.ReviveDead();
    return hop.Arrived({*truth.rbegin()}) && hop.oracles->Missing().empty();
  };
  const MonotonicTime limit = hop.time().now() + Duration::Seconds(90);
  while (!arrived() && hop.time().now() < limit) hop.time().RunFor(Duration::Millis(20));
  if (!arrived()) return "not everything arrived after healing:\n" + hop.Missing(truth);
  return hop.oracles->CheckAll();
}

// TAILCAST_HOP_SEEDS=FROM-TO runs other seeds.
TEST(HopChaos, NothingIsLostOrForkedUnderFaults) {
  (void)SetLogLevels("off");
  uint64_t from = 1;
  uint64_t to = 40;
  if (const char* seeds = std::getenv("TAILCAST_HOP_SEEDS")) {
    char* dash = nullptr;
    from = std::strtoull(seeds, &dash, 10);
    to = *dash == '-' ? std::strtoull(dash + 1, nullptr, 10) : from;
  }
  for (uint64_t seed = from; seed <= to; ++seed) {
    EXPECT_EQ(Chaos({.seed = seed}), "") << "seed " << seed;
  }
  (void)SetLogLevels("info");
}

TEST(HopChaos, LengthsAreCoveredWhenCachesAndDisksAreSound) {
  (void)SetLogLevels("off");
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(Chaos({.seed = seed, .calm = true}), "") << "seed " << seed;
  }
  (void)SetLogLevels("info");
}

// Planted bugs: the checks above must find each of them.
void ExpectCaught(const std::string& planted, const std::string& what) {
  const PlantedFault fault(planted);
  (void)SetLogLevels("off");
  std::string found;
  for (uint64_t seed = 1; seed <= 40 && found.empty(); ++seed) {
    found = Chaos({.seed = seed, .calm = true});
  }
  (void)SetLogLevels("info");
  EXPECT_THAT(found, ::testing::HasSubstr(what));
}
TEST(HopChaos, APrimaryLengthBeforeTheFlushIsCaught) {
  ExpectCaught("writer.publish_before_flush", "was published, and ");
}
TEST(HopChaos, ACacheLengthBeforeTheWriteIsCaught) {
  ExpectCaught("writer.publish_before_write", "before its chunks were written");
}
TEST(HopChaos, AChunkFromItsMiddleIsCaught) { ExpectCaught("writer.chunk_from_middle", "chunk"); }
TEST(HopChaos, AWriterThatNeverTakesOverIsCaught) {
  ExpectCaught("writer.never_take_over", "not everything arrived");
}

}  // namespace
}  // namespace tailcast::world
