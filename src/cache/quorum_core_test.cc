#include "tailcast/cache/quorum_core.h"

#include <functional>

#include "gtest/gtest.h"
#include "tailcast/base/scope.h"

namespace tailcast::cache {
namespace {

using Kind = ReadCore::Kind;
constexpr Mask kAll = 0b111;

TEST(ReadCoreTest, Fig5RelaxedReadOfALaggingReplicaThenTheOthers) {
  ReadCore core;
  EXPECT_EQ(core.Start(Kind::kChunk, ReadMode::kRelaxed, 3, kAll, kAll, 4096), 0b001);
  EXPECT_EQ(core.OnAnswer(0, 1000), 0b110) << "short: a consistent read of the others";
  EXPECT_FALSE(core.done());
  EXPECT_EQ(core.OnAnswer(2, 4096), 0);
  EXPECT_TRUE(core.done());
  EXPECT_EQ(core.OnAnswer(1, 4096), 0) << "late answers are nothing new";
  EXPECT_EQ(core.longest(), 4096u);
}

TEST(ReadCoreTest, RelaxedReadEndsAtTheFirstAnswerThatIsLongEnough) {
  ReadCore core;
  EXPECT_EQ(core.Start(Kind::kChunk, ReadMode::kRelaxed, 3, kAll, kAll, 100), 0b001);
  EXPECT_EQ(core.OnAnswer(0, 4096), 0) << "longer than wanted is fine";
  EXPECT_TRUE(core.done());
  EXPECT_EQ(core.answers(), 1);
}

TEST(ReadCoreTest, AnyOneEndsAtTheFirstAnswerWhateverItHas) {
  ReadCore core;
  EXPECT_EQ(core.Start(Kind::kChunk, ReadMode::kAnyOne, 3, kAll, kAll, 4096), 0b001);
  EXPECT_EQ(core.OnAnswer(0, 0), 0);
  EXPECT_TRUE(core.done());
  core.Start(Kind::kChunk, ReadMode::kAnyOne, 3, kAll, kAll, 4096);
  EXPECT_EQ(core.OnError(0), 0b110) << "no answer is none";
  EXPECT_EQ(core.OnAnswer(2, 100), 0);
  EXPECT_TRUE(core.done());
  EXPECT_EQ(core.longest(), 100u);
}

TEST(ReadCoreTest, Fig6MissOnlyWhenAllThatCanBeReachedAnswered) {
  ReadCore core;
  core.Start(Kind::kChunk, ReadMode::kRelaxed, 3, kAll, kAll, 4096);
  EXPECT_EQ(core.OnAnswer(0, 0), 0b110);
  EXPECT_EQ(core.OnAnswer(1, 0), 0);
  EXPECT_FALSE(core.done()) << "one may still have it";
  EXPECT_EQ(core.OnError(2), 0);
  EXPECT_TRUE(core.done());
  EXPECT_EQ(core.longest(), 0u);
  EXPECT_EQ(core.answers(), 2);
}

TEST(ReadCoreTest, ConsistentReadAsksTwoAtOnceAndTheThirdIfBothAreShort) {
  ReadCore core;
  EXPECT_EQ(core.Start(Kind::kChunk, ReadMode::kConsistent, 3, kAll, kAll, 4096), 0b011);
  EXPECT_EQ(core.OnAnswer(1, 10), 0b100);
  EXPECT_EQ(core.OnAnswer(0, 20), 0);
  EXPECT_EQ(core.OnAnswer(2, 15), 0);
  EXPECT_TRUE(core.done());
  EXPECT_EQ(core.longest(), 20u);
}

TEST(ReadCoreTest, HedgeAsksOneMoreAndTheFasterWins) {
  ReadCore core;
  core.Start(Kind::kChunk, ReadMode::kRelaxed, 3, kAll, kAll, 100);
  EXPECT_EQ(core.OnHedge(), 0b010);
  EXPECT_EQ(core.OnHedge(), 0b100);
  EXPECT_EQ(core.OnHedge(), 0) << "nobody left";
  EXPECT_EQ(core.OnAnswer(1, 100), 0);
  EXPECT_TRUE(core.done());
  EXPECT_EQ(core.OnHedge(), 0);
}

TEST(ReadCoreTest, SkipsUnusableReplicas) {
  ReadCore core;
  EXPECT_EQ(core.Start(Kind::kChunk, ReadMode::kRelaxed, 3, 0b100, kAll, 100), 0b100);
  EXPECT_EQ(core.OnAnswer(2, 50), 0);
  EXPECT_TRUE(core.done());
  EXPECT_EQ(core.Start(Kind::kChunk, ReadMode::kRelaxed, 3, 0, kAll, 100), 0);
  EXPECT_TRUE(core.done());
  EXPECT_EQ(core.answers(), 0);
  EXPECT_EQ(core.Start(Kind::kValue, ReadMode::kRelaxed, 1, kAll, kAll, 0), 0b001)
      << "a ring of one replica";
}

TEST(ReadCoreTest, ValueNeedsTwoAnswersOrAllThatCanBeReached) {
  ReadCore core;
  EXPECT_EQ(core.Start(Kind::kValue, ReadMode::kConsistent, 3, kAll, kAll, 0), 0b011);
  EXPECT_EQ(core.OnAnswer(0, 64), 0);
  EXPECT_FALSE(core.done()) << "one answer is not a quorum";
  EXPECT_EQ(core.OnError(1), 0b100);
  EXPECT_EQ(core.OnAnswer(2, 0), 0) << "absent is an answer";
  EXPECT_TRUE(core.done());

  core.Start(Kind::kValue, ReadMode::kConsistent, 3, kAll, kAll, 0);
  core.OnError(0);
  core.OnError(1);
  EXPECT_EQ(core.OnAnswer(2, 64), 0);
  EXPECT_TRUE(core.done());
  EXPECT_EQ(core.answers(), 1);

  core.Start(Kind::kValue, ReadMode::kConsistent, 3, kAll, kAll, 0);
  core.OnError(0);
  core.OnError(1);
  core.OnError(2);
  EXPECT_TRUE(core.done());
  EXPECT_EQ(core.answers(), 0);
}

// Spec Merge, planted "empty_answers": what an empty replica has not is no answer.
TEST(ReadCoreTest, ValueNeedsWholeReplicasOrIsPartial) {
  ReadCore core;
  EXPECT_EQ(core.Start(Kind::kValue, ReadMode::kConsistent, 3, kAll, 0b110, 0), 0b110)
      << "whole ones first";
  core.OnAnswer(1, 64);
  core.OnAnswer(2, 64);
  EXPECT_TRUE(core.done());
  EXPECT_TRUE(core.complete());

  core.Start(Kind::kValue, ReadMode::kConsistent, 3, kAll, 0b110, 0);
  core.OnAnswer(1, 0);
  EXPECT_FALSE(core.done());
  EXPECT_EQ(core.OnError(2), 0b001) << "what it has is a lower bound";
  EXPECT_FALSE(core.done());
  core.OnAnswer(0, 0);
  EXPECT_TRUE(core.done());
  EXPECT_FALSE(core.complete()) << "nothing was found, and yet it may be there";

  core.Start(Kind::kValue, ReadMode::kConsistent, 3, kAll, 0, 0);
  for (uint8_t replica = 0; replica < 3; ++replica) core.OnAnswer(replica, 64);
  EXPECT_TRUE(core.done());
  EXPECT_FALSE(core.complete());

  core.Start(Kind::kValue, ReadMode::kConsistent, 1, 0b001, 0b001, 0);
  core.OnAnswer(0, 64);
  EXPECT_TRUE(core.complete()) << "a ring of one replica";

  core.Start(Kind::kChunk, ReadMode::kRelaxed, 3, kAll, 0, 100);
  core.OnAnswer(0, 100);
  EXPECT_TRUE(core.done()) << "bytes that were found are right, whoever has them";
}

TEST(ReadCoreTest, OneWholeReplicaThatHasAValueEndsARelaxedReadOfIt) {
  ReadCore core;
  EXPECT_EQ(core.Start(Kind::kValue, ReadMode::kRelaxed, 3, kAll, kAll, 0), 0b001);
  EXPECT_EQ(core.OnAnswer(0, 64), 0);
  EXPECT_TRUE(core.done());
  EXPECT_FALSE(core.complete()) << "another one may have more";

  EXPECT_EQ(core.Start(Kind::kValue, ReadMode::kRelaxed, 3, kAll, kAll, 0), 0b001);
  EXPECT_EQ(core.OnAnswer(0, 0), 0b010) << "what one has not the others may have";
  EXPECT_FALSE(core.done());
  EXPECT_EQ(core.OnAnswer(1, 0), 0);
  EXPECT_TRUE(core.complete()) << "two whole ones say that there is none";

  EXPECT_EQ(core.Start(Kind::kValue, ReadMode::kRelaxed, 3, kAll, 0b010, 0), 0b010)
      << "a whole one first";
  EXPECT_EQ(core.OnError(1), 0b101);
  core.OnAnswer(0, 64);
  EXPECT_FALSE(core.done()) << "one that is not whole may have next to nothing";
  core.OnAnswer(2, 64);
  EXPECT_TRUE(core.done());

  EXPECT_EQ(core.Start(Kind::kValue, ReadMode::kRelaxed, 3, kAll, kAll, 0), 0b001);
  EXPECT_EQ(core.OnAnswer(0, 64, /*outdated=*/true), 0b110) << "written elsewhere by now";
}

TEST(ReadCoreTest, DeadlineEndsWithWhatIsThere) {
  ReadCore core;
  core.Start(Kind::kChunk, ReadMode::kRelaxed, 3, kAll, kAll, 100);
  core.OnAnswer(0, 60);
  core.OnDeadline();
  EXPECT_TRUE(core.done());
  EXPECT_EQ(core.longest(), 60u);
}

// Exhaustive: every order of answers and errors of every small case ends, and never before it may.
TEST(ReadCoreTest, EveryOrderOfEventsEndsAndKeepsItsPromise) {
  const uint32_t lengths[] = {0, 50, 100};
  int cases = 0;
  for (const Kind kind : {Kind::kChunk, Kind::kValue}) {
    for (const ReadMode mode : {ReadMode::kRelaxed, ReadMode::kConsistent}) {
      for (int usable = 0; usable < 8; ++usable) {
        std::function<void(ReadCore, Mask, int)> explore = [&](ReadCore core, Mask good,
                                                               int depth) {
          ASSERT_LT(depth, 8);
          if (core.done()) {
            ++cases;
            EXPECT_EQ(core.answers(), __builtin_popcount(good));
            if (kind == Kind::kChunk && core.longest() < 100) {
              EXPECT_EQ(core.outstanding(), 0) << "gave up while an answer was coming";
            }
            if (kind == Kind::kValue && core.answers() < 2 &&
                (mode == ReadMode::kConsistent || core.longest() == 0)) {
              EXPECT_EQ(core.outstanding(), 0);
            }
            return;
          }
          ASSERT_NE(core.outstanding(), 0) << "waits for nobody";
          for (uint8_t replica = 0; replica < 3; ++replica) {
            if ((core.outstanding() & (1 << replica)) == 0) continue;
            EXPECT_NE(usable & (1 << replica), 0);
            for (const uint32_t length : lengths) {
              ReadCore next = core;
              next.OnAnswer(replica, length);
              explore(next, static_cast<Mask>(good | 1 << replica), depth + 1);
            }
            ReadCore next = core;
            next.OnError(replica);
            explore(next, good, depth + 1);
          }
          ReadCore hedged = core;
          if (hedged.OnHedge() != 0) explore(hedged, good, depth + 1);
        };
        ReadCore core;
        core.Start(kind, mode, 3, static_cast<Mask>(usable), kAll, 100);
        explore(core, 0, 0);
      }
    }
  }
  EXPECT_GT(cases, 1000);
}

TEST(MutationCoreTest, TwoOfThreeIsSuccessAndTheThirdMayComeOrNot) {
  MutationCore core;
  core.AddKey(3);
  core.OnResult(0, MutationResult::kApplied, true);
  EXPECT_FALSE(core.decided());
  core.OnResult(0, MutationResult::kNoChange, true);
  EXPECT_TRUE(core.decided());
  core.OnFailure(0);
  EXPECT_TRUE(core.decided());
  EXPECT_EQ(core.summary().failed, 0u);
}

// Spec Merge, planted "empty_votes".
TEST(MutationCoreTest, AcknowledgementsWithoutAVoteDoNotCount) {
  MutationCore core;
  core.AddKey(3);
  core.OnResult(0, MutationResult::kApplied, false);
  core.OnResult(0, MutationResult::kApplied, true);
  EXPECT_FALSE(core.decided());
  core.OnResult(0, MutationResult::kApplied, true);
  EXPECT_TRUE(core.decided());
  EXPECT_EQ(core.summary().failed, 0u);

  MutationCore two;
  two.AddKey(3);
  two.OnResult(0, MutationResult::kApplied, false);
  EXPECT_FALSE(two.decided());
  two.OnResult(0, MutationResult::kApplied, false);
  EXPECT_TRUE(two.decided()) << "one vote is left at most";
  EXPECT_EQ(two.summary().failed, 1u);
}

TEST(MutationCoreTest, FailsAsSoonAsTwoCanNotBeHad) {
  MutationCore core;
  core.AddKey(3);
  core.OnFailure(0);
  EXPECT_FALSE(core.decided());
  core.OnResult(0, MutationResult::kRefused, true);
  EXPECT_TRUE(core.decided());
  EXPECT_EQ(core.summary().failed, 1u);
  EXPECT_EQ(core.summary().refused, 1u);
}

TEST(MutationCoreTest, EveryKeyMustBeDecided) {
  MutationCore core;
  core.AddKey(3);
  core.AddKey(3);
  core.AddKey(2);
  core.AddKey(1);
  core.AddKey(0);
  for (uint32_t key : {0u, 0u, 2u, 2u, 3u}) core.OnResult(key, MutationResult::kApplied, true);
  EXPECT_FALSE(core.decided());
  core.OnResult(1, MutationResult::kMismatch, true);
  core.OnResult(1, MutationResult::kApplied, true);
  EXPECT_FALSE(core.decided());
  core.OnResult(1, MutationResult::kApplied, true);
  EXPECT_TRUE(core.decided());
  EXPECT_EQ(core.summary().failed, 1u) << "the key that nobody holds";
  EXPECT_EQ(core.summary().mismatched, 1u);
}

TEST(ReplicaHealthTest, BacksOffTwiceAsLongEachTimeUpToASecond) {
  ReplicaHealth health;
  MonotonicTime now = MonotonicTime::FromMicros(1000000);
  EXPECT_TRUE(health.Usable(now));
  Duration last;
  for (int i = 0; i < 40; ++i) {
    EXPECT_TRUE(health.OnFailure(now, now));
    EXPECT_FALSE(health.Usable(now));
    const Duration wait = health.retry_at() - now;
    EXPECT_GE(wait, last);
    EXPECT_LE(wait, ReplicaHealth::kBackoffMax);
    last = wait;
    now = health.retry_at();
    EXPECT_TRUE(health.Usable(now));
  }
  EXPECT_EQ(last, ReplicaHealth::kBackoffMax);
  health.OnSuccess();
  health.OnFailure(now, now);
  EXPECT_EQ(health.retry_at() - now, ReplicaHealth::kBackoffMin);
}

// Reads go out each millisecond; the server stalls, and each of them times out after 400 ms.
TEST(ReplicaHealthTest, AStallIsOneStepHoweverManyReadsItEnds) {
  ReplicaHealth health;
  const MonotonicTime stall = MonotonicTime::FromMicros(1'000'000);
  const Duration timeout = Duration::Millis(400);
  EXPECT_TRUE(health.OnFailure(stall + timeout, stall));
  const MonotonicTime retry_at = health.retry_at();
  EXPECT_EQ(retry_at - (stall + timeout), ReplicaHealth::kBackoffMin);
  for (int i = 1; i <= 400; ++i) {
    const MonotonicTime asked = stall + Duration::Millis(i);
    EXPECT_FALSE(health.OnFailure(asked + timeout, asked));
  }
  EXPECT_EQ(health.failures(), 1u);
  EXPECT_EQ(health.retry_at(), retry_at);
  // What was asked before it is no news after the recovery either.
  health.OnSuccess();
  EXPECT_FALSE(health.OnFailure(stall + timeout * 2, stall + timeout));
  EXPECT_TRUE(health.Usable(stall + timeout * 2));
}

TEST(ReplicaHealthTest, AfterARestOneAttemptFindsOutAndTheOthersGoOnWhenItSucceeded) {
  ReplicaHealth health;
  MonotonicTime now = MonotonicTime::FromMicros(1'000'000);
  EXPECT_TRUE(health.TryAsk(now));
  EXPECT_TRUE(health.TryAsk(now)) << "a healthy one is asked by everybody";
  health.OnFailure(now, now);
  EXPECT_FALSE(health.TryAsk(now));
  now = health.retry_at();
  EXPECT_TRUE(health.Usable(now));
  EXPECT_TRUE(health.TryAsk(now));
  EXPECT_FALSE(health.Usable(now));
  EXPECT_FALSE(health.TryAsk(now + Duration::Millis(300)));
  health.OnSuccess();
  EXPECT_TRUE(health.TryAsk(now));
  EXPECT_TRUE(health.TryAsk(now));

  health.OnFailure(now + Duration::Millis(1), now);
  now = health.retry_at();
  ASSERT_TRUE(health.TryAsk(now));
  EXPECT_TRUE(health.OnFailure(now + Duration::Millis(5), now)) << "the attempt was asked later";
  EXPECT_EQ(health.retry_at() - now, Duration::Millis(5) + ReplicaHealth::kBackoffMin * 2);
}

TEST(ReplicaHealthTest, AnAttemptThatNeverEndsOrWasNotMadeIsFollowedByAnother) {
  ReplicaHealth health;
  MonotonicTime now = MonotonicTime::FromMicros(1'000'000);
  health.OnFailure(now, now);
  now = health.retry_at();
  ASSERT_TRUE(health.TryAsk(now));
  EXPECT_FALSE(health.TryAsk(now + ReplicaHealth::kProbeMax - Duration::Micros(1)));
  now = now + ReplicaHealth::kProbeMax;
  ASSERT_TRUE(health.TryAsk(now));
  EXPECT_FALSE(health.TryAsk(now));
  health.OnNothing(MonotonicTime::FromMicros(1'000'000));
  EXPECT_FALSE(health.TryAsk(now)) << "that one was asked before the failure";
  health.OnNothing(now);
  EXPECT_TRUE(health.TryAsk(now));
}

TEST(DrainCoreTest, WaitsForTheCallsThatBeganEarlierAndForNoOthers) {
  const Scope scope;
  DrainCore core;
  std::string ran;
  const auto run = [&] {
    while (Callback<void()> done = core.TakeDue()) done();
    return ran;
  };
  core.Drain(scope.Bind([&] { ran += "a"; }));
  EXPECT_EQ(run(), "a") << "nothing is under way";
  const uint64_t first = core.Begin(), second = core.Begin();
  core.Drain(scope.Bind([&] { ran += "b"; }));
  const uint64_t third = core.Begin();
  core.Drain(scope.Bind([&] { ran += "c"; }));
  core.End(second);
  EXPECT_EQ(run(), "a");
  core.End(first);
  EXPECT_EQ(run(), "ab");
  core.End(third);
  EXPECT_EQ(run(), "abc");
}

TEST(HeartbeatCoreTest, AWordThatStandsStillIsADeadServer) {
  HeartbeatCore heart(Duration::Seconds(1));
  const MonotonicTime start = MonotonicTime::FromMicros(1000000);
  const auto at = [&](int64_t ms) { return start + Duration::Millis(ms); };
  EXPECT_TRUE(heart.Alive(start));
  heart.OnLook(start, 5);
  heart.OnLook(at(900), 5);
  EXPECT_TRUE(heart.Alive(at(900)));
  EXPECT_FALSE(heart.Alive(at(1000)));
  heart.OnLook(at(1100), 6);
  EXPECT_TRUE(heart.Alive(at(1200)));
  heart.Reset();
  EXPECT_TRUE(heart.Alive(at(9000)));
}

// A change says that the server lived after the look before, and no more.
TEST(HeartbeatCoreTest, AChangeCountsFromTheLookBefore) {
  HeartbeatCore heart(Duration::Seconds(1));
  const MonotonicTime start = MonotonicTime::FromMicros(1000000);
  const auto at = [&](int64_t ms) { return start + Duration::Millis(ms); };
  heart.OnLook(start, 5);
  for (const int64_t ms : {250, 500, 750, 1000, 1250}) heart.OnLook(at(ms), ms <= 500 ? 6 : 7);
  EXPECT_TRUE(heart.Alive(at(1499))) << "it lived after 500 ms";
  EXPECT_FALSE(heart.Alive(at(1500)));
}

TEST(HeartbeatCoreTest, AReaderThatSleptLooksAgainBeforeItTrustsAndBeforeItCondemns) {
  const MonotonicTime start = MonotonicTime::FromMicros(1000000);
  const auto at = [&](int64_t ms) { return start + Duration::Millis(ms); };
  HeartbeatCore dead(Duration::Seconds(1)), alive(Duration::Seconds(1));
  for (HeartbeatCore* heart : {&dead, &alive}) {
    heart->OnLook(start, 5);
    heart->OnLook(at(60000), 6);
    EXPECT_TRUE(heart->Alive(at(60000))) << "it may have died a minute ago, or live";
  }
  for (const int64_t ms : {60250, 60500}) {
    dead.OnLook(at(ms), 6);
    alive.OnLook(at(ms), 7);
  }
  EXPECT_FALSE(dead.Alive(at(60500)));
  EXPECT_TRUE(alive.Alive(at(60500)));
}

}  // namespace
}  // namespace tailcast::cache
