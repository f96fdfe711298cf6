#include "tailcast/writer/lock_core.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/rng.h"

namespace tailcast::writer {
namespace {

using State = LockCore::State;
using stream::LockState;
using stream::LockValue;

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }
LockValue Value(uint32_t attempt, uint64_t owner, LockState state = LockState::kHeld) {
  return {stream::Term{.attempt = attempt}, owner, state};
}

TEST(LockCore, TakesAFreeLock) {
  LockCore lock({}, Value(7, 1));
  EXPECT_FALSE(lock.MayWork());
  EXPECT_EQ(lock.OnRead(At(0), std::nullopt), Value(7, 1));
  EXPECT_TRUE(lock.MayWork());
  EXPECT_EQ(lock.NextRead(), At(50)) << "checked from then on";
}

TEST(LockCore, TakesAReleasedLockAtOnce) {
  LockCore lock({}, Value(7, 1));
  EXPECT_EQ(lock.OnRead(At(0), Value(6, 9, LockState::kReleased)), Value(7, 1));
  EXPECT_EQ(lock.state(), State::kHeld);
}

TEST(LockCore, PoisonsASmallerOwnerAndWaitsForItsRelease) {
  LockCore lock({}, Value(7, 1));
  EXPECT_EQ(lock.OnRead(At(0), Value(6, 9)), Value(6, 9, LockState::kPoisoned));
  EXPECT_EQ(lock.state(), State::kWaiting);
  EXPECT_FALSE(lock.MayWork());
  EXPECT_EQ(lock.OnRead(At(10), Value(6, 9, LockState::kPoisoned)), std::nullopt);
  EXPECT_EQ(lock.OnRead(At(20), Value(6, 9, LockState::kReleased)), Value(7, 1));
  EXPECT_TRUE(lock.MayWork());
  EXPECT_FALSE(lock.seized());
}

TEST(LockCore, RepeatsAPoisonThatWasLost) {
  LockCore lock({}, Value(7, 1));
  lock.OnRead(At(0), Value(6, 9));
  EXPECT_EQ(lock.OnRead(At(10), Value(6, 9)), Value(6, 9, LockState::kPoisoned));
}

TEST(LockCore, SeizesTheLockOfADeadOwnerAfterTheDelay) {
  LockCore lock({}, Value(7, 1));
  lock.OnRead(At(0), Value(6, 9));
  EXPECT_EQ(lock.OnRead(At(74), Value(6, 9, LockState::kPoisoned)), std::nullopt);
  EXPECT_EQ(lock.OnRead(At(75), Value(6, 9, LockState::kPoisoned)), Value(7, 1));
  EXPECT_TRUE(lock.seized());
  EXPECT_TRUE(lock.MayWork());
}

TEST(LockCore, GivesWayToPoisonAndReleases) {
  LockCore lock({}, Value(7, 1));
  lock.OnRead(At(0), std::nullopt);
  EXPECT_EQ(lock.OnRead(At(50), Value(7, 1, LockState::kPoisoned)),
            Value(7, 1, LockState::kReleased));
  EXPECT_TRUE(lock.lost());
  EXPECT_EQ(lock.NextRead(), MonotonicTime::Max());
  EXPECT_EQ(lock.Release(), std::nullopt);
}

TEST(LockCore, AnOperationThatHasEndedDoesNotBeginAgain) {
  LockCore lock({}, Value(7, 1));
  EXPECT_EQ(lock.OnRead(At(0), Value(7, 1, LockState::kReleased)), std::nullopt);
  EXPECT_TRUE(lock.lost());
  EXPECT_FALSE(lock.winner());
  EXPECT_EQ(lock.Release(), std::nullopt);
}

TEST(LockCore, GivesWayToAGreaterOwnerAndLeavesItsLockAlone) {
  LockCore lock({}, Value(7, 1));
  lock.OnRead(At(0), std::nullopt);
  EXPECT_EQ(lock.OnRead(At(50), Value(8, 2)), std::nullopt);
  EXPECT_TRUE(lock.lost());
  ASSERT_TRUE(lock.winner());
  EXPECT_EQ(lock.winner()->term, Value(8, 2).term);
  EXPECT_EQ(lock.Release(), std::nullopt);
}

TEST(LockCore, AnOlderOperationDoesNotStart) {
  LockCore lock({}, Value(7, 1));
  EXPECT_EQ(lock.OnRead(At(0), Value(7, 2)), std::nullopt) << "equal terms: the greater owner";
  EXPECT_TRUE(lock.lost());
}

TEST(LockCore, WritesAnEvictedLockAgain) {
  LockCore lock({}, Value(7, 1));
  lock.OnRead(At(0), std::nullopt);
  EXPECT_EQ(lock.OnRead(At(50), Value(7, 1)), std::nullopt);
  EXPECT_EQ(lock.OnRead(At(100), std::nullopt), Value(7, 1));
  EXPECT_EQ(lock.OnRead(At(150), Value(6, 4)), Value(7, 1)) << "and over an older leftover";
}

TEST(LockCore, AnUnreachableCacheStopsNobody) {
  LockCore lock({}, Value(7, 1));
  lock.OnUnavailable(At(0));
  EXPECT_TRUE(lock.MayWork());
  EXPECT_EQ(lock.NextRead(), At(200));
  // Back again: it takes part once more.
  EXPECT_EQ(lock.OnRead(At(200), Value(6, 9)), Value(6, 9, LockState::kPoisoned));
  LockCore held({}, Value(7, 1));
  held.OnRead(At(0), std::nullopt);
  held.OnUnavailable(At(50));
  EXPECT_EQ(held.state(), State::kHeld);
}

TEST(LockCore, OneThatEndsWhileItWaitsReleasesNothing) {
  LockCore lock({}, Value(7, 1));
  EXPECT_EQ(lock.OnRead(At(0), Value(6, 9)), Value(6, 9, LockState::kPoisoned));
  EXPECT_EQ(lock.Release(), std::nullopt) << "the smaller one may still be at work";
}

TEST(LockCore, ReleasesOnce) {
  LockCore lock({}, Value(7, 1));
  lock.OnRead(At(0), std::nullopt);
  EXPECT_EQ(lock.Release(), Value(7, 1, LockState::kReleased));
  EXPECT_EQ(lock.Release(), std::nullopt);
}

// Operations with rising terms over one maximum register that loses writes and answers late: in the
// end the greatest living one works, and it alone.
TEST(LockCore, TheGreatestLivingOperationEndsUpAlone) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    std::optional<LockValue> reg;
    const int n = static_cast<int>(rng.Between(1, 4));
    std::vector<LockCore> ops;
    std::vector<LockValue> values;
    std::vector<bool> dead(n);
    std::vector<int64_t> starts;
    for (int i = 0; i < n; ++i) {
      values.push_back(Value(rng.Between(1, 3), i + 1));
      ops.push_back(LockCore({}, values.back()));
      starts.push_back(rng.Between(0, 200));
    }
    for (int64_t ms = 0; ms < 1500; ++ms) {
      for (int i = 0; i < n; ++i) {
        if (dead[i] || ms < starts[i] || ops[i].NextRead() > At(ms)) continue;
        if (rng.Chance(0.1) && ms < 300) {
          ops[i].OnUnavailable(At(ms));
          continue;
        }
        const auto write = ops[i].OnRead(At(ms), reg);
        const bool lost = ms < 300 && rng.Chance(0.2);
        if (write && !lost && (!reg || *write > *reg)) reg = write;
      }
      if (ms == 300 && n > 1) dead[rng.Below(n)] = true;
    }
    int working = 0;
    for (int i = 0; i < n; ++i) working += !dead[i] && ops[i].MayWork();
    EXPECT_LE(working, 1);
    const size_t greatest =
        static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
    if (!dead[greatest]) {
      EXPECT_TRUE(ops[greatest].MayWork());
    }
  }
}

}  // namespace
}  // namespace tailcast::writer
