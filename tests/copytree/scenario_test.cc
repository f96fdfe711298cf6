// Runs the scenario files of this folder. A scenario is a text file of commands and what they
// print:
//
//   # comments and blank lines before a command are kept
//   $ tailcast copytree plan --topology us.yaml
//   <standard output>
//   ! <each line of standard error>
//   = <exit code, if not 0>
//
// Files that commands read lie in the folder too. TAILCAST_REWRITE_SCENARIOS=1 writes what the
// commands print now into the files, to be reviewed as a diff.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tailcast/app/copytree_command.h"

namespace tailcast::app {
namespace {

namespace fs = std::filesystem;

std::string RunLine(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> args;
  for (std::string word; words >> word;) args.push_back(word);
  args.erase(args.begin());                // "tailcast"
  std::reverse(args.begin(), args.end());  // as CLI11 wants them
  CLI::App app("tailcast", "tailcast");
  app.require_subcommand(1);
  std::function<int()> action;
  std::ostringstream out, err;
  AddCopytreeCommand(app, action, out, err);
  int code = 0;
  try {
    app.parse(args);
    code = action();
  } catch (const CLI::ParseError& error) {
    code = app.exit(error, out, err) == 0 ? 0 : 2;
  }
  std::string text = out.str();
  if (!text.empty() && text.back() != '\n') text += '\n';
  std::istringstream errors(err.str());
  for (std::string each; std::getline(errors, each);) text += "! " + each + "\n";
  if (code != 0) text += "= " + std::to_string(code) + "\n";
  return text;
}

std::string Replay(const std::string& scenario) {
  std::istringstream in(scenario);
  std::string result, line;
  bool output = false;
  while (std::getline(in, line)) {
    if (line.starts_with("$ ")) {
      result += line + "\n" + RunLine(line.substr(2)) + "\n";
      output = true;
    } else if (line.starts_with("# ")) {
      result += line + "\n";
      output = false;
    } else if (!output) {
      result += line + "\n";
    }
  }
  return result;
}

std::vector<fs::path> Scenarios() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(SCENARIO_DIR)) {
    if (entry.path().extension() == ".scenario") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class ScenarioTest : public ::testing::TestWithParam<fs::path> {};

TEST_P(ScenarioTest, PrintsWhatItsFileSays) {
  fs::current_path(SCENARIO_DIR);
  std::ifstream file(GetParam());
  std::stringstream expected;
  expected << file.rdbuf();
  const std::string now = Replay(expected.str());
  if (std::getenv("TAILCAST_REWRITE_SCENARIOS") != nullptr) {
    std::ofstream(GetParam()) << now;
    return;
  }
  EXPECT_EQ(now, expected.str()) << "if the new output is right, run this test with "
                                    "TAILCAST_REWRITE_SCENARIOS=1 and review the diff";
}

INSTANTIATE_TEST_SUITE_P(Files, ScenarioTest, ::testing::ValuesIn(Scenarios()),
                         [](const auto& file) { return file.param.stem().string(); });

TEST(ScenarioTest, ThereAreScenarios) { EXPECT_GE(Scenarios().size(), 5u); }

}  // namespace
}  // namespace tailcast::app
