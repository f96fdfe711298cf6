#include "tailcast/app/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace tailcast::app {
namespace {

MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

TEST(RestartPolicy, StartsAgainAtOnceWhatLivedLongEnough) {
  RestartPolicy policy;
  policy.OnStart(At(0));
  EXPECT_EQ(policy.OnExit(At(5000)), At(5000));
  policy.OnStart(At(5000));
  EXPECT_EQ(policy.OnExit(At(7000)), At(7000));
  EXPECT_EQ(policy.restarts(), 2);
}

TEST(RestartPolicy, WaitsLongerEachTimeForWhatDiesAtOnce) {
  RestartPolicy policy;
  std::vector<int64_t> waits;
  int64_t now = 0;
  for (int i = 0; i < 9; ++i) {
    policy.OnStart(At(now));
    const MonotonicTime next = policy.OnExit(At(now + 1));
    waits.push_back((next - At(now + 1)).millis());
    now = next.micros() / 1000;
  }
  EXPECT_EQ(waits, (std::vector<int64_t>{100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000}));
  policy.OnStart(At(now));
  EXPECT_EQ(policy.OnExit(At(now + 2000)), At(now + 2000)) << "a good run must clear the wait";
}

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, nullptr);
  }
  // Tends until `done()`; each child's end wakes it.
  template <typename Condition>
  bool Until(Condition done) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (const MonotonicTime end = ReadMonotonicClock() + Duration::Seconds(20);
         ReadMonotonicClock() < end;) {
      const Duration wait = std::min(supervisor_.Tend(), Duration::Millis(100));
      if (done()) return true;
      const timespec timeout{0, std::max<int64_t>(0, wait.micros()) * 1000 % 1000000000};
      sigtimedwait(&set, nullptr, &timeout);
    }
    return false;
  }
  bool Said(const std::string& text) const {
    return std::any_of(said_.begin(), said_.end(),
                       [&](const std::string& s) { return s.find(text) != std::string::npos; });
  }

  std::vector<std::string> said_;
  Supervisor supervisor_{[this](const std::string& s) { said_.push_back(s); }};
};

// So that Ctrl-C is for the supervisor, and a cache can run before others.
TEST_F(SupervisorTest, EachChildLeadsASessionOfItsOwn) {
  ASSERT_TRUE(supervisor_.Start({"sleeper", "/bin/sleep", {"sleep", "1000"}, "/dev/null"}).ok());
  const pid_t child = supervisor_.PidOf("sleeper");
  EXPECT_TRUE(Until([&] { return getsid(child) == child; }));
  EXPECT_EQ(getpgid(child), child);
}

TEST_F(SupervisorTest, StartsAgainWhatWasKilledAndSaysSo) {
  ASSERT_TRUE(supervisor_.Start({"sleeper", "/bin/sleep", {"sleep", "1000"}, "/dev/null"}).ok());
  const pid_t first = supervisor_.PidOf("sleeper");
  ASSERT_GT(first, 0);
  kill(first, SIGKILL);
  ASSERT_TRUE(Until([&] {
    const pid_t pid = supervisor_.PidOf("sleeper");
    return pid != 0 && pid != first;
  }));
  EXPECT_TRUE(Said("killed by signal 9"));
  EXPECT_TRUE(Said("started again"));
}

TEST_F(SupervisorTest, ReportsAProgramThatCannotRun) {
  ASSERT_TRUE(supervisor_.Start({"nothing", "/no/such/program", {"nothing"}, "/dev/null"}).ok());
  EXPECT_TRUE(Until([&] { return Said("exit code 127"); }));
}

TEST_F(SupervisorTest, TellsTheLastWordsOfWhatEndsByItself) {
  const std::string log = ::testing::TempDir() + "/last_words." + std::to_string(getpid());
  ASSERT_TRUE(supervisor_
                  .Start({"sayer",
                          "/bin/sh",
                          {"sh", "-c", "echo other; echo 'tailcast: no room'; exit 1"},
                          log})
                  .ok());
  EXPECT_TRUE(Until([&] { return Said("exit code 1: no room; see " + log); }));
  std::remove(log.c_str());
}

TEST_F(SupervisorTest, TellsAChildHowOftenItWasStartedAgain) {
  const std::string log = ::testing::TempDir() + "/restarts." + std::to_string(getpid());
  ASSERT_TRUE(supervisor_
                  .Start({"counter",
                          "/bin/sh",
                          {"sh", "-c", "echo \"tailcast: after $TAILCAST_RESTARTS\"; exit 1"},
                          log})
                  .ok());
  EXPECT_TRUE(Until([&] { return Said("exit code 1: after 2; see " + log); }));
  EXPECT_TRUE(Said("exit code 1: after 0; see " + log));
  std::remove(log.c_str());
}

TEST_F(SupervisorTest, WhoIsRetiredIsAskedToEndAndNotStartedAgain) {
  ASSERT_TRUE(supervisor_.Start({"a", "/bin/sleep", {"sleep", "1000"}, "/dev/null"}).ok());
  ASSERT_TRUE(supervisor_.Start({"b", "/bin/sleep", {"sleep", "1000"}, "/dev/null"}).ok());
  supervisor_.Retire("a", Duration::Seconds(100));
  supervisor_.Retire("nobody", Duration::Seconds(100));
  EXPECT_TRUE(Until([&] { return Said("a has ended, as it was asked to"); }));
  EXPECT_EQ(supervisor_.running(), 1u);
  EXPECT_FALSE(Said("started again"));
  ASSERT_TRUE(supervisor_.Start({"a", "/bin/sleep", {"sleep", "1000"}, "/dev/null"}).ok());
  EXPECT_EQ(supervisor_.running(), 2u);
}

TEST_F(SupervisorTest, WhoDoesNotEndIsKilledWhenTheGraceIsOver) {
  const std::string log = ::testing::TempDir() + "/deaf." + std::to_string(getpid());
  ASSERT_TRUE(
      supervisor_
          .Start({"deaf", "/bin/sh", {"sh", "-c", "trap '' TERM; echo deaf; exec sleep 1000"}, log})
          .ok());
  ASSERT_TRUE(Until([&] { return std::ifstream(log).peek() == 'd'; }));
  supervisor_.Retire("deaf", Duration::Millis(50));
  EXPECT_TRUE(Until([&] { return Said("deaf has ended"); }));
  std::remove(log.c_str());
}

TEST_F(SupervisorTest, WhoIsWantedBackWhileItEndsIsStartedAgain) {
  ASSERT_TRUE(supervisor_.Start({"a", "/bin/sleep", {"sleep", "1000"}, "/dev/null"}).ok());
  const pid_t first = supervisor_.PidOf("a");
  supervisor_.Retire("a", Duration::Seconds(100));
  ASSERT_TRUE(supervisor_.Start({"a", "/bin/sleep", {"sleep", "1000"}, "/dev/null"}).ok());
  EXPECT_TRUE(Until([&] {
    const pid_t pid = supervisor_.PidOf("a");
    return pid != 0 && pid != first;
  }));
}

TEST_F(SupervisorTest, StopsEverything) {
  ASSERT_TRUE(supervisor_.Start({"a", "/bin/sleep", {"sleep", "1000"}, "/dev/null"}).ok());
  const pid_t pid = supervisor_.PidOf("a");
  supervisor_.StopAll(Duration::Seconds(10));
  EXPECT_EQ(supervisor_.running(), 0u);
  EXPECT_NE(kill(pid, 0), 0);
}

}  // namespace
}  // namespace tailcast::app
