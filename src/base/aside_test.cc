#include "tailcast/base/aside.h"

#include <mutex>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"

namespace tailcast {
namespace {

constexpr Duration kLong = Duration::Seconds(20);

TEST(AsideTest, WorkRunsOnAnotherThreadInOrderAndIsDoneOnTheLoop) {
  ThreadLoop loop;
  Aside aside(loop);
  const Scope scope;
  std::vector<int> worked, done;
  std::thread::id worker, finisher;
  for (int i = 0; i < 5; ++i) {
    aside.Run(
        [&, i] {
          worked.push_back(i);
          worker = std::this_thread::get_id();
        },
        scope.Bind([&, i] {
          done.push_back(i);
          finisher = std::this_thread::get_id();
        }));
  }
  ASSERT_TRUE(loop.RunUntil([&] { return done.size() == 5; }, loop.Now() + kLong));
  EXPECT_EQ(worked, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(done, worked);
  EXPECT_NE(worker, std::this_thread::get_id());
  EXPECT_EQ(finisher, std::this_thread::get_id());
}

TEST(AsideTest, WhatWaitsIsBoundedAndTheRestIsToldAtOnce) {
  ThreadLoop loop;
  Aside aside(loop);
  const Scope scope;
  constexpr int kJobs = static_cast<int>(Aside::kWaitingMax) * 2;
  std::mutex busy;
  int ran = 0, done = 0;
  {
    const std::lock_guard hold(busy);
    for (int i = 0; i < kJobs; ++i) {
      aside.Run(
          [&] {
            const std::lock_guard lock(busy);
            ++ran;
          },
          scope.Bind([&] { ++done; }));
    }
    // At most one had begun.
    constexpr int kRefused = kJobs - static_cast<int>(Aside::kWaitingMax) - 1;
    ASSERT_TRUE(loop.RunUntil([&] { return done >= kRefused; }, loop.Now() + kLong));
    EXPECT_LE(done, kRefused + 1);
    EXPECT_EQ(ran, 0);
  }
  ASSERT_TRUE(loop.RunUntil([&] { return done == kJobs; }, loop.Now() + kLong));
  EXPECT_GE(ran, static_cast<int>(Aside::kWaitingMax));
  EXPECT_LE(ran, static_cast<int>(Aside::kWaitingMax) + 1);
}

TEST(AsideTest, ItEndsWithoutWhatHasNotBegun) {
  ThreadLoop loop;
  const Scope scope;
  int ran = 0;
  {
    Aside aside(loop);
    for (int i = 0; i < 60; ++i) {
      aside.Run([&] { ++ran; }, scope.Bind([] {}));
    }
  }
  const int at_the_end = ran;
  loop.RunFor(Duration::Millis(1));
  EXPECT_EQ(ran, at_the_end);
}

}  // namespace
}  // namespace tailcast
