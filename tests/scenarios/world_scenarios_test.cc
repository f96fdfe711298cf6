// Runs the scenario files of this folder (docs/simulator.md) and holds their stories against the
// .expected files beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/world/scenario.h"

namespace tailcast::world {
namespace {

namespace fs = std::filesystem;

std::string TextOf(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> Files(const char* extension) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(SCENARIO_DIR)) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class WorldScenario : public ::testing::TestWithParam<fs::path> {};

TEST_P(WorldScenario, TellsTheStoryThatIsExpected) {
  ASSERT_TRUE(SetLogLevels("off").ok());
  const auto scenario = ParseScenario(TextOf(GetParam()), GetParam().filename().string());
  ASSERT_TRUE(scenario.ok()) << scenario.status().ToString();
  EXPECT_FALSE(scenario->title.empty()) << "the first line says what it shows: # ...";
  const ScenarioRun run = RunScenario(*scenario);
  EXPECT_EQ(run.outcome.problem, "");
  EXPECT_EQ(run.story, TextOf(fs::path(GetParam()).replace_extension(".expected")))
      << "if the new story is right: ./dev sim scenario --rewrite tests/scenarios/"
      << GetParam().filename().string() << ", and review the diff";
}
INSTANTIATE_TEST_SUITE_P(Files, WorldScenario, ::testing::ValuesIn(Files(".scenario")),
                         [](const auto& file) {
                           std::string name = file.param.stem().string();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(WorldScenarios, AreThereAndNoStoryIsWithoutItsScenario) {
  EXPECT_GE(Files(".scenario").size(), 7u);
  EXPECT_EQ(Files(".scenario").size(), Files(".expected").size());
}

}  // namespace
}  // namespace tailcast::world
