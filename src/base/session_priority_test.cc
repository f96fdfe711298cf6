#include "tailcast/base/session_priority.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "tailcast/base/thread_priority.h"

namespace tailcast {
namespace {

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

class SessionPriorityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (OfChildsSession([] {}) != 0) GTEST_SKIP() << "this kernel doesn't group by sessions here";
    if (getpriority(PRIO_PROCESS, 0) != 0) GTEST_SKIP() << "these tests were given a priority";
    const int may = OfChildsSession([] {
      GiveSession(-9);
      GiveSession(-10);
    });
    if (may != -10) GTEST_SKIP() << "these tests may not raise sessions as often as they like";
  }
};

TEST_F(SessionPriorityTest, TheOneThatTheProcessLeadsIsRaised) {
  EXPECT_EQ(OfChildsSession(RaiseOwnSession), -10);
  EXPECT_EQ(OfChildsSession([] {
              RaiseOwnSession();
              RaiseOwnSession();
            }),
            -10);
}

TEST_F(SessionPriorityTest, WithTheFirstThreadThatRunsBeforeOthers) {
  EXPECT_EQ(OfChildsSession([] { RunBeforeOthers(); }), -10);
}

TEST_F(SessionPriorityTest, OneThatAnotherProcessLeadsIsLeftAlone) {
  EXPECT_EQ(OfChildsSession([] {
              const pid_t child = fork();
              if (child == 0) {
                RaiseOwnSession();
                _exit(0);
              }
              waitpid(child, nullptr, 0);
            }),
            0);
}

TEST_F(SessionPriorityTest, OneThatWasGivenAnotherPriorityKeepsIt) {
  for (int nice : {5, -5, -10}) {
    EXPECT_EQ(OfChildsSession([&] {
                GiveSession(nice);
                RaiseOwnSession();
                const LessForOwnSession less;
                SettleOwnSession();
                _exit(OfSession() + 100);
              }),
              nice);
    EXPECT_EQ(OfChildsSession([&] {
                RaiseOwnSession();
                GiveSession(nice - 1);
                const LessForOwnSession less;
                _exit(OfSession() + 100);
              }),
              nice - 1)
        << "given while it runs";
  }
}

TEST_F(SessionPriorityTest, AThreadThatWasGivenAnotherPriorityRaisesNone) {
  EXPECT_EQ(OfChildsSession([] {
              (void)setpriority(PRIO_PROCESS, 0, 5);
              RunBeforeOthers();
            }),
            0);
}

TEST_F(SessionPriorityTest, HasLessWhileAnybodyAsksForThat) {
  EXPECT_EQ(OfChildsSession([] {
              RaiseOwnSession();
              std::optional<LessForOwnSession> one(std::in_place), another(std::in_place);
              one.reset();
              _exit(OfSession() + 100);
            }),
            -5);
  EXPECT_EQ(OfChildsSession([] {
              RaiseOwnSession();
              { const LessForOwnSession less; }
            }),
            -10);
  EXPECT_EQ(OfChildsSession([] {
              const LessForOwnSession less;
              RaiseOwnSession();
              _exit(OfSession() + 100);
            }),
            -5)
      << "asked for before it is raised";
}

TEST_F(SessionPriorityTest, OneThatWasNotRaisedHasNoLess) {
  EXPECT_EQ(OfChildsSession([] {
              const LessForOwnSession less;
              SettleOwnSession();
              _exit(OfSession() + 100);
            }),
            0);
}

TEST_F(SessionPriorityTest, AChildThatTheProcessForkedLeavesItsSessionAlone) {
  EXPECT_EQ(OfChildsSession([] {
              RaiseOwnSession();
              const pid_t child = fork();
              if (child == 0) {
                const LessForOwnSession less;
                _exit(0);
              }
              waitpid(child, nullptr, 0);
            }),
            -10);
}

// As a user with LimitNICE=-10: who may raise, but not more often than once in 100 ms.
void LoseAllButNice() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  data[CAP_TO_INDEX(CAP_SYS_NICE)].effective = data[CAP_TO_INDEX(CAP_SYS_NICE)].permitted =
      CAP_TO_MASK(CAP_SYS_NICE);
  if (syscall(SYS_capset, &header, data) != 0) _exit(255);
}

TEST_F(SessionPriorityTest, IsRaisedThoughAnotherWasChangedJustNow) {
  ASSERT_EQ(OfChildsSession([] { GiveSession(1); }), 1);
  EXPECT_EQ(OfChildsSession([] {
              LoseAllButNice();
              RaiseOwnSession();
            }),
            -10);
}

TEST_F(SessionPriorityTest, WhatCouldNotBeChangedIsTriedAgain) {
  EXPECT_EQ(OfChildsSession([] {
              LoseAllButNice();
              RaiseOwnSession();
              const LessForOwnSession less;  // within the 100 ms
              const bool refused = OfSession() == -10;
              for (int i = 0; refused && i < 10'000 && OfSession() != -5; ++i) {
                SettleOwnSession();
                usleep(1000);
              }
              _exit((refused ? OfSession() : 99) + 100);
            }),
            -5);
}

}  // namespace
}  // namespace tailcast
