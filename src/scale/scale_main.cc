// ./dev sim scale: the paper's experiments with as many consumers as there, and what a deployment
// of any size takes, by a model that is held against real agents first.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tailcast/base/log.h"
#include "tailcast/copytree/import.h"
#include "tailcast/scale/report.h"

namespace {

using namespace tailcast;         // NOLINT(google-build-using-namespace)
using namespace tailcast::scale;  // NOLINT(google-build-using-namespace)

int Fail(const Status& status) {
  std::fprintf(stderr, "scale: %s\n", status.ToString().c_str());
  return 1;
}

std::string Plain(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

Result<std::string> ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return NotFoundError("cannot read " + path);
  return text.str();
}

Result<copytree::Graph> Cloud(const std::vector<std::string>& tables, int cells) {
  if (tables.empty()) return InventedCloud(cells);
  std::vector<copytree::CsvTable> read;
  for (const std::string& path : tables) {
    TAILCAST_ASSIGN_OR_RETURN(std::string text, ReadWhole(path));
    read.push_back({path, std::move(text)});
  }
  TAILCAST_ASSIGN_OR_RETURN(copytree::Imported imported,
                            copytree::ImportTables(read, {.complete = true}));
  return copytree::Graph::Create(std::move(imported.clusters), std::move(imported.links));
}

// As CLI::Range, which lets what is no number pass.
CLI::Validator Between(double least, double most) {
  return CLI::Validator(
      [least, most](std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
        return good ? std::string()
                    : text + " is not within " + Plain(least) + " and " + Plain(most);
      },
      Plain(least) + " .. " + Plain(most));
}

struct Flags {
  std::vector<std::string> only;
  std::string out, costs, source;
  std::vector<std::string> tables;
  int cells = 100;
  bool calibrate = true;
  Assumptions assumptions;
  Demand demand;
};

int Run(const Flags& flags) {
  // What people give is looked at before anything takes its time.
  std::optional<Costs> costs;
  std::optional<copytree::Graph> graph;
  std::string source;
  if (!flags.costs.empty()) {
    auto text = ReadWhole(flags.costs);
    if (!text.ok()) return Fail(text.status());
    auto read = ReadCosts(*text, flags.costs);
    if (!read.ok()) return Fail(read.status());
    costs = *read;
    auto cloud = Cloud(flags.tables, flags.cells);
    if (!cloud.ok()) return Fail(cloud.status());
    graph = std::move(cloud).value();
    source = flags.source.empty() ? graph->cluster(0).name : flags.source;
    const auto known = graph->Require(source, "--source");
    if (!known.ok()) return Fail(known.status());
  }
  std::ofstream file;
  if (!flags.out.empty()) {
    file.open(flags.out);
    if (!file) return Fail(UnavailableError("cannot write " + flags.out));
  }
  int result = 0;
  if (flags.calibrate) {
    const auto calibrated = Calibrate();
    if (!calibrated.ok()) return Fail(calibrated.status());
    std::cout << CalibrationText(*calibrated);
    for (const Calibrated& one : *calibrated) {
      if (!one.Near()) result = 1;
    }
  }
  std::vector<Experiment> experiments;
  for (const std::string& name : flags.only.empty() ? ExperimentNames() : flags.only) {
    experiments.push_back(RunExperiment(name, flags.assumptions));
    std::cout << ExperimentText(experiments.back()) << std::flush;
  }
  if (!flags.out.empty()) {
    if (!(file << ExperimentsJson(experiments)) || !file.flush()) {
      return Fail(UnavailableError("cannot write " + flags.out));
    }
  }
  if (costs) {
    const auto sizing = Size(flags.demand, flags.assumptions.servers, *costs, *graph, source);
    if (!sizing.ok()) return Fail(sizing.status());
    std::cout << SizingText(flags.demand, *sizing, *costs, flags.assumptions.servers);
    if (flags.tables.empty()) {
      std::cout << "  (prices and distances are invented; --prices FILE.csv takes your cloud's)\n";
    }
  }
  if (result != 0) std::cout << "\nthe model is further from the agents than it may be\n";
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("The paper's experiments 1 and 2 with all their consumers, and what a million take");
  app.name("./dev sim scale");
  app.add_option("--only", flags.only, "these experiments: 1a to 1d, 2a to 2c")
      ->check(CLI::IsMember(ExperimentNames()));
  app.add_option("--out", flags.out, "write what happened, as JSON, to this file")->take_last();
  app.add_option("--costs", flags.costs,
                 "what ./dev bench cache has measured, as JSON: then the last table is made")
      ->take_last();
  bool cost_rows = false;
  app.add_flag("--cost-rows", cost_rows, "print which rows of that bench it wants, and end");
  app.add_flag("!--no-calibrate", flags.calibrate, "do not hold the model against agents first");
  app.add_option("--consumers", flags.demand.consumers, "of the last table, in all cells")
      ->capture_default_str()
      ->check(Between(1.0, 1e10));
  app.add_option("--cells", flags.cells, "of the last table, without --prices")
      ->capture_default_str()
      ->check(CLI::Range(2, 500));
  app.add_option("--prices", flags.tables,
                 "CSV tables of prices and round-trip times, as copytree import takes them");
  app.add_option("--source", flags.source, "the cell where the stream begins; default: the first");
  app.add_option("--rate-mbps", flags.demand.stream_mbps, "of the stream, in Mbit/s")
      ->capture_default_str()
      ->check(Between(0.001, 1e6));
  app.add_option("--shards", flags.demand.shards, "of the stream")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  app.add_option("--shards-per-consumer", flags.demand.shards_per_consumer)
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  app.add_option("--poll", flags.demand.poll_s, "seconds between a consumer's polls")
      ->capture_default_str()
      ->check(Between(0.001, 60.0));
  app.add_option(
         "--behind", flags.assumptions.behind_s,
         "1b, 1c: seconds of the streams that consumers who come at once are behind; at most "
         "what the caches keep")
      ->capture_default_str()
      ->check(Between(0, CellSetup{}.keep_s));
  app.add_option_function<double>(
         "--server-gbps",
         [&](double gbps) { flags.assumptions.servers.bytes_per_s = gbps * 1e9 / 8; },
         "experiments: Gbit/s that a cache server gives at most")
      ->default_str("10")
      ->check(Between(0.1, 1000.0));
  app.add_option("--server-reads", flags.assumptions.servers.reads_per_s,
                 "experiments: reads a second that a cache server gives at most")
      ->capture_default_str()
      ->check(Between(1e3, 1e9));
  CLI11_PARSE(app, argc, argv);
  if (cost_rows) {
    std::cout << CostRows() << "\n";
    return 0;
  }
  (void)SetLogLevels("error");
  return Run(flags);
}
