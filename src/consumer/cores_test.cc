// Algorithm 1, the rate limit, the tail buffer and the lag in time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "tailcast/base/rng.h"
#include "tailcast/consumer/ahead_core.h"
#include "tailcast/consumer/delayed_read_core.h"
#include "tailcast/consumer/given_times.h"
#include "tailcast/consumer/rate_limiter.h"
#include "tailcast/consumer/tail_buffer.h"

namespace tailcast::consumer {
namespace {

MonotonicTime Ms(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

using Outcome = AheadCore::Outcome;
using stream::Part;

TEST(AheadCoreTest, ARoundEndsWithTheAnswerOfItsSecondPart) {
  AheadCore ahead;
  EXPECT_FALSE(ahead.asking());
  ahead.Begin(/*alone=*/true);
  EXPECT_TRUE(ahead.alone());
  EXPECT_TRUE(ahead.asks(Part::kData) && ahead.asks(Part::kIndex));
  EXPECT_EQ(ahead.OnAnswer(ahead.round(), Part::kIndex, 100, /*more=*/true, true), Outcome::kNone);
  EXPECT_TRUE(ahead.asks(Part::kIndex)) << "there may be more";
  EXPECT_EQ(ahead.OnAnswer(ahead.round(), Part::kIndex, 120, false, true), Outcome::kNone);
  EXPECT_FALSE(ahead.asks(Part::kIndex));
  EXPECT_EQ(ahead.OnAnswer(ahead.round(), Part::kData, 0, false, true), Outcome::kBytes)
      << "of one part will do";
  EXPECT_FALSE(ahead.asking());
  EXPECT_EQ(ahead.end(Part::kIndex), 120);
  EXPECT_EQ(ahead.end(Part::kData), 0) << "nobody saw that the cache has it";
  ahead.Begin(true);
  ahead.OnAnswer(ahead.round(), Part::kIndex, 0, false, true);
  EXPECT_EQ(ahead.OnAnswer(ahead.round(), Part::kData, 0, false, true), Outcome::kInVain)
      << "what came in the round before is none of this one";
  EXPECT_EQ(ahead.end(Part::kIndex), 120);
}

TEST(AheadCoreTest, TheRestOfAFlushIsLookedForSoonAndThenLessOften) {
  AheadCore ahead;
  Duration pause = AheadCore::kUnevenPause;
  for (int i = 0; i < 100; ++i) {
    ahead.Begin(true);
    ahead.OnAnswer(ahead.round(), Part::kIndex, 100 + i, false, false);
    EXPECT_EQ(ahead.OnAnswer(ahead.round(), Part::kData, 0, false, false), Outcome::kUneven);
    EXPECT_EQ(ahead.uneven_pause(), pause);
    pause = std::min(pause * 2, AheadCore::kUnevenPauseMax);
  }
  ahead.Begin(true);
  ahead.OnAnswer(ahead.round(), Part::kIndex, 300, false, false);
  EXPECT_EQ(ahead.OnAnswer(ahead.round(), Part::kData, 950, false, true), Outcome::kBytes)
      << "what counts is how things are at the end";
  ahead.Begin(true);
  ahead.OnAnswer(ahead.round(), Part::kIndex, 400, false, false);
  ahead.OnAnswer(ahead.round(), Part::kData, 0, false, false);
  EXPECT_EQ(ahead.uneven_pause(), AheadCore::kUnevenPause);
  ahead.Begin(true);
  ahead.OnAnswer(ahead.round(), Part::kIndex, 0, false, false);
  EXPECT_EQ(ahead.OnAnswer(ahead.round(), Part::kData, 0, false, false), Outcome::kInVain)
      << "this replica has no more: lengths say who has";
}

TEST(AheadCoreTest, ARoundThatGaveAMessageIsNotUneven) {
  AheadCore ahead;
  ahead.Begin(true);
  ahead.OnAnswer(1, Part::kIndex, 100, false, /*ready=*/true);
  EXPECT_EQ(ahead.OnAnswer(1, Part::kData, 900, false, /*ready=*/false), Outcome::kBytes)
      << "the user took it before more came";
  ahead.Begin(true);
  ahead.OnAnswer(2, Part::kIndex, 120, false, false);
  EXPECT_EQ(ahead.OnAnswer(2, Part::kData, 0, false, false), Outcome::kUneven)
      << "that was the round before";
}

TEST(AheadCoreTest, WhatWasAskedInARoundThatWasStoppedIsNoAnswerOfTheNext) {
  AheadCore ahead;
  ahead.Begin(true);
  const int64_t stopped = ahead.round();
  ahead.Stop();
  ahead.Begin(true);
  EXPECT_EQ(ahead.OnAnswer(stopped, Part::kIndex, 100, false, true), Outcome::kNone);
  EXPECT_EQ(ahead.end(Part::kIndex), 100);
  EXPECT_TRUE(ahead.asks(Part::kIndex)) << "it is asked again";
  EXPECT_EQ(ahead.OnAnswer(ahead.round(), Part::kIndex, 0, false, true), Outcome::kNone);
  EXPECT_EQ(ahead.OnAnswer(ahead.round(), Part::kData, 0, false, true), Outcome::kInVain);
}

TEST(AheadCoreTest, AnAnswerAfterTheStopSaysWhatTheCacheHasAndNothingElse) {
  AheadCore ahead;
  ahead.Begin(true);
  ahead.Stop();
  EXPECT_FALSE(ahead.asking());
  EXPECT_EQ(ahead.OnAnswer(ahead.round(), Part::kIndex, 100, false, true), Outcome::kNone);
  EXPECT_EQ(ahead.OnAnswer(ahead.round(), Part::kData, 900, false, true), Outcome::kNone);
  EXPECT_EQ(ahead.end(Part::kIndex), 100);
}

// Each row: time, sizes of cache and primary, what Algorithm 1 says.
struct Row {
  int64_t ms;
  int64_t cache;
  int64_t primary;
  DelayedRead expected;
};
void Check(std::initializer_list<Row> rows) {
  DelayedReadCore core(Duration::Seconds(1));
  for (const Row& row : rows) {
    EXPECT_EQ(core.OnSizes(Ms(row.ms), row.cache, row.primary), row.expected) << "at " << row.ms;
  }
}

TEST(GivenTimesTest, TheAgeIsThatOfTheShardsOwnLastMessage) {
  GivenTimes given;
  const auto at = [](int64_t us) { return WallTime::FromMicros(us); };
  EXPECT_EQ(given.Age(0, at(5000)), Duration());
  given.OnGiven(0, 1000);
  given.OnGiven(1, 4900);
  EXPECT_EQ(given.Age(0, at(5000)), Duration::Micros(4000)) << "whatever came of others since";
  EXPECT_EQ(given.Age(1, at(5000)), Duration::Micros(100));
  EXPECT_EQ(given.Age(1, at(4000)), Duration());
  given.Forget(0);
  EXPECT_EQ(given.Age(0, at(5000)), Duration());
}

TEST(Algorithm1, ACacheThatIsAheadOrEvenIsCaughtUp) {
  Check({{0, 100, 100, DelayedRead::kCaughtUp},
         {100, 300, 100, DelayedRead::kCaughtUp},
         {5000, 300, 300, DelayedRead::kCaughtUp}});
}
TEST(Algorithm1, ACacheThatCatchesUpInTimeIsWaitedFor) {
  Check({{0, 100, 200, DelayedRead::kMayCatchUp},
         {900, 100, 200, DelayedRead::kMayCatchUp},
         {1000, 100, 200, DelayedRead::kMayCatchUp},
         {1001, 200, 200, DelayedRead::kCaughtUp}});
}
TEST(Algorithm1, ALateCacheIsReadAroundAndTheHistoryBeginsAnew) {
  Check({{0, 100, 200, DelayedRead::kMayCatchUp},
         {1001, 100, 200, DelayedRead::kDelayed},
         {1002, 100, 200, DelayedRead::kMayCatchUp},
         {2003, 100, 200, DelayedRead::kDelayed}});
}
TEST(Algorithm1, ACacheThatFollowsAtADistanceIsNotLate) {
  // Each size is reached within the second, although the primary is always ahead.
  DelayedReadCore core(Duration::Seconds(1));
  for (int64_t t = 0; t < 20000; t += 100) {
    EXPECT_NE(core.OnSizes(Ms(t), std::max<int64_t>(0, t - 800), t), DelayedRead::kDelayed) << t;
  }
}
TEST(Algorithm1, ACacheThatStandsWhileThePrimaryGrowsIsLateByItsOldestByte) {
  Check({{0, 100, 200, DelayedRead::kMayCatchUp},
         {500, 100, 300, DelayedRead::kMayCatchUp},
         {1001, 100, 400, DelayedRead::kDelayed}});
}

// The paper's text, word for word, beside ours.
TEST(Algorithm1, IsThePapers) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    DelayedReadCore core(Duration::Seconds(1));
    struct Rec {
      int64_t time, size;
    };
    std::deque<Rec> queue;
    int64_t now = 0, cache = 0, primary = 0;
    for (int i = 0; i < 300; ++i) {
      now += rng.Between(1, 300000);
      if (rng.Chance(0.6)) primary += rng.Between(0, 100);
      if (rng.Chance(0.5)) cache = rng.Between(cache, std::max(cache, primary + 20));
      queue.push_back({now, primary});
      bool expected = false;
      while (!queue.empty() && queue.front().size <= cache) queue.pop_front();
      if (!queue.empty() && now > queue.front().time + 1000000) {
        queue.clear();
        expected = true;
      }
      EXPECT_EQ(
          core.OnSizes(MonotonicTime::FromMicros(now), cache, primary) == DelayedRead::kDelayed,
          expected);
    }
  }
}
TEST(Algorithm1, TheHistoryIsBounded) {
  DelayedReadCore core(Duration::Seconds(1000));
  for (int64_t i = 0; i < 100000; ++i) core.OnSizes(MonotonicTime::FromMicros(i), 0, i + 1);
  EXPECT_LE(core.history_size(), DelayedReadCore::kHistoryMax);
}
TEST(Algorithm1, TellsWhenToLookAgain) {
  DelayedReadCore core(Duration::Seconds(1));
  EXPECT_EQ(core.Deadline(), MonotonicTime::Max());
  core.OnSizes(Ms(5), 0, 10);
  EXPECT_EQ(core.OnSizes(core.Deadline(), 0, 10), DelayedRead::kDelayed);
}

TEST(RateLimiter, GivesTheBurstThenTheRate) {
  RateLimiter limiter(1000, 500);
  EXPECT_EQ(limiter.Available(Ms(0)), 500);
  limiter.Spend(500);
  EXPECT_EQ(limiter.Available(Ms(0)), 0);
  EXPECT_EQ(limiter.Available(Ms(100)), 100);
  EXPECT_EQ(limiter.Available(Ms(60000)), 500) << "no more than the burst";
}
TEST(RateLimiter, WhatWasTakenTooMuchIsOwed) {
  RateLimiter limiter(1000, 500);
  limiter.Available(Ms(0));
  limiter.Spend(700);
  EXPECT_EQ(limiter.Available(Ms(100)), 0);
  EXPECT_GE(limiter.Wait(100).millis(), 200 - 1);
  EXPECT_EQ(limiter.Available(Ms(300)), 100);
}
TEST(RateLimiter, ZeroIsNoLimit) {
  RateLimiter limiter(0, 0);
  limiter.Spend(1 << 30);
  EXPECT_EQ(limiter.Available(Ms(0)), INT64_MAX);
  EXPECT_EQ(limiter.Wait(1000), Duration());
}

// Against a plain string: whatever is read and taken, what is buffered are the file's bytes, and
// pinned bytes stay.
TEST(TailBuffer, HoldsTheBytesBetweenTakenAndRead) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    std::string file;
    for (int i = 0; i < 20000; ++i) file.push_back(static_cast<char>(rng.Next()));
    const int64_t chunk = 64;
    TailBuffer buffer(512);
    int64_t taken = rng.Between(0, 300);
    buffer.Reset(taken, chunk);
    std::string_view pinned;
    int64_t pinned_at = 0;
    while (buffer.end() < 19000) {
      const int64_t want = buffer.end() + rng.Between(1, rng.Chance(0.1) ? 3000 : 200);
      int64_t room = 0;
      char* const to = buffer.Prepare(taken, want, &room);
      const int64_t base = buffer.ChunkStart(buffer.end());
      ASSERT_GE(room, want - base);
      // A reader writes from the end on, or all of the last chunk again if it is not valid.
      const int64_t from = buffer.tail_valid() ? buffer.end() : base;
      const int64_t end = rng.Between(buffer.end(), std::min<int64_t>(base + room, 20000));
      if (end > from) {
        std::memcpy(to + (from - base), file.data() + from, static_cast<size_t>(end - from));
      }
      buffer.Extend(end, true, 0);
      ASSERT_EQ(std::string_view(buffer.at(taken), static_cast<size_t>(end - taken)),
                std::string_view(file).substr(static_cast<size_t>(taken),
                                              static_cast<size_t>(end - taken)));
      if (!pinned.empty()) {
        ASSERT_EQ(pinned,
                  std::string_view(file).substr(static_cast<size_t>(pinned_at), pinned.size()));
      }
      if (rng.Chance(0.3)) {
        buffer.Unpin();
        pinned = {};
      }
      if (rng.Chance(0.4) && end > taken) {
        const int64_t more = rng.Between(1, end - taken);
        if (pinned.empty()) {
          buffer.Pin();
          pinned_at = taken;
          pinned = {buffer.at(taken), static_cast<size_t>(more)};
        }
        taken += more;
      }
      if (rng.Chance(0.05)) buffer.Truncate(rng.Between(taken, end));
    }
    EXPECT_LE(buffer.capacity(), 64 * 1024);
  }
}

TEST(TailBuffer, MemoryThatWasPinnedIsUsedAgainUnlessSomebodyMayWriteToIt) {
  for (const bool held : {false, true}) {
    TailBuffer buffer(512);
    buffer.Reset(0, 64);
    // All of the memory is read and given, and more is asked for while the user looks at it.
    const auto next = [&] {
      buffer.Pin();
      int64_t room = 0;
      const char* const memory = buffer.Prepare(buffer.end(), buffer.end() + 512, &room);
      buffer.Extend(buffer.end() + 512, true, 0);
      return memory;
    };
    const char* const first = next();
    std::shared_ptr<const void> owner;
    if (held) owner = buffer.owner();
    EXPECT_NE(next(), first);
    buffer.Unpin();
    const std::unique_ptr<char[]> others(new char[512]);  // would take what was freed
    const char* const third = next();
    EXPECT_EQ(third == first, !held);
  }
}

}  // namespace
}  // namespace tailcast::consumer
