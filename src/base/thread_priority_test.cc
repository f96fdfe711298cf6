#include "tailcast/base/thread_priority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <thread>

namespace tailcast {
namespace {

int Own() { return getpriority(PRIO_PROCESS, 0); }

// On a thread of its own, whose priority ends with it.
int OnThread(const std::function<void()>& first) {
  int priority = 0;
  std::thread([&] {
    first();
    priority = Own();
  }).join();
  return priority;
}

TEST(RunBeforeOthers, DoesWhatTheProcessMay) {
  if (Own() != 0) GTEST_SKIP() << "these tests were given a priority";
  const int may = OnThread([] { (void)setpriority(PRIO_PROCESS, 0, -10); });
  EXPECT_EQ(OnThread([&] { EXPECT_EQ(RunBeforeOthers(), may < 0); }), may);
  EXPECT_EQ(Own(), 0) << "this thread asked for nothing";
}

TEST(RunBeforeOthers, ThreadsThatItBeginsDoToo) {
  int begun = 0;
  const int own = OnThread([&] {
    RunBeforeOthers();
    begun = OnThread([] {});
  });
  EXPECT_EQ(begun, own);
}

TEST(RunBeforeOthers, IsTakenBack) {
  if (Own() != 0) GTEST_SKIP() << "these tests were given a priority";
  EXPECT_EQ(OnThread([] {
              RunBeforeOthers();
              RunAmongOthers();
            }),
            0);
  EXPECT_EQ(OnThread(RunAmongOthers), 0);
}

TEST(RunBeforeOthers, WhoWasGivenAnotherPriorityKeepsIt) {
  if (Own() != 0) GTEST_SKIP() << "these tests were given a priority";
  EXPECT_EQ(OnThread([] {
              EXPECT_EQ(setpriority(PRIO_PROCESS, 0, 5), 0);
              EXPECT_FALSE(RunBeforeOthers());
              RunAmongOthers();
            }),
            5);
}

}  // namespace
}  // namespace tailcast
