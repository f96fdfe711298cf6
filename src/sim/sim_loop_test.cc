#include "tailcast/sim/sim_loop.h"

#include <gtest/gtest.h>

#include <vector>

#include "tailcast/base/scope.h"

namespace tailcast::sim {
namespace {

TEST(SimLoop, RunsEventsInOrderOfTimeThenInsertion) {
  const Scope scope;
  VirtualTime time(1);
  auto loop = time.MakeLoop("a");
  std::vector<int> order;
  loop->After(Duration::Millis(2), scope.Bind([&] { order.push_back(3); }));
  loop->After(Duration::Millis(1), scope.Bind([&] { order.push_back(1); }));
  loop->After(Duration::Millis(1), scope.Bind([&] { order.push_back(2); }));
  loop->Post(scope.Bind([&] { order.push_back(0); }));
  time.RunFor(Duration::Millis(2));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(SimLoop, ForgetsCancelledTimers) {
  const Scope scope;
  VirtualTime time(1);
  auto loop = time.MakeLoop("a");
  bool ran = false;
  const TimerId id = loop->After(Duration::Millis(1), scope.Bind([&] { ran = true; }));
  loop->Cancel(id);
  loop->Cancel(id);
  time.RunFor(Duration::Seconds(1));
  EXPECT_FALSE(ran);
}

TEST(SimLoop, ClocksThatDriftGainOrLoseAndTimersFollowThem) {
  const Scope scope;
  for (const int64_t drift : {-5000, -1, 3, 5000}) {
    SCOPED_TRACE(drift);
    VirtualTime time(1);
    time.RunFor(Duration::Seconds(7));
    auto loop = time.MakeLoop("a");
    loop->SetDrift(drift);
    const MonotonicTime begin = loop->Now();
    const WallTime wall = loop->WallNow();
    EXPECT_EQ((begin - time.now()).micros(), 7 * drift);
    int ran = 0;
    for (const int64_t us : {1, 2, 999, 100'003, 9'999'999}) {
      loop->After(Duration::Micros(us), scope.Bind([&, due = begin + Duration::Micros(us)] {
        ++ran;
        EXPECT_GE(loop->Now(), due);
        EXPECT_LE((loop->Now() - due).micros(), 4);
      }));
    }
    loop->After(Duration::Infinite(), scope.Bind([&] { ran = -1; }));
    time.RunFor(Duration::Seconds(100));
    EXPECT_EQ(ran, 5);
    EXPECT_NEAR(static_cast<double>((loop->Now() - begin).micros()),
                100.0 * static_cast<double>(1'000'000 + drift), 1.0);
    EXPECT_EQ(loop->WallNow() - wall, loop->Now() - begin);
  }
}

TEST(SimLoop, DropsEverythingWhenKilled) {
  const Scope scope;
  VirtualTime time(1);
  auto loop = time.MakeLoop("a");
  int ran = 0;
  loop->After(Duration::Millis(1), scope.Bind([&] { ++ran; }));
  loop->Kill();
  loop->Post(scope.Bind([&] { ++ran; }));
  time.RunFor(Duration::Seconds(1));
  EXPECT_EQ(ran, 0);
}

TEST(SimLoop, HoldsEventsWhilePausedAndRunsThemAfter) {
  const Scope scope;
  VirtualTime time(1);
  auto loop = time.MakeLoop("a");
  std::vector<int> order;
  loop->After(Duration::Millis(1), scope.Bind([&] { order.push_back(1); }));
  loop->After(Duration::Millis(2), scope.Bind([&] { order.push_back(2); }));
  loop->Pause();
  time.RunFor(Duration::Seconds(1));
  EXPECT_TRUE(order.empty());
  loop->Resume();
  time.RunFor(Duration::Seconds(1));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(SimLoop, ATimerThatCameDueWhilePausedCanStillBeCancelled) {
  const Scope scope;
  VirtualTime time(1);
  auto loop = time.MakeLoop("a");
  std::vector<int> order;
  const TimerId cancelled_when_paused =
      loop->After(Duration::Millis(1), scope.Bind([&] { order.push_back(1); }));
  TimerId cancelled_by_another = 0;
  loop->After(Duration::Millis(2), scope.Bind([&] {
    order.push_back(2);
    loop->Cancel(cancelled_by_another);
  }));
  cancelled_by_another = loop->After(Duration::Millis(3), scope.Bind([&] { order.push_back(3); }));
  loop->Pause();
  time.RunFor(Duration::Seconds(1));
  loop->Cancel(cancelled_when_paused);
  loop->Resume();
  time.RunFor(Duration::Seconds(1));
  EXPECT_EQ(order, std::vector<int>{2});
}

TEST(SimLoop, GivesTheSameTraceHashForTheSameSeedOnly) {
  const Scope scope;
  const auto run = [&scope](uint64_t seed) {
    VirtualTime time(seed);
    auto a = time.MakeLoop("a");
    auto b = time.MakeLoop("b");
    for (int i = 0; i < 100; ++i) {
      SimLoop& loop = time.rng().Chance(0.5) ? *a : *b;
      loop.After(Duration::Micros(time.rng().Between(0, 1000)), scope.Bind([] {}));
    }
    time.RunFor(Duration::Seconds(1));
    return time.trace_hash();
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
}

}  // namespace
}  // namespace tailcast::sim
