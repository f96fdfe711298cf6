// A pool with a device that takes its buffers in the order of posting, gives some back late and
// some never.
#include "tailcast/fabric/verbs_pool_core.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "tailcast/base/rng.h"

namespace tailcast::fabric {
namespace {

constexpr Duration kPatience = Duration::Seconds(6);

struct Pool {
  explicit Pool(uint32_t channels) : core(VerbsPoolCore::Most(channels), kPatience) {}
  VerbsPoolCore core;
  MonotonicTime now = MonotonicTime::FromMicros(1'000'000'000);
  std::deque<uint32_t> queue;  // posted, and not taken by a packet

  void Post(uint32_t buffer) {
    core.OnPosted(buffer);
    queue.push_back(buffer);
  }
  void Fill() {
    for (uint32_t missing = core.missing(); missing > 0; --missing) Post(core.Add());
  }
  bool Attach() {
    if (!core.Attach(now)) return false;
    Fill();
    return true;
  }
  // A packet comes.
  uint32_t Take() {
    const uint32_t buffer = queue.front();
    queue.pop_front();
    return buffer;
  }
  void GiveBack(uint32_t buffer) {
    ASSERT_TRUE(core.OnArrived(buffer));
    Post(buffer);
  }
  // All that is posted comes and goes, once, and time passes.
  void GoOn() {
    for (size_t i = queue.size(); i > 0; --i) GiveBack(Take());
    now = now + kPatience;
    core.Look(now);
    Fill();
  }
};

TEST(VerbsPoolCoreTest, ThereAreAFewBuffersForEachChannelAndSomeForAll) {
  Pool pool(1024);
  for (uint32_t channels = 1; channels <= 1024; ++channels) {
    ASSERT_TRUE(pool.Attach());
    EXPECT_EQ(pool.core.buffers(), VerbsPoolCore::kBase + VerbsPoolCore::kShare * channels);
  }
  EXPECT_LE(pool.core.buffers(), VerbsPoolCore::Most(1024));
  // A queue does not give buffers back: those who come after others find theirs.
  for (int i = 0; i < 1024; ++i) pool.core.Detach(pool.now);
  for (int i = 0; i < 1024; ++i) ASSERT_TRUE(pool.Attach());
  EXPECT_EQ(pool.core.buffers(), VerbsPoolCore::kBase + VerbsPoolCore::kShare * 1024);
}

TEST(VerbsPoolCoreTest, WhatTheDeviceTakesBoundsIt) {
  Pool pool(1);
  EXPECT_TRUE(pool.Attach());
  uint32_t channels = 1;
  while (pool.Attach()) ++channels;
  EXPECT_EQ(channels, (VerbsPoolCore::Most(1) - VerbsPoolCore::kBase) / VerbsPoolCore::kShare);
  EXPECT_LE(pool.core.buffers(), VerbsPoolCore::Most(1));
}

// Late, out of order, many at a time: none of them is lost while it comes within the time.
TEST(VerbsPoolCoreTest, ABufferThatComesBackLateIsNotLost) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Pool pool(20);
    Rng rng(seed);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(pool.Attach());
    std::vector<uint32_t> held;
    for (int step = 0; step < 2000; ++step) {
      if (!pool.queue.empty() && rng.Chance(0.6)) {
        held.push_back(pool.Take());
      } else if (!held.empty()) {
        const size_t which = rng.Below(held.size());
        pool.GiveBack(held[which]);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      }
      if (step % 200 == 199) {
        while (!held.empty()) {
          pool.GiveBack(held.back());
          held.pop_back();
        }
        pool.now = pool.now + kPatience;
      }
      pool.core.Look(pool.now);
      ASSERT_EQ(pool.core.lost(), 0u) << "seed " << seed << ", step " << step;
    }
  }
}

TEST(VerbsPoolCoreTest, WhatIsLostIsFoundAndMadeUpForUntilThePoolIsWorn) {
  Pool pool(10);
  ASSERT_TRUE(pool.Attach());
  pool.GoOn();
  const size_t whole = pool.queue.size();
  uint32_t lost = 0;
  for (; lost < VerbsPoolCore::kLostMost; lost += 16) {
    for (int i = 0; i < 16; ++i) pool.Take();
    for (int i = 0; i < 3; ++i) pool.GoOn();
    ASSERT_EQ(pool.core.lost(), lost + 16);
    ASSERT_EQ(pool.queue.size(), whole);
    ASSERT_FALSE(pool.core.worn());
  }
  pool.Take();
  for (int i = 0; i < 3; ++i) pool.GoOn();
  EXPECT_TRUE(pool.core.worn());
  EXPECT_FALSE(pool.Attach());
  EXPECT_EQ(pool.core.attached(), 1u);
  EXPECT_EQ(pool.queue.size(), whole - 1);  // those who are there go on
}

TEST(VerbsPoolCoreTest, ADeviceThatGivesBackWhatItDoesNotHaveIsNotBelieved) {
  Pool pool(4);
  ASSERT_TRUE(pool.Attach());
  const uint32_t buffer = pool.Take();
  EXPECT_TRUE(pool.core.OnArrived(buffer));
  EXPECT_FALSE(pool.core.OnArrived(buffer));
  EXPECT_FALSE(pool.core.OnArrived(pool.core.buffers()));
  EXPECT_FALSE(pool.core.OnArrived(~0u));
}

// One flooder's completion queue is full before the buffers are gone that others need.
TEST(VerbsPoolCoreTest, OneClientCannotHoldAllBuffers) {
  Pool pool(4);
  ASSERT_TRUE(pool.Attach());
  EXPECT_GT(pool.queue.size(), kVerbsServerReceives + VerbsPoolCore::kShare);
  EXPECT_GT(pool.core.limit(), 0u);
  EXPECT_LT(pool.core.limit(), pool.core.buffers() - kVerbsServerReceives);
}

}  // namespace
}  // namespace tailcast::fabric
