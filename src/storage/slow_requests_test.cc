#include <gtest/gtest.h>

#include "tailcast/storage/slow_requests_core.h"

namespace tailcast::storage {
namespace {

class SlowRequestsTest : public ::testing::Test {
 protected:
  using Effects = SlowRequestsCore::Effects;
  static MonotonicTime At(double seconds) {
    return MonotonicTime() + Duration::Micros(static_cast<int64_t>(seconds * 1e6));
  }
  void Send(double now, uint64_t request, double deadline) {
    core_.OnSent(At(now), request, At(deadline), "request " + std::to_string(request));
  }
  Effects Time(double now) {
    Effects out;
    core_.OnTime(At(now), out);
    return out;
  }
  Effects Answer(double now, uint64_t request, bool waited = true) {
    Effects out;
    EXPECT_EQ(core_.OnAnswered(At(now), request, out), waited);
    return out;
  }
  Effects Cause(double now, const char* cause) {
    Effects out;
    core_.OnCause(At(now), cause, out);
    return out;
  }
  SlowRequestsCore core_{"pool p",
                         {.slow_after = Duration::Seconds(2), .look_every = Duration::Seconds(3)}};
};

TEST_F(SlowRequestsTest, WhatIsAnsweredInTimeIsNotSpokenOf) {
  EXPECT_FALSE(core_.next().has_value());
  Send(0, 1, 30);
  EXPECT_EQ(core_.next(), At(2));
  const Effects at = Time(1.9);
  EXPECT_TRUE(at.warn.empty());
  EXPECT_FALSE(at.look);
  EXPECT_TRUE(Answer(1.95, 1).inform.empty());
  EXPECT_FALSE(core_.next().has_value());
  EXPECT_EQ(core_.waiting(), 0u);
}

TEST_F(SlowRequestsTest, AStallIsSaidOnceAndItsEndIsSaidOnce) {
  Send(0, 1, 30);
  Send(1, 2, 31);
  const Effects slow = Time(2);
  EXPECT_EQ(slow.warn,
            "pool p has not answered for 2.0 s: 2 requests under way, the oldest: request 1; who "
            "asked is told after 30.0 s that the result is not known");
  EXPECT_TRUE(Time(2.5).warn.empty());
  EXPECT_TRUE(Time(4).warn.empty()) << "request 2 is slow now: it is the same stall";
  EXPECT_TRUE(Answer(5, 1).inform.empty()) << "request 2 is still slow";
  EXPECT_TRUE(core_.stalled());
  EXPECT_EQ(Answer(5.5, 2).inform, "pool p answers again, after 5.5 s; nothing was given up");
  EXPECT_FALSE(core_.stalled());
  Send(6, 3, 36);
  EXPECT_TRUE(Answer(6.1, 3).inform.empty());
  Send(10, 4, 40);
  EXPECT_FALSE(Time(12).warn.empty()) << "the next stall is said again";
}

TEST_F(SlowRequestsTest, EachIsGivenUpAtItsOwnDeadlineOnce) {
  Send(0, 1, 30);
  Send(0, 2, 10);
  Send(0, 3, 10);
  EXPECT_TRUE(Time(9.9).given_up.empty());
  EXPECT_EQ(core_.next(), At(10));
  EXPECT_EQ(Time(10).given_up, (std::vector<uint64_t>{2, 3}));
  EXPECT_TRUE(Time(10.1).given_up.empty());
  EXPECT_EQ(Time(30).given_up, std::vector<uint64_t>{1});
  EXPECT_FALSE(core_.next().has_value()) << "nothing waits";
}

TEST_F(SlowRequestsTest, GivingUpDoesNotEndTheStallButALateAnswerDoes) {
  Send(0, 1, 5);
  Time(2);
  EXPECT_EQ(Time(5).given_up, std::vector<uint64_t>{1});
  EXPECT_TRUE(core_.stalled());
  Send(6, 2, 11);
  EXPECT_TRUE(core_.OnSilence(2));
  EXPECT_TRUE(core_.stalled()) << "silence is no answer";
  const Effects late = Answer(12, 1, /*waited=*/false);
  EXPECT_EQ(late.inform, "pool p answers again, after 12.0 s; 2 requests had no answer in time");
  EXPECT_FALSE(core_.stalled());
}

TEST_F(SlowRequestsTest, AnAnswerToANewerOneEndsNoStallWhileAnOlderWaits) {
  Send(0, 1, 30);
  Time(2);
  Send(3, 2, 33);
  EXPECT_TRUE(Answer(3.1, 2).inform.empty()) << "one placement group may be stuck";
  EXPECT_EQ(Time(30).given_up, std::vector<uint64_t>{1});
  Send(31, 3, 61);
  EXPECT_EQ(Answer(31.1, 3).inform,
            "pool p answers again, after 31.1 s; 1 request had no answer in time");
}

TEST_F(SlowRequestsTest, WhileItIsStalledTheCauseIsLookedForAgainAndAgain) {
  Send(0, 1, 30);
  EXPECT_FALSE(Time(1).look);
  EXPECT_TRUE(Time(2).look);
  EXPECT_EQ(core_.next(), At(5));
  EXPECT_FALSE(Time(4.9).look);
  EXPECT_TRUE(Time(5).look);
}

TEST_F(SlowRequestsTest, ACauseIsSaidWhenItIsFoundAndWhenItIsAnother) {
  EXPECT_TRUE(Cause(0, "no monitor").warn.empty()) << "a look that came too late";
  Send(0, 1, 30);
  Time(2);
  EXPECT_TRUE(Cause(2.1, "").warn.empty());
  EXPECT_EQ(Cause(5, "no monitor").warn, "pool p does not answer: no monitor");
  EXPECT_EQ(core_.cause(), "no monitor");
  EXPECT_TRUE(Cause(8, "no monitor").warn.empty());
  EXPECT_EQ(Cause(11, "no key").warn, "pool p does not answer: no key");
  Answer(12, 1);
  EXPECT_EQ(core_.cause(), "");
}

TEST_F(SlowRequestsTest, AConnectionThatAnswersOthersIsNotReplaced) {
  Send(0, 1, 100);
  Time(2);
  Send(20, 2, 120);
  Answer(20.1, 2);
  EXPECT_TRUE(core_.stalled()) << "request 1 waits for a placement group";
  EXPECT_FALSE(Cause(35, "").replace);
  EXPECT_TRUE(Cause(51, "").replace);
}

TEST_F(SlowRequestsTest, AConnectionIsReplacedWhenANewOneComesAboutAgainOrItIsSilentForLong) {
  EXPECT_FALSE(Cause(0, "").replace) << "nothing is slow";
  Send(0, 1, 100);
  Time(2);
  EXPECT_FALSE(Cause(2.1, "").replace) << "one OSD may be dead";
  EXPECT_FALSE(Cause(5, "no key").replace);
  EXPECT_TRUE(Cause(8, "").replace) << "the key is back";
  EXPECT_EQ(core_.cause(), "");
  EXPECT_FALSE(Cause(11, "").replace) << "the new one gets time";
  EXPECT_FALSE(Cause(37, "").replace);
  EXPECT_TRUE(Cause(38, "").replace);
  EXPECT_FALSE(Cause(41, "").replace);
}

TEST_F(SlowRequestsTest, ADeadlineBeforeItIsSlowIsKept) {
  Send(0, 1, 0.5);
  EXPECT_EQ(core_.next(), At(0.5));
  const Effects out = Time(0.5);
  EXPECT_EQ(out.given_up, std::vector<uint64_t>{1});
  EXPECT_TRUE(out.warn.empty());
}

}  // namespace
}  // namespace tailcast::storage
