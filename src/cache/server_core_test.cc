#include "tailcast/cache/server_core.h"

#include <map>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/rng.h"
#include "tailcast/cache/merge.h"
#include "tailcast/cache/test_memory.h"

namespace tailcast::cache {
namespace {

std::string Bytes(uint64_t seed, size_t length) {
  std::string bytes(length, '\0');
  Rng rng(seed);
  for (char& c : bytes) c = static_cast<char>(rng.Next());
  return bytes;
}
std::string Lanes(std::vector<uint64_t> lanes) {
  return std::string(reinterpret_cast<const char*>(lanes.data()), lanes.size() * 8);
}
Key KeyOf(uint64_t n) {
  Rng rng(n + 77);
  return {rng.Next(), rng.Next()};
}

class ServerCoreTest : public testing::Test {
 protected:
  void Make(ServerCoreOptions options, uint32_t buckets = 512, uint32_t slabs = 4) {
    memory_ = std::make_unique<TestMemory>(buckets, slabs);
    core_ = std::make_unique<ServerCore>(std::move(options), memory_->index(), memory_->data(),
                                         layout::Generation{42});
  }
  MutationResult Apply(const Key& key, MergeRule rule, std::string_view value) {
    return core_->Apply(now_, key, rule, value, doorbells_);
  }
  void Pass(Duration span) {
    now_.monotonic = now_.monotonic + span;
    now_.wall = now_.wall + span;
    core_->OnTick(now_, doorbells_);
  }
  Peek PeekKey(const Key& key) { return PeekAt(memory_->index(), memory_->data(), key); }

  std::unique_ptr<TestMemory> memory_;
  std::unique_ptr<ServerCore> core_;
  Instant now_{MonotonicTime::FromMicros(5'000'000), WallTime::FromMicros(1'700'000'000'000'000)};
  std::vector<uint64_t> doorbells_;
};

TEST_F(ServerCoreTest, GrowsAChunkInPlace) {
  Make({});
  const Key key = KeyOf(1);
  const std::string value = Bytes(1, 4096);
  ASSERT_EQ(Apply(key, MergeRule::kLongerWins, value.substr(0, 13)), MutationResult::kApplied);
  for (size_t length : {14u, 29u, 1000u, 4095u, 4096u}) {
    ASSERT_EQ(Apply(key, MergeRule::kLongerWins, value.substr(0, length)),
              MutationResult::kApplied);
    EXPECT_EQ(PeekKey(key).value, value.substr(0, length));
  }
  EXPECT_EQ(Apply(key, MergeRule::kLongerWins, value.substr(0, 100)), MutationResult::kNoChange);
  EXPECT_EQ(PeekKey(key).value, value);
  EXPECT_EQ(core_->stats().extended_in_place, 5u);
  EXPECT_EQ(core_->stats().resting, 0u);
}

TEST_F(ServerCoreTest, OutgrownChunkMovesToALargerClass) {
  Make({.growth_floor_bytes = 512}, 512, 8);
  const Key key = KeyOf(1);
  const std::string value = Bytes(1, 65536);
  for (size_t length = 300; length < value.size(); length = length * 2 + 1) {
    ASSERT_EQ(Apply(key, MergeRule::kLongerWins, value.substr(0, length)),
              MutationResult::kApplied);
    EXPECT_EQ(PeekKey(key).value, value.substr(0, length));
  }
  EXPECT_GT(core_->stats().moved, 5u);
  EXPECT_EQ(Apply(key, MergeRule::kLongerWins, value + "x"), MutationResult::kRefused);
}

TEST_F(ServerCoreTest, ContradictionDropsBothValuesAndOldAddressesMiss) {
  Make({});
  const Key key = KeyOf(1);
  ASSERT_EQ(Apply(key, MergeRule::kLongerWins, "hello world"), MutationResult::kApplied);
  EXPECT_EQ(Apply(key, MergeRule::kLongerWins, "help"), MutationResult::kMismatch);
  EXPECT_EQ(PeekKey(key).outcome, Peek::kAbsent);
  layout::EntryHeader header;
  EXPECT_FALSE(
      layout::ParseEntryHeader(memory_->data().data(), key, layout::Generation{42}, header));
  EXPECT_EQ(core_->stats().mismatches, 1u);
  // Another rule for the same key contradicts as well.
  ASSERT_EQ(Apply(key, MergeRule::kLongerWins, "hello world"), MutationResult::kApplied);
  EXPECT_EQ(Apply(key, MergeRule::kMaxBytes, "hello world"), MutationResult::kMismatch);
}

TEST_F(ServerCoreTest, LanesMergeByMaximumAndNotify) {
  Make({});
  const Key key = KeyOf(1);
  ASSERT_EQ(Apply(key, MergeRule::kMaxLanes, Lanes({3, 1})), MutationResult::kApplied);
  ASSERT_EQ(doorbells_.size(), 1u);
  const uint32_t before = PeekKey(key).bucket.doorbell;
  ASSERT_EQ(Apply(key, MergeRule::kMaxLanes, Lanes({2, 0, 5})), MutationResult::kApplied);
  EXPECT_EQ(PeekKey(key).value, Lanes({3, 1, 5}));
  EXPECT_NE(PeekKey(key).bucket.doorbell, before);
  EXPECT_EQ(doorbells_.size(), 2u);
  EXPECT_EQ(Apply(key, MergeRule::kMaxLanes, Lanes({1, 1, 1})), MutationResult::kNoChange);
  EXPECT_EQ(Apply(key, MergeRule::kMaxLanes, "odd"), MutationResult::kRefused);
  EXPECT_EQ(doorbells_.size(), 2u) << "what changes nothing notifies nobody";
  EXPECT_EQ(core_->Erase(now_, key, doorbells_), MutationResult::kApplied);
  EXPECT_EQ(doorbells_.size(), 3u);
  EXPECT_EQ(core_->Erase(now_, key, doorbells_), MutationResult::kNoChange);
}

TEST_F(ServerCoreTest, SupersededSlotRestsAndStaysReadable) {
  Make({.rest = Duration::Seconds(1)});
  const Key key = KeyOf(1);
  ASSERT_EQ(Apply(key, MergeRule::kMaxLanes, Lanes({1})), MutationResult::kApplied);
  const std::string old(memory_->data().data(), 512);
  std::set<uint64_t> versions;
  for (uint64_t i = 2; i < 200; ++i) {
    ASSERT_EQ(Apply(key, MergeRule::kMaxLanes, Lanes({i})), MutationResult::kApplied);
    Pass(Duration::Millis(5));
    EXPECT_EQ(std::string(memory_->data().data(), 512), old) << "reused while it rested, at " << i;
  }
  Pass(Duration::Millis(10));
  for (uint64_t i = 200; i < 4000; ++i) {
    ASSERT_EQ(Apply(key, MergeRule::kMaxLanes, Lanes({i})), MutationResult::kApplied);
    Pass(Duration::Millis(5));
  }
  EXPECT_NE(std::string(memory_->data().data(), 512), old) << "never reused";
  EXPECT_LE(core_->stats().resting, 201u);
}

TEST_F(ServerCoreTest, ValuesExpireAndEqualRewritesDoNotProlong) {
  Make({.ttl = Duration::Seconds(60)});
  const Key old_key = KeyOf(1), young_key = KeyOf(2), repaired = KeyOf(3);
  Apply(old_key, MergeRule::kLongerWins, "abc");
  Pass(Duration::Seconds(30));
  Apply(old_key, MergeRule::kLongerWins, "abc");
  Apply(young_key, MergeRule::kLongerWins, "abc");
  core_->ApplyCopy(now_, repaired, MergeRule::kLongerWins, "abc", Duration::Seconds(5), doorbells_);
  EXPECT_EQ(core_->Get(now_, repaired)->remaining, Duration::Seconds(5));
  Pass(Duration::Seconds(6));
  EXPECT_EQ(PeekKey(repaired).outcome, Peek::kAbsent);
  EXPECT_EQ(PeekKey(old_key).outcome, Peek::kFound);
  Pass(Duration::Seconds(25));
  EXPECT_EQ(PeekKey(old_key).outcome, Peek::kAbsent);
  EXPECT_EQ(PeekKey(young_key).outcome, Peek::kFound);
  // A longer value does prolong.
  Apply(young_key, MergeRule::kLongerWins, "abcd");
  Pass(Duration::Seconds(50));
  EXPECT_EQ(PeekKey(young_key).value, "abcd");
  Pass(Duration::Seconds(11));
  EXPECT_EQ(core_->stats().live, 0u);
  EXPECT_EQ(core_->stats().expired, 3u);
}

TEST_F(ServerCoreTest, CopiesExpireInTheOrderOfTheirTimeAndHideNothing) {
  Make({.ttl = Duration::Seconds(60)});
  const auto copy = [&](uint64_t n, Duration remaining) {
    core_->ApplyCopy(now_, KeyOf(n), MergeRule::kLongerWins, "abc", remaining, doorbells_);
  };
  copy(1, Duration::Seconds(50));
  copy(2, Duration::Seconds(1));
  // A copy that makes a value longer must not put it behind those that were written later.
  Apply(KeyOf(3), MergeRule::kLongerWins, "ab");
  Pass(Duration::Millis(500));
  Apply(KeyOf(4), MergeRule::kLongerWins, "ab");
  copy(3, Duration::Seconds(1));
  Pass(Duration::Seconds(2));
  EXPECT_EQ(PeekKey(KeyOf(2)).outcome, Peek::kAbsent);
  EXPECT_EQ(PeekKey(KeyOf(1)).outcome, Peek::kFound);
  Pass(Duration::Seconds(48));
  EXPECT_EQ(PeekKey(KeyOf(1)).outcome, Peek::kAbsent);
  EXPECT_EQ(PeekKey(KeyOf(3)).value, "abc");
  Pass(Duration::Millis(9700));
  EXPECT_EQ(PeekKey(KeyOf(3)).outcome, Peek::kAbsent) << "60 s after it was written";
  EXPECT_EQ(PeekKey(KeyOf(4)).outcome, Peek::kFound);
}

TEST_F(ServerCoreTest, CopyOfTheSameValueCarriesTheTimeThatIsLeftToIt) {
  Make({.ttl = Duration::Seconds(60)});
  for (const MergeRule rule : {MergeRule::kLongerWins, MergeRule::kMaxBytes}) {
    const Key key = KeyOf(static_cast<uint64_t>(rule));
    core_->ApplyCopy(now_, key, rule, "abc", Duration::Seconds(5), doorbells_);
    EXPECT_EQ(core_->ApplyCopy(now_, key, rule, "abc", Duration::Seconds(30), doorbells_),
              MutationResult::kNoChange);
    EXPECT_EQ(core_->ApplyCopy(now_, key, rule, "ab", Duration::Seconds(20), doorbells_),
              MutationResult::kNoChange);
    EXPECT_EQ(core_->Get(now_, key)->remaining, Duration::Seconds(30));
    EXPECT_EQ(PeekKey(key).value, "abc");
    Pass(Duration::Seconds(29));
    EXPECT_EQ(PeekKey(key).outcome, Peek::kFound);
    Pass(Duration::Seconds(2));
    EXPECT_EQ(PeekKey(key).outcome, Peek::kAbsent);
  }
}

TEST_F(ServerCoreTest, CollectsTheLeastRecentlyModifiedFrom80Percent) {
  Make({.rest = Duration::Millis(100)}, 4096, 4);
  const uint64_t slots = 4 * layout::SlotsPerSlab(*layout::ClassFor(4096));
  const uint64_t limit = slots * 8 / 10;
  for (uint64_t i = 0; i < 5 * slots; ++i) {
    ASSERT_EQ(Apply(KeyOf(i), MergeRule::kLongerWins, Bytes(i, 4096)), MutationResult::kApplied)
        << i;
    Pass(Duration::Millis(1));
    ASSERT_LE(core_->stats().live, limit + 1);
    if (i > limit + 2) {
      EXPECT_EQ(PeekKey(KeyOf(i - limit - 2)).outcome, Peek::kAbsent);
      EXPECT_EQ(PeekKey(KeyOf(i - limit + 110)).outcome, Peek::kFound);
    }
  }
  EXPECT_GT(core_->stats().collected, 3 * slots);
}

TEST_F(ServerCoreTest, RefusesInsteadOfGrowing) {
  Make({.rest = Duration::Seconds(100)}, 4096, 1);
  uint64_t refused = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    refused += Apply(KeyOf(i), MergeRule::kLongerWins, Bytes(i, 4096)) == MutationResult::kRefused;
  }
  EXPECT_GT(refused, 0u) << "resting slots are no room";
  EXPECT_EQ(core_->stats().refused_no_slot, refused);
  Pass(Duration::Seconds(101));
  EXPECT_EQ(Apply(KeyOf(1), MergeRule::kLongerWins, "x"), MutationResult::kApplied);
}

// Slots rest half a second, so a small cache under a high rate keeps less rather than refuse.
TEST_F(ServerCoreTest, HighWriteRateShrinksTheLiveShareAndRefusesNothing) {
  for (const int writes_per_ms : {1, 2, 3}) {
    Make({.rest = Duration::Millis(100)}, 4096, 4);
    const double slots = 4 * layout::SlotsPerSlab(*layout::ClassFor(4096));
    const std::string value = Bytes(1, 4096);
    uint64_t n = 0;
    for (int ms = 0; ms < 3000; ++ms) {
      // Bursts, as flushes make them.
      for (int i = ms % 5 == 0 ? 5 * writes_per_ms : 0; i > 0; --i) {
        ASSERT_EQ(Apply(KeyOf(n++), MergeRule::kLongerWins, value), MutationResult::kApplied)
            << n << " at " << writes_per_ms;
      }
      Pass(Duration::Millis(1));
    }
    const double expected = slots - 1.25 * 100 * writes_per_ms;
    EXPECT_GT(static_cast<double>(core_->stats().live), 0.6 * std::min(expected, 0.8 * slots));
  }
}

// A replica that is filled while it is full and written: each copy comes in the end, and no write
// finds its room taken.
TEST_F(ServerCoreTest, CopiesGiveWayToWrites) {
  for (const int copies_per_ms : {1, 4, 16}) {
    Make({.rest = Duration::Millis(100)}, 4096, 4);
    const double slots = 4 * layout::SlotsPerSlab(*layout::ClassFor(4096));
    const std::string value = Bytes(1, 4096);
    uint64_t written = 0, copied = 0;
    for (int ms = 0; ms < 4000; ++ms) {
      for (int i = ms % 5 == 0 ? 5 : 0; i > 0; --i) {
        ASSERT_EQ(Apply(KeyOf(written++), MergeRule::kLongerWins, value), MutationResult::kApplied)
            << written << " beside " << copied;
      }
      for (int i = ms < 2000 ? 0 : copies_per_ms; i > 0; --i) {
        const MutationResult result =
            core_->ApplyCopy(now_, KeyOf(1'000'000 + copied), MergeRule::kLongerWins, value,
                             Duration::Millis(59'990), doorbells_);
        if (result != MutationResult::kApplied) break;
        ++copied;
      }
      Pass(Duration::Millis(1));
    }
    EXPECT_GT(copied, std::min(2000.0 * copies_per_ms, 10 * slots) / 4) << copies_per_ms;
    EXPECT_GT(static_cast<double>(core_->stats().live), 0.4 * slots);
    EXPECT_EQ(core_->stats().refused, 0u);
  }
}

// What others have of values may be gone there tomorrow: each copy finds its slot as long as there
// is one, whatever the writes take, and none of those that are here goes for it before memory is
// full.
TEST_F(ServerCoreTest, CopiesOfValuesAreTakenBesideManyWritesAndEvictNothing) {
  Make({.rest = Duration::Millis(100)}, 1024, 4);
  const auto value = [](uint64_t n) { return Lanes({n, n}); };
  const uint64_t slots = 4 * layout::SlotsPerSlab(*layout::ClassFor(Lanes({1, 1}).size()));
  for (uint64_t n = 0; n < slots / 4; ++n) {
    ASSERT_EQ(Apply(KeyOf(n), MergeRule::kMaxLanes, value(1)), MutationResult::kApplied);
  }
  Pass(Duration::Seconds(1));
  uint64_t copied = 0;
  for (uint64_t ms = 0; ms < 400; ++ms) {
    // Updates take a slot each, which rests: a third of all in one rest.
    for (uint64_t i = 0; i < slots / 300; ++i) {
      ASSERT_EQ(Apply(KeyOf((ms + i) % (slots / 4)), MergeRule::kMaxLanes, value(2 + ms * 100 + i)),
                MutationResult::kApplied);
    }
    if (copied < slots / 10) {
      ASSERT_EQ(core_->ApplyCopy(now_, KeyOf(1'000'000 + copied), MergeRule::kMaxLanes, value(1),
                                 Duration::Seconds(30), doorbells_),
                MutationResult::kApplied);
      ++copied;
    }
    Pass(Duration::Millis(1));
  }
  EXPECT_GT(copied, 100u);
  EXPECT_EQ(core_->stats().collected, 0u);
}

TEST_F(ServerCoreTest, ChunksOlderThanAllInAFullServerAreLeftWhereTheyAre) {
  Make({.rest = Duration::Millis(100)}, 4096, 4);
  for (uint64_t n = 0; n < 3000; ++n) {
    ASSERT_EQ(Apply(KeyOf(n), MergeRule::kLongerWins, Bytes(n, 4096)), MutationResult::kApplied);
    Pass(Duration::Millis(1));
  }
  const uint64_t live = core_->stats().live, collected = core_->stats().collected;
  EXPECT_EQ(core_->ApplyCopy(now_, KeyOf(9000), MergeRule::kLongerWins, Bytes(1, 4096),
                             Duration::Seconds(57), doorbells_),
            MutationResult::kNoChange);
  EXPECT_EQ(core_->stats().copies_too_old, 1u);
  EXPECT_EQ(core_->stats().live, live);
  EXPECT_EQ(core_->stats().collected, collected);
  // Of a value nobody else may be left who has it.
  const auto copy = [&] {
    return core_->ApplyCopy(now_, KeyOf(9001), MergeRule::kMaxLanes, Lanes({1}),
                            Duration::Seconds(57), doorbells_);
  };
  MutationResult result = copy();
  for (int ms = 0; ms < 500 && result == MutationResult::kRefused; ++ms) {
    Pass(Duration::Millis(1));
    result = copy();
  }
  EXPECT_EQ(result, MutationResult::kApplied);
}

TEST_F(ServerCoreTest, EmptySlabsServeOtherClasses) {
  Make({.ttl = Duration::Seconds(1), .rest = Duration::Millis(100)}, 4096, 2);
  for (uint64_t i = 0; i < 300; ++i) Apply(KeyOf(i), MergeRule::kLongerWins, Bytes(i, 4096));
  EXPECT_EQ(core_->stats().slabs_used, 2u);
  EXPECT_EQ(Apply(KeyOf(1000), MergeRule::kLongerWins, Bytes(1, 60000)), MutationResult::kRefused);
  Pass(Duration::Seconds(2));
  Pass(Duration::Seconds(2));
  EXPECT_EQ(core_->stats().slabs_used, 0u);
  EXPECT_EQ(Apply(KeyOf(1000), MergeRule::kLongerWins, Bytes(1, 60000)), MutationResult::kApplied);
}

TEST_F(ServerCoreTest, FirstValueOfAnotherSizeFindsRoomInAFullServer) {
  Make({.rest = Duration::Millis(100)}, 16384, 32);
  for (uint64_t i = 0; i < 32 * 300; ++i) {
    ASSERT_EQ(Apply(KeyOf(i), MergeRule::kLongerWins, Bytes(i, 4096)), MutationResult::kApplied);
    if (i % 10 == 0) Pass(Duration::Millis(1));
  }
  const std::string large = Bytes(1, 8192);
  ASSERT_EQ(Apply(KeyOf(1u << 20), MergeRule::kLongerWins, large), MutationResult::kApplied);
  EXPECT_EQ(PeekKey(KeyOf(1u << 20)).value, large);
}

TEST_F(ServerCoreTest, SlabsFollowTheSizesThatAreWritten) {
  for (const uint32_t slabs : {4u, 32u}) {
    Make({.rest = Duration::Millis(100)}, 16384, slabs);
    for (uint64_t i = 0; i < slabs * 300; ++i) {
      Apply(KeyOf(i), MergeRule::kLongerWins, Bytes(i, 4096));
      if (i % 20 == 0) Pass(Duration::Millis(1));
    }
    uint64_t refused_late = 0;
    for (uint64_t i = 0; i < 20000; ++i) {
      const bool refused = Apply(KeyOf((1u << 20) + i), MergeRule::kLongerWins, Bytes(i, 8192)) ==
                           MutationResult::kRefused;
      if (i > 1000) refused_late += refused ? 1 : 0;
      if (i % 2 == 0) Pass(Duration::Millis(1));
    }
    EXPECT_EQ(refused_late, 0u) << slabs;
    // Most of the memory is theirs.
    const uint64_t per_slab = layout::SlotsPerSlab(*layout::ClassFor(8192));
    uint64_t found = 0;
    for (uint64_t i = 0; i < 20000; ++i) {
      found += PeekKey(KeyOf((1u << 20) + i)).outcome == Peek::kFound ? 1 : 0;
    }
    EXPECT_GT(found, slabs * per_slab / 2) << slabs;
  }
}

TEST_F(ServerCoreTest, FullBucketsOverflowAndComeBack) {
  Make({.overflow_entries_max = 10}, 1, 4);
  std::vector<Key> keys;
  for (uint64_t i = 0; i < 18; ++i) keys.push_back(KeyOf(i));
  for (uint64_t i = 0; i < 17; ++i) {
    ASSERT_EQ(Apply(keys[i], MergeRule::kMaxLanes, Lanes({i + 1})), MutationResult::kApplied);
  }
  EXPECT_EQ(Apply(keys[17], MergeRule::kMaxLanes, Lanes({1})), MutationResult::kRefused);
  EXPECT_EQ(core_->stats().overflowed, 10u);
  for (uint64_t i = 0; i < 17; ++i) {
    EXPECT_EQ(PeekKey(keys[i]).outcome, i < 7 ? Peek::kFound : Peek::kOverflowed);
    EXPECT_EQ(core_->Get(now_, keys[i])->bytes, Lanes({i + 1}));
  }
  ASSERT_EQ(Apply(keys[12], MergeRule::kMaxLanes, Lanes({100})), MutationResult::kApplied);
  for (uint64_t i = 0; i < 10; ++i) core_->Erase(now_, keys[i], doorbells_);
  for (uint64_t i = 10; i < 17; ++i) {
    EXPECT_EQ(PeekKey(keys[i]).value, Lanes({i == 12 ? 100 : i + 1}));
  }
  EXPECT_EQ(PeekKey(keys[0]).outcome, Peek::kAbsent) << "the overflow flag is gone";
  EXPECT_EQ(core_->stats().overflowed, 0u);
}

TEST_F(ServerCoreTest, ConfigurationReachesEveryBucket) {
  Make({}, 64);
  core_->SetConfiguration(ConfigurationId{7});
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(PeekKey(KeyOf(i)).bucket.configuration, 7u);
}

TEST_F(ServerCoreTest, ConfigurationReachesALargeIndexInSeveralTurns) {
  Make({}, 3 * ServerCore::kSealedPerTurn);
  core_->SetConfiguration(ConfigurationId{7});
  const auto behind = [&] {
    uint64_t count = 0;
    for (uint64_t i = 0; i < 100; ++i) count += PeekKey(KeyOf(i)).bucket.configuration != 7u;
    return count;
  };
  EXPECT_GT(behind(), 0u) << "one turn does not write everything";
  Pass(Duration::Millis(100));
  core_->SetConfiguration(ConfigurationId{7});  // said again: begins anew
  for (int i = 0; i < 3; ++i) Pass(Duration::Millis(100));
  EXPECT_EQ(behind(), 0u);
}

TEST_F(ServerCoreTest, ScanVisitsEverythingInPages) {
  Make({});
  for (uint64_t i = 0; i < 500; ++i) Apply(KeyOf(i), MergeRule::kMaxLanes, Lanes({i + 1}));
  std::map<Key, std::string> seen;
  uint64_t cursor = 0;
  int pages = 0;
  do {
    int left = 7;
    cursor = core_->Scan(now_, cursor, [&](const ServerCore::Value& value) {
      if (left == 0) return false;
      --left;
      EXPECT_TRUE(seen.emplace(value.key, value.bytes).second);
      return true;
    });
    ++pages;
  } while (cursor != 0);
  EXPECT_EQ(seen.size(), 500u);
  EXPECT_GE(pages, 72);
}

// A random life against a dumb map, every value looked at through the memory after each step; and a
// reader (or a crash) between any two steps of a change finds the old or the new value, whole.
struct LifeResult {
  uint64_t torn_at_step = 0, wrong = 0, steps = 0;
};
LifeResult Live(uint64_t seed, bool header_before_bytes) {
  LifeResult result;
  TestMemory memory(64, 6);
  std::function<void()> hook;
  ServerCoreOptions options;
  options.growth_floor_bytes = 512;
  options.rest = Duration::Millis(50);
  options.ttl = Duration::Seconds(3600);
  options.step_hook = [&] {
    if (hook) hook();
  };
  std::optional<PlantedFault> fault;
  if (header_before_bytes) fault.emplace("cache.header_before_bytes");
  ServerCore core(options, memory.index(), memory.data(), layout::Generation{9});
  Rng rng(seed);
  std::map<Key, std::pair<MergeRule, std::string>> model;
  std::vector<uint64_t> doorbells;
  Instant now{MonotonicTime::FromMicros(1), WallTime::FromMicros(1)};
  for (int step = 0; step < 3000; ++step) {
    const uint64_t n = rng.Below(150);
    const Key key = KeyOf(n);
    const auto rule = static_cast<MergeRule>(n % 3);
    const bool had = model.contains(key);
    const std::string old = had ? model[key].second : "";
    std::string value;
    if (rule == MergeRule::kLongerWins) {
      value = Bytes(n, 5000).substr(0, 1 + rng.Below(rng.Chance(0.1) ? 5000 : 600));
      if (rng.Chance(0.01)) value.back() = static_cast<char>(value.back() ^ 1);
    } else if (rule == MergeRule::kMaxLanes) {
      std::vector<uint64_t> lanes(1 + rng.Below(20));
      for (uint64_t& lane : lanes) lane = rng.Below(1000);
      value = Lanes(lanes);
    } else {
      value = Bytes(rng.Next(), 24);
    }
    now.monotonic = now.monotonic + Duration::Millis(1);
    const bool erase = rng.Chance(0.05);
    std::string merged = old;
    MutationResult expected = MutationResult::kNoChange;
    if (erase) {
      expected = had ? MutationResult::kApplied : MutationResult::kNoChange;
      merged.clear();
    } else if (had) {
      expected = MergeInto(rule, merged, value);
      if (expected == MutationResult::kMismatch) merged.clear();
    } else {
      merged = value;
      expected = MutationResult::kApplied;
    }
    hook = [&] {
      ++result.steps;
      const Peek peek = PeekAt(memory.index(), memory.data(), key);
      if (peek.outcome == Peek::kTorn) {
        result.torn_at_step += merged.empty() ? 0 : 1;  // dropping poisons the entry first
      } else if (peek.outcome == Peek::kFound && peek.value != old && peek.value != merged) {
        ++result.wrong;
      }
    };
    const MutationResult got =
        erase ? core.Erase(now, key, doorbells) : core.Apply(now, key, rule, value, doorbells);
    hook = nullptr;
    result.wrong += got == expected ? 0 : 1;
    if (merged.empty()) {
      model.erase(key);
    } else {
      model[key] = {rule, merged};
    }
    core.OnTick(now, doorbells);
    const Peek peek = PeekAt(memory.index(), memory.data(), key);
    if (peek.outcome == Peek::kOverflowed) {
      const auto value_there = core.Get(now, key);
      result.wrong += (value_there ? value_there->bytes : "") == merged ? 0 : 1;
    } else {
      result.wrong += peek.outcome == (merged.empty() ? Peek::kAbsent : Peek::kFound) ? 0 : 1;
      result.wrong += peek.value == merged ? 0 : 1;
    }
  }
  for (const auto& [key, expected] : model) {
    const auto value = core.Get(now, key);
    result.wrong += value && value->bytes == expected.second ? 0 : 1;
  }
  result.wrong += core.stats().live == model.size() ? 0 : 1;
  return result;
}

TEST(ServerCoreModelTest, AgreesWithADumbMapAndIsWholeAtEveryStep) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const LifeResult result = Live(seed, false);
    EXPECT_EQ(result.wrong, 0u) << "seed " << seed;
    EXPECT_EQ(result.torn_at_step, 0u) << "seed " << seed;
    EXPECT_GT(result.steps, 3000u);
  }
}

TEST(ServerCoreModelTest, CatchesThePlantedHeaderBeforeBytes) {
  EXPECT_GT(Live(1, true).torn_at_step, 0u);
}

TEST(ServerCorePlanTest, MemoryPlanLeavesRoomInBuckets) {
  const MemoryPlan plan = PlanMemory(256 << 20, 4096);
  EXPECT_EQ(plan.data_bytes % layout::kSlabBytes, 0u);
  EXPECT_GT(plan.data_bytes, 245u << 20);
  const uint64_t values = plan.data_bytes / layout::SlotBytes(*layout::ClassFor(4096));
  const uint64_t buckets = (plan.index_bytes - layout::kHeaderPageBytes) / layout::kBucketBytes;
  EXPECT_LE(static_cast<double>(values) / static_cast<double>(buckets), 1.45);
}

// What `tailcast status` holds the rate of a cell's streams against.
TEST_F(ServerCoreTest, SoMuchIsThereBeforeTheFirstValueIsCollected) {
  constexpr uint32_t kSlabs = 12;
  const ServerCoreOptions options;
  Make(options, 8192, kSlabs);
  const std::string chunk(4096, 'c');
  uint64_t chunks = 0;
  for (; core_->stats().collected == 0 && chunks < 4096; ++chunks) {
    ASSERT_EQ(Apply(KeyOf(chunks), MergeRule::kLongerWins, chunk), MutationResult::kApplied);
    Pass(Duration::Millis(20));  // a minute of it does not fit
  }
  const auto room = static_cast<double>(
      RoomBytes(uint64_t{kSlabs} * layout::kSlabBytes, 4096, options.collect_from));
  EXPECT_NEAR(static_cast<double>(chunks * chunk.size()), room, 0.03 * room);
}

// ---- Layout ----

TEST(MemoryLayoutTest, StoreBytesKeepsItsNeighbours) {
  Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    uint64_t words[8];
    for (uint64_t& word : words) word = rng.Next();
    char* bytes = reinterpret_cast<char*>(words);
    std::string expected(bytes, 64);
    const size_t at = rng.Below(64), length = rng.Below(64 - at + 1);
    const std::string value = Bytes(rng.Next(), length);
    expected.replace(at, length, value);
    layout::StoreBytes(bytes + at, value);
    ASSERT_EQ(std::string(bytes, 64), expected) << at << " " << length;
  }
}

TEST(MemoryLayoutTest, GarbageNeverParsesAndNeverReadsOutOfBounds) {
  TestMemory memory(32, 1);
  ServerCore core({}, memory.index(), memory.data(), layout::Generation{42});
  std::vector<uint64_t> doorbells;
  const Instant now;
  std::map<Key, std::string> model;
  for (uint64_t i = 0; i < 60; ++i) {
    model[KeyOf(i)] = Bytes(i, 1 + i * 60);
    core.Apply(now, KeyOf(i), MergeRule::kLongerWins, model[KeyOf(i)], doorbells);
  }
  Rng rng(1);
  uint64_t found = 0, other = 0;
  for (int round = 0; round < 20000; ++round) {
    TestMemory bad = memory;
    const bool in_index = rng.Chance(0.6);
    const std::span<char> region = in_index ? bad.index() : bad.data().first(300000);
    const uint64_t flips = 1 + rng.Below(8);
    for (uint64_t i = 0; i < flips; ++i) {
      region[rng.Below(region.size())] ^= static_cast<char>(1 + rng.Below(255));
    }
    const Key key = KeyOf(rng.Below(60));
    const Peek peek = PeekAt(bad.index(), bad.data(), key);
    if (peek.outcome == Peek::kFound) {
      ++found;
      ASSERT_EQ(peek.value, model[key]);
    } else {
      ++other;
    }
    round += 19;  // a copy of the regions each time: 1,000 rounds
  }
  EXPECT_GT(found, 100u);
  EXPECT_GT(other, 10u);
  for (int round = 0; round < 3000; ++round) {
    const std::string bytes = Bytes(rng.Next(), layout::kHeaderBytes);
    EXPECT_FALSE(layout::ParseGeometry(bytes, 1 << 20, 1 << 20).has_value());
    layout::BucketHeader bucket;
    EXPECT_FALSE(layout::ParseBucket(bytes.data(), bucket));
    layout::EntryHeader header;
    EXPECT_FALSE(layout::ParseEntryHeader(bytes.data(), KeyOf(0), layout::Generation{42}, header));
  }
}

TEST(MemoryLayoutTest, ZeroedMemoryIsNoServerAndNoEntry) {
  const std::string zero(layout::kHeaderBytes, '\0');
  EXPECT_FALSE(layout::ParseGeometry(zero, 1 << 20, 1 << 20).has_value());
  layout::BucketHeader bucket;
  EXPECT_FALSE(layout::ParseBucket(zero.data(), bucket));
  layout::EntryHeader header;
  EXPECT_FALSE(layout::ParseEntryHeader(zero.data(), Key{}, layout::Generation::kNone, header));
}

}  // namespace
}  // namespace tailcast::cache
