#include "tailcast/scheduler/worker_speed.h"

#include <map>

#include "gtest/gtest.h"
#include "tailcast/scheduler/slow_part.h"

namespace tailcast::scheduler {
namespace {

using stream::Layer;
using State = WorkerSpeed::State;

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

class WorkerSpeedTest : public ::testing::Test {
 protected:
  // Windows of a second, in which each worker takes so long, in milliseconds; 0: it has nothing to
  // do.
  void Run(int windows, const std::map<std::string, int>& took_ms, Layer layer = Layer::kPrimary) {
    std::set<std::string> there;
    for (const auto& [name, ms] : took_ms) there.insert(name);
    for (int w = 0; w < windows; ++w) {
      for (const auto& [name, ms] : took_ms) {
        if (ms == 0) continue;
        for (int i = 0; i < 2; ++i) speed_.OnTime(now_, name, layer, Duration::Millis(ms));
      }
      now_ = now_ + WorkerSpeed::kWindow;
      speed_.OnWindow(now_, there);
    }
  }
  State Of(const std::string& name) const { return speed_.state(now_, name); }
  // Runs until it is slow; how many windows that took.
  int UntilSlow(const std::string& name, const std::map<std::string, int>& took_ms) {
    for (int windows = 1; windows < 100; ++windows) {
      Run(1, took_ms);
      if (Of(name) == State::kSlow) return windows;
    }
    return 0;
  }
  int64_t AvoidedSeconds(const std::string& name) const {
    for (const WorkerSpeed::Slow& slow : speed_.NotHealthy(now_)) {
      if (slow.worker == name) return slow.remaining.millis() / 1000;
    }
    return 0;
  }

  const SpeedOptions options_;
  WorkerSpeed speed_{options_};
  MonotonicTime now_ = At(0);
};

TEST_F(WorkerSpeedTest, WhoTakesMuchLongerThanItsPeersForThreeWindowsIsSlow) {
  EXPECT_EQ(UntilSlow("b", {{"a", 2}, {"b", 301}, {"c", 3}}), 3);
  EXPECT_EQ(Of("a"), State::kHealthy);
  const auto slow = speed_.NotHealthy(now_);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].took.millis(), 301);
  EXPECT_EQ(slow[0].peers.millis(), 2);
  EXPECT_EQ(slow[0].remaining.millis(), 30'000);
}

TEST_F(WorkerSpeedTest, WhoIsBesideOnlyOnePeerIsComparedWithThatOne) {
  EXPECT_EQ(UntilSlow("b", {{"a", 2}, {"b", 301}}), 3);
}

TEST_F(WorkerSpeedTest, IfAllAreEquallySlowNobodyIs) {
  Run(20, {{"a", 900}, {"b", 1000}, {"c", 1100}});
  EXPECT_TRUE(speed_.NotHealthy(now_).empty());
}

TEST_F(WorkerSpeedTest, OneAloneIsNotJudged) {
  Run(20, {{"a", 3000}});
  Run(20, {{"a", 3000}, {"b", 0}});
  EXPECT_TRUE(speed_.NotHealthy(now_).empty());
}

TEST_F(WorkerSpeedTest, LessThanTheBoundOrTwiceIsNotSlow) {
  Run(20, {{"a", 1}, {"b", 200}});
  Run(20, {{"a", 250}, {"b", 690}});  // a link of a quarter of a second
  EXPECT_TRUE(speed_.NotHealthy(now_).empty());
  EXPECT_EQ(UntilSlow("b", {{"a", 250}, {"b", 710}}), 3);
}

TEST_F(WorkerSpeedTest, AHiccupIsForgiven) {
  for (int i = 0; i < 10; ++i) {
    Run(2, {{"a", 1}, {"b", 900}});
    Run(1, {{"a", 1}, {"b", 5}});
  }
  EXPECT_TRUE(speed_.NotHealthy(now_).empty());
}

TEST_F(WorkerSpeedTest, TheLayersAreComparedEachForItself) {
  Run(3, {{"a", 1}, {"b", 0}});
  Run(3, {{"a", 0}, {"b", 900}}, Layer::kCache);
  EXPECT_EQ(Of("b"), State::kHealthy);
}

TEST_F(WorkerSpeedTest, HalfOfThemGoOnAndTheSlowestAreAvoidedFirst) {
  Run(3, {{"a", 1}, {"b", 500}, {"c", 900}});
  EXPECT_EQ(Of("c"), State::kSlow);
  EXPECT_EQ(Of("b"), State::kHealthy);
  Run(10, {{"a", 1}, {"b", 500}, {"c", 0}});
  EXPECT_EQ(Of("b"), State::kHealthy) << "of three one";
  Run(3, {{"a", 1}, {"b", 500}, {"c", 0}, {"d", 1}});
  EXPECT_EQ(Of("b"), State::kSlow) << "of four two";
}

TEST_F(WorkerSpeedTest, WhoIsHealthyAgainIsOnTrialAndThenAsAllOthers) {
  Run(3, {{"a", 1}, {"b", 500}});
  Run(29, {{"a", 1}, {"b", 0}});
  EXPECT_EQ(Of("b"), State::kSlow);
  Run(1, {{"a", 1}, {"b", 0}});
  EXPECT_EQ(Of("b"), State::kOnTrial);
  Run(2, {{"a", 1}, {"b", 2}});
  EXPECT_EQ(Of("b"), State::kOnTrial);
  Run(1, {{"a", 1}, {"b", 2}});
  EXPECT_EQ(Of("b"), State::kHealthy);
}

TEST_F(WorkerSpeedTest, WhoGetsNothingToDoIsOnTrialForAsLongAsItWasAvoided) {
  Run(3, {{"a", 1}, {"b", 500}});
  Run(59, {{"a", 1}, {"b", 0}});
  EXPECT_EQ(Of("b"), State::kOnTrial);
  Run(1, {{"a", 1}, {"b", 0}});
  EXPECT_EQ(Of("b"), State::kHealthy);
}

TEST_F(WorkerSpeedTest, WhoIsFoundSlowAgainIsAvoidedForLongerUpToAQuarterOfAnHour) {
  for (const int64_t seconds : {30, 60, 120, 240, 480, 900, 900}) {
    EXPECT_EQ(UntilSlow("b", {{"a", 1}, {"b", 500}}), 3);
    EXPECT_EQ(AvoidedSeconds("b"), seconds);
    Run(static_cast<int>(seconds), {{"a", 1}, {"b", 0}});
    EXPECT_EQ(Of("b"), State::kOnTrial);
  }
  Run(10'000, {{"a", 1}, {"b", 1}});
  EXPECT_EQ(UntilSlow("b", {{"a", 1}, {"b", 500}}), 3);
  EXPECT_EQ(AvoidedSeconds("b"), 30) << "that was long ago";
}

TEST_F(WorkerSpeedTest, AnotherProcessOfTheNameIsNotBlamed) {
  Run(3, {{"a", 1}, {"b", 500}});
  speed_.Forget("b");
  EXPECT_EQ(Of("b"), State::kHealthy);
}

TEST(SlowPart, WhatIsAsSlowElsewhereSaysNothingOfAnybody) {
  SlowPart part;
  const auto judged = [&](int64_t at_ms, int64_t took_ms) {
    return part.OnTime(At(at_ms), Duration::Millis(took_ms), Duration::Millis(200));
  };
  EXPECT_TRUE(judged(0, 800));
  part.OnMoved(At(1000));
  EXPECT_FALSE(judged(3900, 800)) << "what waited";
  EXPECT_FALSE(judged(4100, 500));
  EXPECT_FALSE(judged(603'000, 800));
  EXPECT_TRUE(judged(604'200, 800));
}

TEST(SlowPart, WhatIsFastElsewhereIsJudgedOn) {
  SlowPart part;
  EXPECT_TRUE(part.OnTime(At(0), Duration::Millis(800), Duration::Millis(200)));
  part.OnMoved(At(1000));
  EXPECT_TRUE(part.OnTime(At(4100), Duration::Millis(300), Duration::Millis(200)));
  EXPECT_TRUE(part.OnTime(At(4200), Duration::Millis(900), Duration::Millis(200)));
}

}  // namespace
}  // namespace tailcast::scheduler
