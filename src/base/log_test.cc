#include "tailcast/base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace tailcast {
namespace {

class Log : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([this](LogLevel level, std::string_view component, std::string_view message) {
      lines_.push_back(std::to_string(static_cast<int>(level)) + " " + std::string(component) +
                       " " + std::string(message));
    });
    ASSERT_TRUE(SetLogLevels("info").ok());
  }
  void TearDown() override {
    SetLogSink(nullptr);
    ASSERT_TRUE(SetLogLevels("info").ok());
  }
  std::vector<std::string> lines_;
};

TEST_F(Log, JoinsItsArgumentsIntoOneLine) {
  const Logger log("storage");
  log.Warn("x.data", ": epoch ", 7, ", ", 1.5, ": ", NotFoundError("gone"));
  log.Info("two\nlines\tand a bell\a");
  EXPECT_EQ(lines_, (std::vector<std::string>{"2 storage x.data: epoch 7, 1.5: NotFound: gone",
                                              "1 storage two\\nlines\\x09and a bell\\x07"}));
}

TEST_F(Log, LevelsOfComponentsGoBeforeTheStandardOne) {
  const Logger storage("storage"), rpc("rpc"), later_name("later");
  ASSERT_TRUE(SetLogLevels("warn,storage=debug,rpc=off").ok());
  const Logger later("later");
  storage.Debug("a");
  rpc.Error("b");
  later.Info("c");
  later_name.Warn("d");
  EXPECT_EQ(lines_, (std::vector<std::string>{"0 storage a", "2 later d"}));
  EXPECT_FALSE(rpc.Enabled(LogLevel::kError));
}

TEST_F(Log, AWrongLevelIsNamedAndChangesNothing) {
  const Logger log("x");
  const Status status = SetLogLevels("debug,storage=loud");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("storage=loud"), std::string::npos);
  EXPECT_FALSE(log.Enabled(LogLevel::kDebug));
  EXPECT_FALSE(SetLogLevels("=debug").ok());
}

TEST_F(Log, ThreadsTakeTurns) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      const Logger log("thread");
      for (int i = 0; i < 100; ++i) log.Info(i);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(lines_.size(), 400u);
}

TEST(LogOnStderr, HasTimeLevelAndComponent) {
  ::testing::internal::CaptureStderr();
  Logger("storage").Error("disk full");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(::testing::internal::RE::FullMatch(
      text, "[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+\\.[0-9]+Z E storage   disk full\n"))
      << text;
}

}  // namespace
}  // namespace tailcast
