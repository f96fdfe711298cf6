// Sweeps: everything grows, moves and is torn at once.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/quorum_client_testing.h"

namespace tailcast::cache {
namespace {

INSTANTIATE_TEST_SUITE_P(Fabric, QuorumClientTest, AllFabrics(), FabricName);

struct SweepResult {
  uint64_t wrong = 0, fell = 0, hits = 0, torn = 0, misses = 0, mismatches = 0;
};

struct SweepOptions {
  FabricKind kind = FabricKind::kImmediate;
  std::vector<const char*> faults;
  bool scribble = false;  // flip bytes of the servers' memory at random
};

SweepResult Sweep(uint64_t seed, SweepOptions sweep) {
  const Scope scope;
  std::deque<PlantedFault> faults;
  for (const char* name : sweep.faults) faults.emplace_back(name);
  ServerCoreOptions core;
  core.growth_floor_bytes = 512;
  World world(sweep.kind, 3, seed, {}, core);
  Rng rng(seed);
  SweepResult result;
  constexpr uint64_t kKeys = 24;
  std::map<uint64_t, size_t> written;
  std::map<uint64_t, uint64_t> epoch_of_erase;
  std::vector<uint64_t> lanes_seen(4), lanes_written(4);
  const Key lanes_key = KeyOf(1000);
  std::vector<std::unique_ptr<std::string>> keep;
  uint64_t outstanding = 0;
  const auto write = [&] {
    if (rng.Chance(0.3)) {
      for (uint64_t& lane : lanes_written) lane += rng.Below(3);
      world.client->Mutate({{lanes_key, MergeRule::kMaxLanes, false, Lanes(lanes_written)}},
                           Duration::Millis(300), scope.Bind([](Status) {}));
      return;
    }
    const uint64_t n = rng.Below(kKeys);
    if (rng.Chance(0.15)) {
      // Forgotten and written anew: the slots change hands.
      written[n] = 0;
      world.client->Mutate({{KeyOf(n), MergeRule::kLongerWins, true, ""}}, Duration::Millis(300),
                           scope.Bind([](Status) {}));
      return;
    }
    written[n] = std::min<size_t>(4096, written[n] + 1 + rng.Below(700));
    world.client->Mutate(
        {{KeyOf(n), MergeRule::kLongerWins, false, Final(n).substr(0, written[n])}},
        Duration::Millis(300), scope.Bind([](Status) {}));
  };
  // What happens in the middle of an immediate read: a server changes.
  world.net.torn = 0.3;
  std::vector<uint64_t> doorbells;
  uint64_t reading = 0;
  const auto touch_server = [&](const std::string& host) {
    const int server = host.back() - '0';
    auto* core_there = const_cast<ServerCore*>(world.processes[server].server->core());
    const Instant now{world.time.now(), WallTime()};
    const uint64_t n = rng.Chance(0.8) ? reading : rng.Below(kKeys);
    if (rng.Chance(0.2)) {
      core_there->Erase(now, KeyOf(n), doorbells);
    } else {
      core_there->Apply(now, KeyOf(n), MergeRule::kLongerWins,
                        Final(n).substr(0, 1 + rng.Below(4096)), doorbells);
    }
    if (rng.Chance(0.3)) {
      for (uint64_t& lane : lanes_written) lane += rng.Below(2);
      core_there->Apply(now, lanes_key, MergeRule::kMaxLanes, Lanes(lanes_written), doorbells);
    }
  };
  world.net.between = [&](const std::string& host) {
    for (uint64_t i = 1 + rng.Below(3); i > 0; --i) touch_server(host);
  };
  for (int step = 0; step < 1500; ++step) {
    if (rng.Chance(0.4)) write();
    if (sweep.scribble && rng.Chance(0.2)) {
      auto& host = world.net.hosts["cache-" + std::to_string(rng.Below(3))];
      auto& region = host.regions[rng.Below(2)];
      const uint64_t area = std::min<uint64_t>(region.size(), 40000);
      region[rng.Below(area)] ^= rng.Next();
    }
    for (auto& [name, host] : world.net.hosts) host.delay = Duration::Micros(rng.Below(300));
    const uint64_t n = rng.Below(kKeys);
    reading = n;
    keep.push_back(std::make_unique<std::string>(4096, '#'));
    std::string* buffer = keep.back().get();
    auto read = std::make_shared<ChunkRead>();
    *read = {KeyOf(n), 0, static_cast<uint32_t>(1 + rng.Below(std::max<size_t>(written[n], 1))),
             4096, buffer->data()};
    // Some go on from a prefix that they have.
    if (rng.Chance(0.4) && read->want > 10) {
      read->have = read->want / 2;
      std::memcpy(buffer->data(), Final(n).data(), read->have);
      read->crc = Crc32cExtend(0, buffer->data(), read->have);
    }
    ++outstanding;
    const auto check = [&result, &outstanding, read, buffer, n] {
      --outstanding;
      const std::string truth = Final(n);
      if (read->length > 4096 || buffer->compare(0, read->length, truth, 0, read->length) != 0 ||
          read->crc != Crc32cExtend(0, truth.data(), read->length)) {
        ++result.wrong;
      }
    };
    if (world.client->TryReadChunks(std::span(read.get(), 1))) {
      check();
    } else {
      world.client->ReadChunks(std::span(read.get(), 1),
                               rng.Chance(0.2) ? ReadMode::kConsistent : ReadMode::kRelaxed,
                               Duration::Millis(200), scope.Bind(check));
    }
    if (rng.Chance(0.3)) {
      const auto check_value = [&](const cache::Values& values) {
        if (!values[0].has_value()) return;
        const std::string& value = *values[0];
        for (size_t lane = 0; lane < 4; ++lane) {
          uint64_t now = 0;
          if (value.size() >= 8 * lane + 8) std::memcpy(&now, value.data() + 8 * lane, 8);
          if (now > lanes_written[lane]) ++result.wrong;
          if (now < lanes_seen[lane]) ++result.fell;
          lanes_seen[lane] = std::max(lanes_seen[lane], now);
        }
      };
      const Client::ValueRead value{lanes_key, MergeRule::kMaxLanes};
      if (cache::Values inside; world.tries && world.client->TryReadValues({&value, 1}, inside)) {
        check_value(inside);
      } else {
        ++outstanding;
        world.client->ReadValues({value}, Duration::Millis(200),
                                 scope.Bind([&, check_value](auto values) {
                                   --outstanding;
                                   if (values.ok()) check_value(*values);
                                 }));
      }
    }
    for (int turn = 0; turn < 4; ++turn) {
      world.time.RunFor(Duration::Micros(rng.Below(100)));
      if (sweep.kind == FabricKind::kDelayed || sweep.kind == FabricKind::kScanning)
        touch_server("cache-" + std::to_string(rng.Below(3)));
    }
  }
  world.net.between = nullptr;
  EXPECT_TRUE(world.time.RunUntil([&] { return outstanding == 0; }, Duration::Seconds(5)));
  result.hits = world.client->counters().hits;
  result.torn = world.client->counters().torn_retries;
  result.misses = world.client->counters().misses;
  result.mismatches = world.client->counters().chunk_mismatches;
  return result;
}

TEST_P(QuorumClientTest, TornReadsNeverYieldAWrongByteOrAFallingValue) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const SweepResult result = Sweep(seed, {.kind = GetParam()});
    EXPECT_EQ(result.wrong, 0u) << "seed " << seed;
    EXPECT_EQ(result.mismatches, 0u) << "nobody contradicts; seed " << seed;
    EXPECT_EQ(result.fell, 0u) << "seed " << seed;
    EXPECT_GT(result.hits, 500u) << "seed " << seed;
    EXPECT_GT(result.torn, 20u) << "the sweep tears nothing; seed " << seed;
  }
}

TEST_P(QuorumClientTest, GarbageInServerMemoryNeverYieldsAWrongByte) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const SweepResult result = Sweep(seed, {.kind = GetParam(), .scribble = true});
    EXPECT_EQ(result.wrong, 0u) << "seed " << seed;
    EXPECT_EQ(result.mismatches, 0u) << "nobody contradicts; seed " << seed;
  }
}

TEST_P(QuorumClientTest, SweepCatchesPlantedSkippedChecksums) {
  uint64_t wrong = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    // Inside a call, and between a scan's look-up and its copy, no slot changes hands, so it takes
    // a second bug to see the first.
    SweepOptions sweep{.kind = GetParam(), .faults = {"cache.skip_payload_check"}};
    if (GetParam() != FabricKind::kDelayed) sweep.faults.push_back("cache.reuse_at_once");
    wrong += Sweep(seed, sweep).wrong;
  }
  EXPECT_GT(wrong, 0u);
}

TEST_P(QuorumClientTest, SweepCatchesPlantedTrustInOldLocations) {
  uint64_t wrong = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    wrong +=
        Sweep(seed, {.kind = GetParam(), .faults = {"cache.trust_location", "cache.reuse_at_once"}})
            .wrong;
  }
  EXPECT_GT(wrong, 0u);
}

// A reader that got the address of a value, and then is slow: within the rest the old value is
// whole; reused at once, it is torn.
TEST(QuorumClientRestTest, SlowReaderOfASupersededValueIsNotTornBecauseSlotsRest) {
  const auto torn_with = [](bool reuse_at_once) {
    const Scope scope;
    std::optional<PlantedFault> fault;
    if (reuse_at_once) fault.emplace("cache.reuse_at_once");
    World world(FabricKind::kDelayed);
    const Key key = KeyOf(1);
    for (auto& [name, host] : world.net.hosts) host.delay = Duration::Millis(20);
    world.net.torn = 1;  // half of the words at the beginning, half at the end of the 20 ms
    world.net.torn_from_region = layout::kDataRegion;
    uint64_t step = 0;
    for (int round = 0; round < 20; ++round) {
      EXPECT_TRUE(world
                      .Mutate({{key, MergeRule::kMaxLanes, false,
                                Lanes(std::vector<uint64_t>(60, ++step))}})
                      .ok());
      bool done = false;
      world.client->ReadValues(
          {{key, MergeRule::kMaxLanes}}, Duration::Millis(500),
          scope.Bind([&](auto values) { done = values.ok() && (*values)[0].has_value(); }));
      // Seven changes while the reader is between bucket and entry.
      for (int i = 0; i < 7; ++i) {
        world.time.RunFor(Duration::Millis(5));
        world.client->Mutate(
            {{key, MergeRule::kMaxLanes, false, Lanes(std::vector<uint64_t>(60, ++step))}},
            Duration::Millis(500), scope.Bind([](Status) {}));
      }
      EXPECT_TRUE(world.time.RunUntil([&] { return done; }, Duration::Seconds(2)));
    }
    return world.client->counters().torn_retries;
  };
  EXPECT_EQ(torn_with(false), 0u);
  EXPECT_GT(torn_with(true), 0u);
}

}  // namespace
}  // namespace tailcast::cache
