#include "tailcast/stream/pace_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tailcast/base/rng.h"

namespace tailcast::stream {
namespace {

// Steps of an interval, in each 100 ms of which the thread ran and waited and the machine was idle
// for so long.
class PaceCoreTest : public ::testing::Test {
 protected:
  explicit PaceCoreTest(PaceOptions options = {}) : pace_(options) {
    Step(1000, 5000, 700);  // before it was looked at: says nothing
  }
  Duration Step(int64_t ran_ms, int64_t waited_ms, int64_t idle_ms) {
    const Duration interval = pace_.interval();
    const auto in_all = [&](int64_t ms) {
      return Duration::Micros(ms * 1000 * interval.micros() / PaceCore::kInterval.micros());
    };
    times_.ran = times_.ran + in_all(ran_ms);
    times_.waited = times_.waited + in_all(waited_ms);
    times_.idle = times_.idle + in_all(idle_ms);
    at_ = at_ + interval;
    EXPECT_TRUE(pace_.Due(at_));
    pace_.OnTimes(at_, times_);
    EXPECT_FALSE(pace_.Due(at_ + pace_.interval() - Duration::Millis(1)));
    return pace_.pause();
  }
  // The machine is full for as long as it takes to be answered.
  Duration Fill() {
    for (int64_t i = 0; i < PaceCore::kAgree; ++i) Step(5, 6, 0);
    return pace_.pause();
  }
  // So much busier than it should be with the pause as it is.
  Duration StepBusier(int64_t percent) {
    return Step(5, 20, 100 - (pace_.AimPerMille(pace_.pause()) + 5) / 10 - percent);
  }
  // And then as busy as it should be.
  Duration FillAndSettle() {
    Fill();
    for (int64_t i = 0; i < PaceCore::kAgree; ++i) StepBusier(0);
    return pace_.pause();
  }
  PaceCore pace_;
  ThreadTimes times_;
  MonotonicTime at_ = MonotonicTime::FromMicros(1);
};

// Whose thread runs before others.
class FirstPaceCoreTest : public PaceCoreTest {
 protected:
  FirstPaceCoreTest() : PaceCoreTest({.runs_before_others = true}) {}
};

TEST_F(PaceCoreTest, LooksOnceInTwoLongPauses) {
  EXPECT_EQ(pace_.interval(), Duration::Millis(100));
  for (int i = 0; i < 40; ++i) Fill();
  EXPECT_EQ(pace_.pause(), Duration::Millis(200));
  EXPECT_EQ(pace_.interval(), Duration::Millis(400));
}

TEST_F(PaceCoreTest, WaitsForNothingWhileItsThreadRunsWhenItWantsTo) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Step(40, 10, 0), Duration()) << "others fill the machine";
}

TEST_F(FirstPaceCoreTest, LooksAtTheMachineAlone) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Step(40, 0, 50), Duration());
  EXPECT_GE(Fill(), PaceCore::kPauseMin);
  const Duration full = pace_.pause();
  for (int i = 0; i < 10; ++i) Step(40, 0, 0);
  EXPECT_GT(pace_.pause(), full) << "though it waits for nobody";
}

TEST_F(PaceCoreTest, WaitsForNothingWhileTheMachineHasTimeLeft) {
  // Many are woken at a time and queue up, and then there is nothing to do.
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Step(2, 30, 50), Duration());
}

TEST_F(PaceCoreTest, WaitsLongerWhileTheMachineIsFullAndComesBack) {
  Duration before = Fill();
  EXPECT_GE(before, PaceCore::kPauseMin);
  for (int i = 0; i < 60; ++i) {
    EXPECT_GE(Step(5, 20, 5), before);
    before = pace_.pause();
  }
  EXPECT_EQ(before, PaceOptions().pause_max);
  EXPECT_GE(Step(5, 20, 35), before * 9 / 10) << "once";
  for (int64_t i = 0; i < PaceCore::kAgree; ++i) Step(5, 20, 38);
  EXPECT_LT(pace_.pause(), before);
  before = pace_.pause();
  for (int i = 0; i < 30; ++i) {
    EXPECT_LE(Step(0, 40, 60), before);
    before = pace_.pause();
  }
  EXPECT_EQ(before, Duration());
}

// 256 consumers that begin at a time need 160 ms each: 65 % of which is too much for two
// processors.
TEST_F(PaceCoreTest, ACrowdThatBeginsFindsItsPauseInAboutASecond) {
  EXPECT_EQ(Step(1, 60, 0), Duration()) << "once";
  const auto busy_ms = [&] {
    return std::min<int64_t>(100, 14'400 / std::max<int64_t>(pace_.pause().millis(), 1));
  };
  for (int i = 0; i < 10; ++i) Step(1, 60, 100 - busy_ms());
  EXPECT_GE(pace_.pause(), Duration::Millis(128));
  for (int i = 0; i < 100; ++i) Step(1, 60, 100 - busy_ms());
  EXPECT_NEAR(static_cast<double>(pace_.pause().millis()), 160, 16);
  // From then on what is over soon is answered as ever.
  const Duration before = pace_.pause();
  for (int i = 0; i < 3; ++i) Step(1, 60, 0);
  EXPECT_LT(pace_.pause(), before * 6 / 5);
}

TEST_F(PaceCoreTest, WhoIsInNoCrowdBeginsSlowly) {
  for (int i = 0; i < 10; ++i) Step(5, 10, 0);
  EXPECT_LT(pace_.pause(), Duration::Millis(8));
}

// A machine at 85 %, however long anybody waits: waiting longer would cost delay, and nobody falls
// behind.
TEST_F(PaceCoreTest, IsLongOnlyWhileTheMachineIsFullForAllThat) {
  for (int i = 0; i < 200; ++i) Step(5, 20, 15);
  EXPECT_LE(pace_.pause(), Duration::Millis(50));
  EXPECT_GT(pace_.pause(), Duration::Millis(15));
  for (int i = 0; i < 100; ++i) Step(5, 20, 0);
  EXPECT_EQ(pace_.pause(), PaceOptions().pause_max);
  for (int i = 0; i < 200; ++i) Step(5, 20, 15);
  EXPECT_LE(pace_.pause(), Duration::Millis(50)) << "it comes back";
}

TEST_F(PaceCoreTest, TheAimGrowsWithTheLogarithmOfThePause) {
  const auto aim = [&](int64_t us) { return pace_.AimPerMille(Duration::Micros(us)); };
  EXPECT_EQ(aim(0), 700);
  EXPECT_EQ(aim(500), 700);
  EXPECT_EQ(aim(200'000), 940);
  for (int64_t us = 1000; us <= 128'000; us *= 2) EXPECT_NEAR(aim(us) - aim(us / 2), 28, 1) << us;
  for (int64_t us = 500; us < 200'000; us += 500) EXPECT_LE(aim(us), aim(us + 500)) << us;
}

// A process ends, another one starts: each fills the machine for some tenths of a second. Pauses
// that are twice as long would have come too late, and cost delay afterwards.
TEST_F(PaceCoreTest, AnswersLittleToWhatIsOverSoon) {
  const Duration before = FillAndSettle();
  for (int round = 0; round < 5; ++round) {
    for (int64_t i = 0; i < PaceCore::kAgree - 1; ++i) Step(5, 20, 0);
    for (int64_t i = 0; i < PaceCore::kAgree; ++i) EXPECT_LT(StepBusier(0), before * 2);
    EXPECT_GT(pace_.pause(), before) << "with which it is less busy";
    for (int i = 0; i < 50 && pace_.pause() > before; ++i) StepBusier(-3);
    EXPECT_LE(pace_.pause(), before) << "and so they become shorter";
    EXPECT_GE(pace_.pause(), before * 19 / 20);
  }
}

TEST_F(PaceCoreTest, FollowsTheMeanOfIntervalsThatDisagree) {
  const Duration before = FillAndSettle();
  for (int i = 0; i < 50; ++i) {
    const Duration pause = StepBusier(i % 2 == 0 ? 7 : -7);
    EXPECT_GE(pause, before * 19 / 20) << i;
    EXPECT_LE(pause, before * 21 / 20) << i;
  }
  for (int i = 0; i < 100; ++i) Step(5, 20, i % 2 == 0 ? 36 : 52);
  EXPECT_LT(pace_.pause(), before / 2);
}

// Many alike whose work takes `work` of the machine's time for each pause: they find the pause at
// which it is as busy as it should be, and stay there.
TEST_F(PaceCoreTest, FindsThePauseThatKeepsTheMachineAsBusyAsItShouldBe) {
  constexpr int64_t kWorkUs = 2600;  // of two processors' mean, for each round of all of them
  for (int i = 0; i < 200; ++i) {
    const int64_t busy_ms =
        std::min<int64_t>(100, 100 * kWorkUs / std::max<int64_t>(pace_.pause().micros(), 1));
    Step(5, 20, 100 - busy_ms);
  }
  EXPECT_NEAR(static_cast<double>(pace_.AimPerMille(pace_.pause()) * pace_.pause().micros()),
              kWorkUs * 1000, 100'000);
}

// A producer that flushes more often than pauses are long.
TEST(PaceCores, WithoutRoomForAPauseThereIsNone) {
  for (const Duration most : {Duration(), Duration::Micros(100)}) {
    PaceCore pace({.pause_max = most});
    ThreadTimes times;
    MonotonicTime at = MonotonicTime::FromMicros(1);
    for (int i = 0; i < 20; ++i) {
      times.ran = times.ran + Duration::Millis(1);
      times.waited = times.waited + Duration::Millis(60);
      pace.OnTimes(at = at + PaceCore::kInterval, times);
      EXPECT_EQ(pace.pause(), Duration());
    }
  }
}

// How many times as long as the shortest pause of 64 that share a machine the longest is, after
// fifteen seconds. Half of them had been there before, and had waited longer and longer.
double SpreadOfSixtyFour(PaceOptions options) {
  constexpr int kParties = 64;
  constexpr int64_t kWorkUs =
      160;  // of two processors' mean, for each time that one of them goes on
  std::vector<PaceCore> parties(kParties, PaceCore(options));
  std::vector<ThreadTimes> times(kParties);
  MonotonicTime now = MonotonicTime::FromMicros(1);
  const auto step = [&](size_t party, int64_t busy_ms) {
    ThreadTimes& t = times[party];
    t.ran = t.ran + Duration::Millis(2);
    t.waited = t.waited + Duration::Millis(20);
    t.idle = t.idle + Duration::Millis(100 - busy_ms);
    parties[party].OnTimes(now, t);
  };
  const auto spread = [&] {
    const auto [least, most] =
        std::minmax_element(parties.begin(), parties.end(),
                            [](const auto& a, const auto& b) { return a.pause() < b.pause(); });
    return static_cast<double>(most->pause().micros()) /
           static_cast<double>(least->pause().micros());
  };
  for (int i = 0; i < 12; ++i) {
    now = now + PaceCore::kInterval;
    for (size_t party = 0; party < kParties; ++party) {
      step(party, party % 2 == 0 || i < 8 ? 100 : 75);
    }
  }
  EXPECT_GT(spread(), 2);
  Rng rng(1);
  for (int i = 0; i < 150; ++i) {
    now = now + PaceCore::kInterval;
    double us = 20'000;  // of others
    for (const PaceCore& party : parties) {
      us += 100'000.0 * kWorkUs / static_cast<double>(party.pause().micros() + 1000);
    }
    const int64_t busy =
        std::clamp<int64_t>(static_cast<int64_t>(us / 1000) + rng.Between(-8, 8), 0, 100);
    for (size_t party = 0; party < kParties; ++party) step(party, busy);
  }
  EXPECT_GT(parties[0].pause(), Duration::Millis(5));
  return spread();
}

TEST(PaceCores, ThatShareAMachineComeToTheSamePause) {
  EXPECT_LT(SpreadOfSixtyFour({}), 1.5);
  EXPECT_GT(SpreadOfSixtyFour({.percent_shortest = 75, .percent_longest = 75}), 2)
      << "one aim for all: who waits longer than others does so for good";
}

}  // namespace
}  // namespace tailcast::stream
