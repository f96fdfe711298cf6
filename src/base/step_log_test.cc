#include "tailcast/base/step_log.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace tailcast {
namespace {

class StepLogTest : public ::testing::Test {
 protected:
  StepLogTest() {
    std::string pattern = ::testing::TempDir() + "/steps-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~StepLogTest() override {
    unsetenv("TAILCAST_TRACE_DIR");
    std::filesystem::remove_all(folder_);
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      files.push_back(entry.path());
    return files;
  }
  static std::vector<std::string> Lines(const std::string& path) {
    std::ifstream in(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  std::string folder_;
};

TEST_F(StepLogTest, ALineHasTheStampWhoAndTheFieldsInTheirOrder) {
  std::string text;
  int64_t now = 7;
  StepLog log(
      "asia-east", "writer-1.77", [&] { return ++now; },
      [&](std::string_view line) { text += line; });
  log.Write("ChunkWrite", {{"part", 0}, {"writer", log.NewName()}, {"source", true}});
  EXPECT_EQ(text,
            "{\"t\":8,\"cell\":\"asia-east\",\"process\":\"writer-1.77\",\"event\":\"ChunkWrite\","
            "\"part\":0,\"writer\":\"writer-1.77-1\",\"source\":true}\n");
  text.clear();
  const int64_t before = log.Stamp();
  log.Write("Later", {});
  log.WriteAt(before, "Earlier", {{"n", INT64_MIN}}, "\"epoch\":2");
  EXPECT_EQ(text,
            "{\"t\":10,\"cell\":\"asia-east\",\"process\":\"writer-1.77\",\"event\":\"Later\"}\n"
            "{\"t\":9,\"cell\":\"asia-east\",\"process\":\"writer-1.77\",\"event\":\"Earlier\","
            "\"epoch\":2,\"n\":-9223372036854775808}\n");
}

TEST_F(StepLogTest, TextIsEscapedSoThatALineStaysALine) {
  std::string text;
  StepLog log(
      "c", "p", [] { return 0; }, [&](std::string_view line) { text = line; });
  log.Write("E", {{"name", "a\"b\\c\nd\xc3"}});
  EXPECT_NE(text.find("\"name\":\"a\\\"b\\\\c\\u000ad\\u00c3\"}\n"), std::string::npos) << text;
}

TEST_F(StepLogTest, WithoutTheVariableThereIsNoLog) {
  unsetenv("TAILCAST_TRACE_DIR");
  const auto log = StepLog::FromEnvironment("c", "p");
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(*log, nullptr);
}

TEST_F(StepLogTest, EachLogHasAFileOfItsOwnAndLinesOfThreadsDoNotMix) {
  setenv("TAILCAST_TRACE_DIR", folder_.c_str(), 1);
  {
    auto a = StepLog::FromEnvironment("c", "p");
    auto b = StepLog::FromEnvironment("c", "p");
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_NE((*a)->process(), (*b)->process());
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (int n = 0; n < 200; ++n) (*a)->Write("E", {{"thread", i}, {"n", n}});
      });
    }
    for (std::thread& thread : threads) thread.join();
    (*b)->Write("E", {});
  }
  const auto files = Files();
  ASSERT_EQ(files.size(), 2u);
  size_t lines = 0;
  for (const std::string& file : files) {
    for (const std::string& line : Lines(file)) {
      ++lines;
      EXPECT_TRUE(line.starts_with("{\"t\":") && line.ends_with("}")) << line;
    }
  }
  EXPECT_EQ(lines, 801u);
}

TEST_F(StepLogTest, AFolderThatIsNotThereIsNamed) {
  const auto log = StepLog::Open(folder_ + "/none", "c", "p");
  ASSERT_FALSE(log.ok());
  EXPECT_NE(log.status().message().find(folder_ + "/none/c.p."), std::string::npos);
}

}  // namespace
}  // namespace tailcast
