// ./dev sim: runs the deterministic world for a range of seeds.
#include <cinttypes>
#include <cstdio>
#include <fstream>

#include <CLI/CLI.hpp>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/base/time.h"
#include "tailcast/world/world.h"

namespace {

void ListBugs() {
  for (const tailcast::FaultPoint* point : tailcast::FaultPoints()) {
    std::printf("%-36s %s\n", std::string(point->name()).c_str(),
                std::string(point->what()).c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Runs whole deployments in virtual time, one seed each, with faults drawn from the seed");
  uint64_t seed = 1;
  int runs = 0;
  double minutes = 0;
  bool timeline = false, calm = false;
  std::string trace, bug;
  app.add_option("--seed", seed, "The first seed")->capture_default_str();
  app.add_option("--runs", runs, "How many seeds; default 1, or as many as --minutes allow");
  app.add_option("--minutes", minutes, "Go on for so long");
  app.add_flag("--timeline", timeline, "Print what happens to the deployment, with virtual times");
  app.add_flag("--calm", calm, "No faults");
  app.add_option("--trace", trace, "Log every step to FOLDER/seed-N.jsonl: tla/README.md");
  app.add_option("--bug", bug, "Plant a bug that a check must find; 'help' lists them");
  CLI11_PARSE(app, argc, argv);
  if (bug == "help") {
    ListBugs();
    return 0;
  }
  if (const auto planted = bug.empty() ? tailcast::OkStatus() : tailcast::PlantFault(bug, true);
      !planted.ok()) {
    std::fprintf(stderr, "--bug: %s\n", planted.ToString().c_str());
    return 2;
  }
  if (runs == 0) runs = minutes > 0 ? 1 << 30 : 1;
  (void)tailcast::SetLogLevels(timeline ? "warn" : "off");
  const tailcast::MonotonicTime start = tailcast::ReadMonotonicClock();
  int failed = 0;
  double virtual_s = 0;
  int done = 0;
  for (; done < runs; ++done) {
    const double elapsed = (tailcast::ReadMonotonicClock() - start).seconds();
    if (minutes > 0 && elapsed > minutes * 60) break;
    const uint64_t s = seed + static_cast<uint64_t>(done);
    tailcast::world::Options options = tailcast::world::Options::Swarm(s);
    if (calm) options.faults.clear();
    std::ofstream steps;
    if (!trace.empty()) {
      const std::string path = trace + "/seed-" + std::to_string(s) + ".jsonl";
      steps.open(path);
      if (!steps) {
        std::fprintf(stderr, "cannot write %s\n", path.c_str());
        return 2;
      }
      options.steps = [&steps](std::string_view line) { steps << line; };
    }
    tailcast::world::World world(options);
    if (timeline)
      world.SetTimeline([](const std::string& line) { std::printf("%s\n", line.c_str()); });
    const tailcast::world::Outcome outcome = world.Run();
    virtual_s += outcome.virtual_s;
    std::printf("seed %" PRIu64 ": %s  trace %016" PRIx64 ", %" PRIu64
                " events, %.1f virtual s, %d faults, %" PRId64 " delivered, %" PRId64
                " fallbacks\n",
                s, outcome.ok() ? "ok" : "FAILED", outcome.trace_hash, outcome.events,
                outcome.virtual_s, outcome.faults, outcome.delivered, outcome.fallbacks);
    if (!outcome.ok()) {
      ++failed;
      std::printf("  %s\n  again: ./dev sim --seed %" PRIu64 "%s%s%s --timeline\n",
                  outcome.problem.c_str(), s, calm ? " --calm" : "", bug.empty() ? "" : " --bug ",
                  bug.c_str());
    }
    std::fflush(stdout);
  }
  const double elapsed = (tailcast::ReadMonotonicClock() - start).seconds();
  std::printf("%d runs, %d failed; %.0f virtual seconds in %.1f s\n", done, failed, virtual_s,
              elapsed);
  return failed == 0 ? 0 : 1;
}
