// ./dev sim: runs the deterministic world for a range of seeds, runs scenario files, or looks for
// planted bugs.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/base/time.h"
#include "tailcast/world/planted.h"
#include "tailcast/world/scenario.h"
#include "tailcast/world/shrink.h"
#include "tailcast/world/story.h"
#include "tailcast/world/world.h"

namespace {

using tailcast::world::Options;
using tailcast::world::Outcome;

struct Flags {
  uint64_t seed = 1;
  int runs = 0;
  double minutes = 0;
  bool timeline = false, calm = false, plain = false;
  std::string trace, bug;
  std::vector<std::string> faults;  // instead of those that are drawn
  std::vector<std::string> counts;  // instead of those that are drawn: SetCount
  int shrink = 60;                  // runs
  uint64_t seeds = 1000;            // of planted
};

// Of ./dev, which knows it.
const char* Commit() {
  const char* commit = std::getenv("TAILCAST_COMMIT");
  return commit == nullptr ? "unknown" : commit;
}

void ListBugs() {
  for (const tailcast::FaultPoint* point : tailcast::FaultPoints()) {
    std::printf("%-36s %s\n", std::string(point->name()).c_str(),
                std::string(point->what()).c_str());
  }
}

// As the flags say. InvalidArgument: of --set.
tailcast::Status Draw(uint64_t seed, const Flags& flags, Options& options) {
  options = Options::Swarm(seed);
  if (flags.plain) options = options.Plain();
  if (flags.calm || !flags.faults.empty()) options.faults.clear();
  options.faults.insert(flags.faults.begin(), flags.faults.end());
  for (const std::string& count : flags.counts) {
    if (auto set = tailcast::world::SetCount(options, count); !set.ok()) return set;
  }
  return tailcast::OkStatus();
}

// What runs exactly these options again.
std::string Command(const Options& options, const Flags& flags) {
  std::string command = "./dev sim --seed " + std::to_string(options.seed);
  Options drawn = Options::Swarm(options.seed);
  if (flags.plain) {
    command += " --plain";
    drawn = drawn.Plain();
  }
  if (options.faults.empty() && !drawn.faults.empty()) {
    command += " --calm";
  } else if (options.faults != drawn.faults) {
    std::string faults;
    for (const std::string& fault : options.faults) faults += (faults.empty() ? "" : ",") + fault;
    command += " --faults " + faults;
  }
  const std::string counts = tailcast::world::CountsBeside(options, drawn);
  if (!counts.empty()) command += " --set " + counts;
  if (!flags.bug.empty()) command += " --bug " + flags.bug;
  return command + " --timeline";
}

void Tell(uint64_t seed, const Outcome& outcome) {
  std::printf("seed %" PRIu64 ": %s  trace %016" PRIx64 ", %" PRIu64
              " events, %.1f virtual s, %d faults, %" PRId64 " delivered, %" PRId64 " fallbacks\n",
              seed, outcome.ok() ? "ok" : "FAILED", outcome.trace_hash, outcome.events,
              outcome.virtual_s, outcome.faults, outcome.delivered, outcome.fallbacks);
}

// What broke, and what runs it again; then the least that breaks the same.
void TellWhy(const Options& options, const Outcome& outcome, const Flags& flags) {
  std::printf("  %s\n  at commit %s; again: %s\n", outcome.problem.c_str(), Commit(),
              Command(options, flags).c_str());
  std::fflush(stdout);
  // Who looks at a timeline looks at this one.
  if (flags.shrink == 0 || flags.timeline || !flags.trace.empty()) return;
  const tailcast::world::Shrunk less = tailcast::world::Shrink(options, outcome, flags.shrink);
  const std::string command = Command(less.options, flags);
  if (command == Command(options, flags)) {
    std::printf("  nothing smaller breaks this rule (%d runs)\n", less.runs);
  } else {
    std::printf("  smaller (%d runs): %s\n    %s\n", less.runs, command.c_str(),
                less.outcome.problem.substr(0, less.outcome.problem.find('\n')).c_str());
  }
}

// False: the log of steps cannot be written.
bool Run(Options options, const Flags& flags, Outcome& outcome) {
  std::ofstream steps;
  if (!flags.trace.empty()) {
    const std::string path = flags.trace + "/seed-" + std::to_string(options.seed) + ".jsonl";
    steps.open(path);
    if (!steps) {
      std::fprintf(stderr, "cannot write %s\n", path.c_str());
      return false;
    }
    options.steps = [&steps](std::string_view line) { steps << line; };
  }
  tailcast::world::World world(std::move(options));
  std::optional<tailcast::world::Story> story;
  if (flags.timeline) {
    story.emplace(world, [](const std::string& line) { std::printf("%s\n", line.c_str()); });
  }
  outcome = world.Run();
  if (story) story->End(outcome);
  return true;
}

int Sweep(const Flags& flags) {
  const tailcast::MonotonicTime start = tailcast::ReadMonotonicClock();
  const auto elapsed = [&] { return (tailcast::ReadMonotonicClock() - start).seconds(); };
  const int runs = flags.runs > 0 ? flags.runs : flags.minutes > 0 ? 1 << 30 : 1;
  int failed = 0, done = 0;
  double virtual_s = 0;
  for (; done < runs && (flags.minutes == 0 || elapsed() < flags.minutes * 60); ++done) {
    const uint64_t seed = flags.seed + static_cast<uint64_t>(done);
    Options options;
    if (auto drawn = Draw(seed, flags, options); !drawn.ok()) {
      std::fprintf(stderr, "--set: %s\n", drawn.ToString().c_str());
      return 2;
    }
    Outcome outcome;
    if (!Run(options, flags, outcome)) return 2;
    Tell(seed, outcome);
    if (!outcome.ok()) TellWhy(options, outcome, flags);
    std::fflush(stdout);
    virtual_s += outcome.virtual_s;
    failed += outcome.ok() ? 0 : 1;
  }
  std::printf("%d runs, %d failed; %.0f virtual seconds in %.1f s\n", done, failed, virtual_s,
              elapsed());
  return failed == 0 ? 0 : 1;
}

// Runs scenarios and prints their stories, or writes them beside the files.
int Scenarios(const std::vector<std::string>& files, bool rewrite) {
  int failed = 0;
  for (const std::string& file : files) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    if (!in) {
      std::fprintf(stderr, "cannot read %s\n", file.c_str());
      return 2;
    }
    const auto scenario = tailcast::world::ParseScenario(text.str(), file);
    if (!scenario.ok()) {
      std::fprintf(stderr, "%s\n", std::string(scenario.status().message()).c_str());
      return 2;
    }
    const tailcast::world::ScenarioRun run = tailcast::world::RunScenario(*scenario);
    failed += run.outcome.ok() ? 0 : 1;
    if (!rewrite) {
      std::printf("%s", run.story.c_str());
      continue;
    }
    const std::string path = std::filesystem::path(file).replace_extension(".expected").string();
    if (!(std::ofstream(path) << run.story)) {
      std::fprintf(stderr, "cannot write %s\n", path.c_str());
      return 2;
    }
    std::printf("%s\n", path.c_str());
  }
  return failed == 0 ? 0 : 1;
}

// How many seeds it takes to find each of the bugs, or the one that is named.
int Planted(const Flags& flags) {
  std::vector<std::string_view> bugs;
  for (const tailcast::FaultPoint* point : tailcast::FaultPoints()) {
    if (point->name() == flags.bug) bugs.push_back(point->name());
  }
  if (bugs.empty() && !flags.bug.empty()) {
    std::fprintf(stderr, "--bug: there is no %s; '--bug help' lists what can be planted\n",
                 flags.bug.c_str());
    return 2;
  }
  if (bugs.empty()) {
    for (const auto& bug : tailcast::world::PlantedBugs()) bugs.push_back(bug.name);
  }
  size_t missed = 0;
  uint64_t all = 0;
  for (const std::string_view bug : bugs) {
    const tailcast::world::Finding found =
        tailcast::world::FindPlanted(bug, flags.seed, flags.seeds);
    std::printf("%-36s ", std::string(bug).c_str());
    if (found.seed == 0) {
      ++missed;
      std::printf("NOT FOUND by %" PRIu64 " seeds\n", flags.seeds);
    } else {
      all += found.seed - flags.seed + 1;
      std::printf("seed %4" PRIu64 "  %s\n", found.seed,
                  found.problem.substr(0, found.problem.find('\n')).c_str());
    }
    std::fflush(stdout);
  }
  std::printf(
      "%zu bugs, %zu not found; %.1f seeds on average\n", bugs.size(), missed,
      static_cast<double>(all) / static_cast<double>(std::max<size_t>(1, bugs.size() - missed)));
  return missed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Runs whole deployments in virtual time, one seed each, with faults drawn from the seed");
  Flags flags;
  app.add_option("--seed", flags.seed, "The first seed")->capture_default_str();
  app.add_option("--runs", flags.runs, "How many seeds; default 1, or as many as --minutes allow");
  app.add_option("--minutes", flags.minutes, "Go on for so long");
  app.add_flag("--timeline", flags.timeline,
               "Print what happens to the deployment, with virtual times");
  app.add_flag("--calm", flags.calm, "No faults");
  app.add_flag("--plain", flags.plain,
               "One shard, an even network, and only the faults that the models of tla/ speak of");
  app.add_option("--faults", flags.faults,
                 "These, with commas, instead of those that the seed draws: docs/simulator.md")
      ->delimiter(',')
      ->check(CLI::IsMember(tailcast::world::FaultNames()));
  app.add_option("--set", flags.counts,
                 "Counts instead of those that the seed draws, with commas: messages=50,shards=1")
      ->delimiter(',');
  app.add_option("--shrink", flags.shrink,
                 "Runs that may be spent on making a failure smaller; 0: none")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--trace", flags.trace, "Log every step to FOLDER/seed-N.jsonl: tla/README.md");
  app.add_option("--bug", flags.bug, "Plant a bug that a check must find; 'help' lists them");
  CLI::App* planted = app.add_subcommand(
      "planted", "Plants one bug after the other, and looks for the first seed that finds it");
  planted->add_option("--seed", flags.seed, "The first seed")->capture_default_str();
  planted->add_option("--seeds", flags.seeds, "How many to try")->capture_default_str();
  planted->add_option("--bug", flags.bug, "This one alone");
  std::vector<std::string> files;
  bool rewrite = false;
  CLI::App* scenario = app.add_subcommand(
      "scenario", "Runs scenario files and prints what happened: docs/simulator.md");
  scenario->add_option("files", files, "FILE.scenario ...")->required();
  scenario->add_option("--bug", flags.bug, "Plant a bug, to see what comes of it");
  scenario->add_flag("--rewrite", rewrite, "Write it to FILE.expected instead");
  scenario->footer(tailcast::world::ScenarioHelp());
  CLI11_PARSE(app, argc, argv);
  (void)tailcast::SetLogLevels(flags.timeline ? "warn" : "off");
  if (planted->parsed()) return Planted(flags);
  if (flags.bug == "help") {
    ListBugs();
    return 0;
  }
  if (const auto done =
          flags.bug.empty() ? tailcast::OkStatus() : tailcast::PlantFault(flags.bug, true);
      !done.ok()) {
    std::fprintf(stderr, "--bug: %s\n", done.ToString().c_str());
    return 2;
  }
  return scenario->parsed() ? Scenarios(files, rewrite) : Sweep(flags);
}
