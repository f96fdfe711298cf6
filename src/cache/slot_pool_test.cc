#include "tailcast/cache/slot_pool.h"

#include <set>

#include "gtest/gtest.h"
#include "tailcast/base/rng.h"

namespace tailcast::cache {
namespace {

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(1000 * ms); }
const uint32_t kFourKb = *layout::ClassFor(4096);
const uint32_t kEightKb = *layout::ClassFor(8192);

TEST(SlotPoolTest, GivesEachSlotOnceAndAgainAfterItsRest) {
  SlotPool pool(2, Duration::Millis(100));
  std::set<uint64_t> offsets;
  while (const auto offset = pool.Take(kFourKb, 1)) {
    EXPECT_TRUE(offsets.insert(*offset).second);
    EXPECT_LE(*offset + layout::SlotBytes(kFourKb), 2 * layout::kSlabBytes);
  }
  EXPECT_EQ(offsets.size(), 2 * layout::SlotsPerSlab(kFourKb));
  EXPECT_EQ(pool.live(kFourKb), offsets.size());
  pool.Leave(At(1000), *offsets.begin());
  pool.Unrest(At(1099));
  EXPECT_FALSE(pool.Take(kFourKb, 1).has_value());
  pool.Unrest(At(1100));
  EXPECT_EQ(pool.Take(kFourKb, 1), *offsets.begin());
}

TEST(SlotPoolTest, ReserveIsForClassesThatHaveFewSlabs) {
  SlotPool pool(32, Duration::Millis(100));
  while (pool.Take(kFourKb, 1).has_value()) {
  }
  EXPECT_EQ(pool.slabs_used(), 31u);
  EXPECT_EQ(pool.Available(kFourKb), 0u);
  EXPECT_FALSE(pool.ShortOfSlabs()) << "who has the most gets no more";
  EXPECT_TRUE(pool.Take(kEightKb, 2).has_value());
  EXPECT_TRUE(pool.ShortOfSlabs());
}

TEST(SlotPoolTest, LeavingSlabBecomesFreeOnceItsEntriesHaveLeftAndRested) {
  SlotPool pool(2, Duration::Millis(100));
  std::vector<uint64_t> offsets;
  while (const auto offset = pool.Take(kFourKb, static_cast<uint32_t>(offsets.size()))) {
    offsets.push_back(*offset);
  }
  ASSERT_FALSE(pool.Take(kEightKb, 9999).has_value());
  ASSERT_TRUE(pool.ShortOfSlabs());
  ASSERT_EQ(pool.slabs_of(kFourKb), 2u);
  pool.Reclaim(offsets.front());
  EXPECT_FALSE(pool.ShortOfSlabs());
  EXPECT_EQ(pool.Capacity(kFourKb), layout::SlotsPerSlab(kFourKb));
  uint32_t left = 0;
  while (const auto entry = pool.NextToLeave()) {
    EXPECT_EQ(offsets[*entry] / layout::kSlabBytes, offsets.front() / layout::kSlabBytes);
    pool.Leave(At(0), offsets[*entry]);
    ++left;
  }
  EXPECT_EQ(left, layout::SlotsPerSlab(kFourKb));
  EXPECT_FALSE(pool.Take(kFourKb, 1).has_value()) << "its slots are nobody's";
  pool.Unrest(At(100));
  EXPECT_TRUE(pool.Take(kEightKb, 9999).has_value());
}

TEST(SlotPoolTest, AccountsForEverySlotWhateverHappens) {
  Rng rng(7);
  SlotPool pool(20, Duration::Millis(10));
  std::vector<std::pair<uint64_t, uint32_t>> taken;  // offset, class
  std::set<uint64_t> live;
  for (int64_t ms = 0; ms < 20000; ++ms) {
    const auto size_class = static_cast<uint32_t>(rng.Below(layout::kClassCount));
    if (const auto offset = pool.Take(size_class, static_cast<uint32_t>(taken.size()))) {
      ASSERT_TRUE(live.insert(*offset).second);
      taken.emplace_back(*offset, size_class);
    }
    if (rng.Below(3) == 0 && !live.empty()) {
      pool.Reclaim(*live.begin());
    }
    for (uint64_t i = rng.Below(3); i > 0; --i) {
      const auto entry = pool.NextToLeave();
      if (!entry.has_value()) break;
      pool.Leave(At(ms), taken[*entry].first);
      live.erase(taken[*entry].first);
    }
    pool.Unrest(At(ms));
    uint64_t counted = 0;
    for (uint32_t c = 0; c < layout::kClassCount; ++c) counted += pool.live(c);
    ASSERT_EQ(counted, live.size());
  }
  while (const auto entry = pool.NextToLeave()) pool.Leave(At(30000), taken[*entry].first);
  for (const auto& [offset, size_class] : taken) {
    if (live.contains(offset)) {
      pool.Reclaim(offset);
    }
  }
  while (const auto entry = pool.NextToLeave()) pool.Leave(At(30000), taken[*entry].first);
  pool.Unrest(At(40000));
  EXPECT_EQ(pool.slabs_used(), 0u);
  EXPECT_EQ(pool.resting(), 0u);
}

}  // namespace
}  // namespace tailcast::cache
