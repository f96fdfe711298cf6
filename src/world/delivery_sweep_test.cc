// Random lives of a shard: producers die and take over, disks and caches misbehave, and what was
// acknowledged is delivered whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "tailcast/base/fault_point.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/world/faults.h"
#include "tailcast/world/one_shard.h"
#include "tailcast/world/oracles.h"

namespace tailcast::world {
namespace {

struct SweepOptions {
  std::string fault;  // a fault point; empty: none
  bool corrupt_cache = false;
};

cache::MemoryFaults DrawCacheFaults(Rng& rng) {
  cache::MemoryFaults faults;
  if (rng.Chance(0.5)) faults.miss = rng.Unit() * 0.5;
  if (rng.Chance(0.5)) faults.short_read = rng.Unit() * 0.5;
  if (rng.Chance(0.3)) faults.lost_write = rng.Unit() * 0.5;
  if (rng.Chance(0.3)) faults.failed_write = rng.Unit();
  if (rng.Chance(0.1)) faults.unavailable = true;
  if (rng.Chance(0.3)) faults.refuse_watches = true;
  if (rng.Chance(0.5)) faults.delay = Duration::Micros(rng.Between(0, 5000));
  if (rng.Chance(0.5)) faults.jitter = Duration::Micros(rng.Between(0, 5000));
  return faults;
}

// A bit of a chunk of the newest file is turned in the cache.
Fault CorruptChunk(OneShard& w, int64_t chunk_size) {
  const auto apply = [&w, chunk_size](Rng& rng) {
    const Workload::Producer& p = *w.producers.back();
    if (p.dead()) return;
    const cache::Key key = stream::KeyMaker(w.shard).Chunk(
        std::max<int64_t>(1, p.agent()->current().seq), Part::kData, chunk_size, rng.Between(0, 5));
    auto value = w.data.Get(key);
    if (!value || value->empty()) return;
    w.data.Evict(key);
    (*value)[rng.Below(value->size())] ^= 1;
    w.data.Apply({key, cache::MergeRule::kLongerWins, false, *value});
  };
  return {.name = "corrupt", .apply = apply};
}

// The table of a run: which faults exist, as `rng` draws.
Faults DrawFaults(OneShard& w, const SweepOptions& options, int64_t chunk_size, Rng& rng) {
  Faults faults(rng.Fork("faults"));
  if (rng.Chance(0.5)) {
    auto disk = storage::FakeDiskOptions::Swarm(rng);
    disk.capacity_bytes = INT64_MAX;
    w.disk.SetOptions(disk);
  }
  if (rng.Chance(0.6)) {
    faults.Add(BadMemoryCache(w.deployment, DrawCacheFaults), 0.1);
    faults.Add(EvictMemoryCache(w.deployment), 0.03);
  }
  if (options.corrupt_cache) faults.Add(CorruptChunk(w, chunk_size), 0.2);
  if (rng.Chance(0.3)) faults.Add(PowerLoss(w.deployment, {"cell"}), 0.03);
  return faults;
}

// The shard's last producer, after everything has healed, says a last word, and all is delivered.
std::string Finish(OneShard& w, Oracles& oracles, producer::AgentOptions options) {
  for (auto& old : w.producers) {
    if (!old->dead()) w.Kill(*old);
  }
  options.takeover = true;
  auto& last = w.StartProducer(options);
  if (!w.time.RunUntil([&] { return last.opened.has_value(); }, kLong)) return "the last one hangs";
  if (!last.opened->ok()) return "the last one: " + last.opened->ToString();
  for (int i = 0; i < 20; ++i) {
    if (Status s = w.Publish(last, 50); !s.ok()) return "the last one: " + s.ToString();
    w.time.RunFor(Duration::Millis(5));
  }
  if (!w.time.RunUntil([&] { return w.AllSettled(); }, kLong)) return "messages without outcome";
  // An acknowledged message is on the disk, below a seal or in the open file.
  const auto complete = [&] {
    for (auto& c : w.consumers) {
      if (!w.Incomplete(*c).empty()) return false;
    }
    return w.consumers[0]->got.size() == w.consumers[1]->got.size();
  };
  for (int i = 0; i < 150 && !complete(); ++i) w.time.RunFor(Duration::Millis(200));
  for (auto& c : w.consumers) {
    if (std::string v = w.Incomplete(*c); !v.empty()) return v;
  }
  if (w.consumers[0]->got != w.consumers[1]->got) return "the consumers differ";
  return oracles.CheckAll();
}

// One random life of a shard; "" if all is well.
std::string Sweep(uint64_t seed, SweepOptions options = {}) {
  std::optional<PlantedFault> fault;
  if (!options.fault.empty()) fault.emplace(options.fault);
  OneShard w(seed);
  Rng& rng = w.rng;
  auto producer_options = OneShard::ProducerOptions();
  producer_options.observe = Duration::Millis(600);
  producer_options.heartbeat = Duration::Millis(200);
  producer_options.roll_bytes = rng.Between(200, 6000);
  producer_options.flush_interval = Duration::Micros(rng.Between(0, 20000));
  if (rng.Chance(0.3)) producer_options.shadow.backlog_bytes = rng.Between(600, 3000);
  if (rng.Chance(0.3)) producer_options.roll_age = Duration::Millis(rng.Between(50, 500));
  producer_options.chunk_size = rng.Chance(0.5) ? 256 : 64;
  auto consumer_options = OneShard::ConsumerOptions();
  consumer_options.doorbell = rng.Chance(0.6);
  consumer_options.window_bytes = rng.Between(600, 5000);
  consumer_options.delay_max = Duration::Millis(rng.Between(20, 300));
  consumer_options.primary_poll = Duration::Millis(rng.Between(50, 300));
  consumer_options.doorbell_pause = Duration::Millis(rng.Chance(0.5) ? 0 : rng.Between(1, 10));
  const bool kills = rng.Chance(0.6);
  const bool pauses = rng.Chance(0.3);
  Faults faults = DrawFaults(w, options, producer_options.chunk_size, rng);
  Oracles oracles(w.deployment, {.source = "cell",
                                 .shard = w.shard,
                                 .chunk_size = producer_options.chunk_size,
                                 .foreign_bytes_in_caches = options.corrupt_cache});
  oracles.Watch(w);
  auto* p = &w.StartProducer(producer_options);
  for (int i = 0; i < 2; ++i) w.StartConsumer(consumer_options);
  for (int step = 0; step < 120; ++step) {
    const int burst = static_cast<int>(rng.Between(0, 8));
    for (int i = 0; i < burst; ++i) {
      (void)w.Publish(*p, rng.Chance(0.05) ? rng.Between(0, 4000) : rng.Between(0, 200));
    }
    w.time.RunFor(Duration::Micros(rng.Between(0, 30000)));
    faults.Turn();
    if (pauses && rng.Chance(0.05)) {
      auto* loop = p->process->loop.get();
      loop->Pause();
      w.time.RunFor(Duration::Millis(rng.Between(1, 2000)));
      loop->Resume();
    }
    if (kills && rng.Chance(0.05)) {
      if (rng.Chance(0.6)) w.Kill(*p);  // else both are alive for a while
      producer_options.takeover = rng.Chance(0.5) || !p->dead();
      p = &w.StartProducer(producer_options);
      w.time.RunFor(Duration::Millis(rng.Between(0, 1500)));
    }
    if (std::string v = oracles.Check(); !v.empty()) return v;
  }
  faults.HealAll();
  w.disk.SetOptions({});
  if (rng.Chance(0.3)) w.data.EvictAll();
  return Finish(w, oracles, producer_options);
}

TEST(DeliverySweep, AnyLifeOfAShardIsDeliveredWhole) {
  const char* from_env = std::getenv("TAILCAST_SEEDS");
  const uint64_t seeds = from_env != nullptr ? std::stoull(from_env) : 300;
  const char* first = std::getenv("TAILCAST_FIRST_SEED");
  for (uint64_t seed = first != nullptr ? std::stoull(first) : 1; seed <= seeds; ++seed) {
    if (first != nullptr)
      std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(seed));
    EXPECT_EQ(Sweep(seed), "") << "seed " << seed;
  }
}

TEST(DeliverySweep, ForeignBytesInTheCacheNeverReachTheUser) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    ASSERT_EQ(Sweep(seed, {.corrupt_cache = true}), "") << "seed " << seed;
  }
}

// A checker is trusted only after it has caught planted bugs.
std::string FirstViolation(SweepOptions options, uint64_t seeds = 300) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    if (std::string v = Sweep(seed, options); !v.empty()) return v;
  }
  return "";
}

TEST(PlantedBugs, IndexBeforeDataIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "producer.index_before_data"}), "");
}
TEST(PlantedBugs, AcknowledgementBeforeTheIndexIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "producer.ack_before_index"}), "");
}
TEST(PlantedBugs, ASealOneRecordEarlyIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "producer.seal_one_record_early"}), "");
}
TEST(PlantedBugs, ATakeoverWithoutFenceIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "producer.skip_fence"}), "");
}
TEST(PlantedBugs, ASkippedRecordAtRollOverIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "consumer.skip_record_at_roll_over"}), "");
}
TEST(PlantedBugs, ASkippedPayloadCheckIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "consumer.skip_payload_check", .corrupt_cache = true}), "");
}
TEST(PlantedBugs, MemoryWrittenUnderTheUsersViewsIsCaught) {
  EXPECT_NE(FirstViolation({.fault = "consumer.keep_views_unpinned"}), "");
}

}  // namespace
}  // namespace tailcast::world
