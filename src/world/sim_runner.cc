// ./dev sim: runs the deterministic world for a range of seeds, or looks for planted bugs.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/base/time.h"
#include "tailcast/world/planted.h"
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

void Tell(uint64_t seed, const Flags& flags, const Outcome& outcome) {
  std::printf("seed %" PRIu64 ": %s  trace %016" PRIx64 ", %" PRIu64
              " events, %.1f virtual s, %d faults, %" PRId64 " delivered, %" PRId64 " fallbacks\n",
              seed, outcome.ok() ? "ok" : "FAILED", outcome.trace_hash, outcome.events,
              outcome.virtual_s, outcome.faults, outcome.delivered, outcome.fallbacks);
  if (!outcome.ok()) {
    std::string more = flags.calm ? " --calm" : "";
    if (flags.plain) more += " --plain";
    for (const std::string& fault : flags.faults) {
      more += (&fault == flags.faults.data() ? " --faults " : ",") + fault;
    }
    if (!flags.bug.empty()) more += " --bug " + flags.bug;
    std::printf("  %s\n  at commit %s; again: ./dev sim --seed %" PRIu64 "%s --timeline\n",
                outcome.problem.c_str(), Commit(), seed, more.c_str());
  }
  std::fflush(stdout);
}

// False: the log of steps cannot be written.
bool Run(uint64_t seed, const Flags& flags, Outcome& outcome) {
  Options options = Options::Swarm(seed);
  if (flags.plain) options = options.Plain();
  if (flags.calm || !flags.faults.empty()) options.faults.clear();
  options.faults.insert(flags.faults.begin(), flags.faults.end());
  std::ofstream steps;
  if (!flags.trace.empty()) {
    const std::string path = flags.trace + "/seed-" + std::to_string(seed) + ".jsonl";
    steps.open(path);
    if (!steps) {
      std::fprintf(stderr, "cannot write %s\n", path.c_str());
      return false;
    }
    options.steps = [&steps](std::string_view line) { steps << line; };
  }
  tailcast::world::World world(options);
  if (flags.timeline) {
    world.SetTimeline([](const std::string& line) { std::printf("%s\n", line.c_str()); });
  }
  outcome = world.Run();
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
    Outcome outcome;
    if (!Run(seed, flags, outcome)) return 2;
    Tell(seed, flags, outcome);
    virtual_s += outcome.virtual_s;
    failed += outcome.ok() ? 0 : 1;
  }
  std::printf("%d runs, %d failed; %.0f virtual seconds in %.1f s\n", done, failed, virtual_s,
              elapsed());
  return failed == 0 ? 0 : 1;
}

// How many seeds it takes to find each of the bugs.
int Planted(const Flags& flags) {
  int missed = 0, bugs = 0;
  uint64_t all = 0;
  for (const tailcast::world::PlantedBug& bug : tailcast::world::PlantedBugs()) {
    if (!flags.bug.empty() && bug.name != flags.bug) continue;
    ++bugs;
    const tailcast::world::Finding found =
        tailcast::world::FindPlanted(bug.name, flags.seed, flags.seeds);
    std::printf("%-36s ", std::string(bug.name).c_str());
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
  std::printf("%d bugs, %d not found; %.1f seeds on average\n", bugs, missed,
              static_cast<double>(all) / std::max(1, bugs - missed));
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
  app.add_option("--trace", flags.trace, "Log every step to FOLDER/seed-N.jsonl: tla/README.md");
  app.add_option("--bug", flags.bug, "Plant a bug that a check must find; 'help' lists them");
  CLI::App* planted = app.add_subcommand(
      "planted", "Plants one bug after the other, and looks for the first seed that finds it");
  planted->add_option("--seed", flags.seed, "The first seed")->capture_default_str();
  planted->add_option("--seeds", flags.seeds, "How many to try")->capture_default_str();
  planted->add_option("--bug", flags.bug, "This one alone");
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
  return Sweep(flags);
}
