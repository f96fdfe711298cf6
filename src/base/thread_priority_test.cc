#include "tailcast/base/thread_priority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>
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

// The nice of this process's session among others; kNoSession: there is no such thing here.
constexpr int kNoSession = 100;
int OfSession() {
  std::ifstream file("/proc/self/autogroup");
  std::string name, word;
  int nice = kNoSession;
  return file >> name >> word >> nice ? nice : kNoSession;
}

// What the session of a child has that leads it, and did this first.
int OfChildsSession(const std::function<void()>& first) {
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    first();
    _exit(OfSession() + 100);  // 0 to 255
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) - 100;
}

void GiveSession(int nice) { std::ofstream("/proc/self/autogroup") << nice; }

// Where neither a test's session nor a thread may be raised, that it isn't is all there is to see.
class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (OfChildsSession([] {}) != 0) GTEST_SKIP() << "this kernel doesn't group by sessions here";
    if (Own() != 0) GTEST_SKIP() << "these tests were given a priority";
  }
  const int may_ = OfChildsSession([] { GiveSession(-10); });
};

TEST_F(SessionTest, TheOneThatTheProcessLeadsRunsBeforeOthersToo) {
  EXPECT_EQ(OfChildsSession([] { RunBeforeOthers(); }), may_);
  EXPECT_EQ(OfChildsSession([] {
              RunBeforeOthers();
              RunBeforeOthers();
            }),
            may_)
      << "a second thread";
}

TEST_F(SessionTest, OneThatAnotherProcessLeadsIsLeftAlone) {
  EXPECT_EQ(OfChildsSession([] {
              const pid_t child = fork();
              if (child == 0) {
                RunBeforeOthers();
                _exit(0);
              }
              waitpid(child, nullptr, 0);
            }),
            0);
}

TEST_F(SessionTest, OneThatWasGivenAnotherPriorityKeepsIt) {
  EXPECT_EQ(OfChildsSession([] {
              GiveSession(5);
              RunBeforeOthers();
            }),
            5);
}

TEST_F(SessionTest, IsLoweredAndRaisedAgain) {
  const int lowered = may_ == 0 ? 0 : -5;
  EXPECT_EQ(OfChildsSession([] {
              RunBeforeOthers();
              LowerSession();
              LowerSession();
            }),
            lowered);
  EXPECT_EQ(OfChildsSession([] {
              RunBeforeOthers();
              LowerSession();
              RaiseSession();
            }),
            may_);
}

TEST_F(SessionTest, OneThatWasNotRaisedIsNotLowered) {
  EXPECT_EQ(OfChildsSession(LowerSession), 0);
  EXPECT_EQ(OfChildsSession(RaiseSession), 0);
  EXPECT_EQ(OfChildsSession([] {
              RunBeforeOthers();
              GiveSession(5);
              LowerSession();
            }),
            5);
}

TEST_F(SessionTest, AThreadThatWasGivenAnotherPriorityRaisesNone) {
  EXPECT_EQ(OfChildsSession([] {
              (void)setpriority(PRIO_PROCESS, 0, 5);
              RunBeforeOthers();
            }),
            0);
}

}  // namespace
}  // namespace tailcast
