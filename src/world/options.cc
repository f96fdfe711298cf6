// From which ranges a seed draws its world.
#include <algorithm>
#include <iterator>

#include "tailcast/world/world.h"

namespace tailcast::world {
namespace {

struct Chance {
  const char* fault;
  double exists;
};
// The first seven are as they were when seeds were first kept; the order is that of the draws.
constexpr Chance kChances[] = {
    {"kill", 0.6},      {"stop", 0.4},     {"cut", 0.4},     {"fabric", 0.5},  {"disk", 0.4},
    {"slow", 0.3},      {"reroute", 0.3},  {"down", 0.3},    {"cell", 0.15},   {"schedulers", 0.15},
    {"clock", 0.25},    {"reset", 0.3},    {"inside", 0.25}, {"clog", 0.25},   {"power", 0.2},
    {"producer", 0.25}, {"consumer", 0.4}, {"ring", 0.15},   {"streams", 0.2}, {"trim", 0.25},
    {"retain", 0.2},
};

// What may make caches lose values, or hide them.
constexpr const char* kSpoilCaches[] = {"kill", "stop",  "fabric", "slow", "down",
                                        "cell", "clock", "inside", "ring", "schedulers"};

}  // namespace

bool Options::CachesAreSound() const {
  return cache_bytes >= 8 << 20 && std::none_of(std::begin(kSpoilCaches), std::end(kSpoilCaches),
                                                [this](const char* fault) { return Has(fault); });
}

const std::vector<std::string>& FaultNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Chance& chance : kChances) all.emplace_back(chance.fault);
    return all;
  }();
  return names;
}

Options Options::Swarm(uint64_t seed) {
  Rng rng = Rng(seed).Fork("swarm");
  Options o;
  o.seed = seed;
  o.caches = static_cast<int>(rng.Between(3, 5));
  o.readers = static_cast<int>(rng.Between(1, 3));
  o.writers = static_cast<int>(rng.Between(1, 3));
  o.consumers = static_cast<int>(rng.Between(1, 2));
  o.low_latency = rng.Chance(0.7);
  o.chunk_size = int64_t{512} << rng.Below(4);
  o.roll_bytes = rng.Chance(0.3) ? rng.Between(5000, 20000) : rng.Between(20000, 200000);
  o.message_bytes_max = rng.Chance(0.5) ? rng.Between(50, 500) : rng.Between(500, 10000);
  o.link_delay = Duration::Millis(rng.Between(1, 120));
  o.message_interval = Duration::Micros(rng.Between(500, 20000));
  o.messages = static_cast<int>(rng.Between(100, 800));
  for (const Chance& chance : kChances) {
    if (rng.Chance(chance.exists)) o.faults.insert(chance.fault);
  }
  Rng jumps = Rng(seed).Fork("start-position");
  if (jumps.Chance(0.2)) {
    o.jump_bytes = jumps.Between(8 << 10, 64 << 10);
    o.chunk_size = 4096;
    o.roll_bytes = jumps.Between(500'000, 1'500'000);
    o.message_bytes_max = jumps.Between(5000, 10000);
  }
  // In some, the caches keep what they have: what is published can be held against them.
  if (Rng(seed).Fork("sound-caches").Chance(0.15)) {
    for (const char* fault : kSpoilCaches) o.faults.erase(fault);
  }
  Rng more = Rng(seed).Fork("network");
  if (more.Chance(0.5)) {
    o.link_jitter = Duration::Micros(more.Between(0, 2 * o.link_delay.micros()));
  }
  if (more.Chance(0.5)) o.stream_window_bytes = int64_t{16 << 10} << more.Below(9);
  if (more.Chance(0.5)) o.broken_after = Duration::Millis(more.Between(1000, 15000));
  if (more.Chance(0.3)) o.shards = static_cast<int>(more.Between(2, 3));
  if (more.Chance(0.2)) o.cache_bytes = int64_t{1 << 20} * more.Between(1, 3);
  if (o.Has("ring")) o.spares = 1;
  Rng drift = Rng(seed).Fork("drift");
  if (o.Has("clock") && drift.Chance(0.5)) o.clock_drift_us_per_s = drift.Between(10, 5000);
  return o;
}

Options Options::Plain() const {
  Options o = *this;
  const Options even;
  o.spares = even.spares;
  o.shards = even.shards;
  o.cache_bytes = even.cache_bytes;
  o.link_jitter = even.link_jitter;
  o.stream_window_bytes = even.stream_window_bytes;
  o.broken_after = even.broken_after;
  o.clock_drift_us_per_s = even.clock_drift_us_per_s;
  const std::set<std::string> known = {"kill", "stop", "cut", "fabric", "disk", "slow", "reroute"};
  std::erase_if(o.faults, [&](const std::string& fault) { return !known.contains(fault); });
  return o;
}

}  // namespace tailcast::world
