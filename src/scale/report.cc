#include "tailcast/scale/report.h"

#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

namespace tailcast::scale {
namespace {

template <typename... Args>
std::string Format(const char* format, Args... args) {
  char line[400];
  std::snprintf(line, sizeof line, format, args...);
  return line;
}

// Three digits that mean something.
std::string Number(double value) {
  if (value == 0) return "0";
  if (value >= 1e4) {
    std::string digits = Format("%.0f", value);
    for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) {
      digits.insert(static_cast<size_t>(at), ",");
    }
    return digits;
  }
  return Format(value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f", value);
}

std::string Bytes(double bytes) {
  const char* const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  return Number(bytes) + " " + units[unit];
}

}  // namespace

std::string CalibrationText(const std::vector<Calibrated>& all) {
  std::string text = "The model beside real agents in virtual time\n";
  std::string setup;
  for (const Calibrated& one : all) {
    if (one.setup != setup) text += "\n  " + one.setup + "\n";
    setup = one.setup;
    text += Format("    %-20s %12s %12s %-4s %+6.1f %%%s\n", one.what.c_str(),
                   Number(one.agents).c_str(), Number(one.model).c_str(), one.unit.c_str(),
                   one.Error() * 100, !one.Near() ? "  TOO FAR" : "");
  }
  return text;
}

std::string ExperimentText(const Experiment& experiment) {
  std::string text = Format("\nExperiment %s (%s), figure %s: %s\n",
                            experiment.name.substr(0, 1).c_str(), experiment.name.substr(1).c_str(),
                            experiment.figure.c_str(), experiment.title.c_str());
  text += Format("  %-44s %12s %12s\n", "", "paper", "tailcast");
  for (const Comparison& one : experiment.comparisons) {
    text += Format("  %-44s %12s %12s %s\n", one.what.c_str(), one.paper.c_str(),
                   Number(one.ours).c_str(), one.unit.c_str());
    if (!one.why.empty()) text += "      " + one.why + "\n";
  }
  return text;
}

std::string SizingText(const Demand& demand, const Sizing& sizing, const Costs& costs,
                       const ServerLimits& limits) {
  const double cells = std::round(demand.consumers / sizing.consumers_per_cell);
  std::string text = Format(
      "\n%s consumers in %.0f cells, %s of %d shards each, of a stream of %s Mbit/s\n",
      Number(demand.consumers).c_str(), cells, std::to_string(demand.shards_per_consumer).c_str(),
      demand.shards, Number(demand.stream_mbps).c_str());
  const auto row = [&](const char* what, const std::string& value) {
    text += Format("  %-52s %s\n", what, value.c_str());
  };
  row("in each cell: consumers", Number(sizing.consumers_per_cell));
  row("  reads of chunks", Number(sizing.reads_per_s / 1e6) + " million/s");
  row("  bytes read", Number(sizing.read_bytes_per_s * 8 / 1e9) + " Gbit/s");
  row(("  data servers, at " + Number(limits.trigger_bytes_per_s * 8 / 1e9) + " Gbit/s and " +
       Number(limits.trigger_reads_per_s) + " reads/s")
          .c_str(),
      std::to_string(sizing.data_servers));
  row("  metadata servers", std::to_string(sizing.metadata_servers));
  row("  memory of the data cache, three copies", Bytes(sizing.data_memory_bytes));
  row("  processors of the servers, RDMA", Number(sizing.server_cpus_rdma));
  row("  processors of the servers, tcp", Number(sizing.server_cpus_tcp));
  row("  processors of the consumers for their reads", Number(sizing.consumer_cpus));
  row("in all cells: data and metadata servers",
      Number(cells * (sizing.data_servers + sizing.metadata_servers)));
  row("  processors of the servers, RDMA; tcp",
      Number(cells * sizing.server_cpus_rdma) + "; " + Number(cells * sizing.server_cpus_tcp));
  row("between cells, both layers",
      Bytes(sizing.link_bytes_per_s) + "/s, " + Bytes(sizing.link_bytes_per_s * 86400) + " a day");
  row("  copy tree: hops at most, price of a byte's way",
      std::to_string(sizing.plan.depth) + ", " + Format("%.3f USD/GB", sizing.plan.usd_per_gb));
  row("  price", Number(sizing.plan.usd_per_day) + " USD a day");
  text += "  (a processor is one of " + costs.machine + ", as ./dev bench cache has measured it)\n";
  return text;
}

std::string ExperimentsJson(const std::vector<Experiment>& experiments) {
  nlohmann::json root = nlohmann::json::array();
  for (const Experiment& experiment : experiments) {
    nlohmann::json one = {{"name", experiment.name},
                          {"figure", experiment.figure},
                          {"title", experiment.title},
                          {"cells", nlohmann::json::array()},
                          {"comparisons", nlohmann::json::array()}};
    for (const Comparison& c : experiment.comparisons) {
      one["comparisons"].push_back({{"what", c.what},
                                    {"paper", c.paper},
                                    {"tailcast", c.ours},
                                    {"unit", c.unit},
                                    {"why", c.why}});
    }
    for (size_t i = 0; i < experiment.cells.size(); ++i) {
      nlohmann::json cell = {{"cell", experiment.cells[i]}};
      for (const Moment& moment : experiment.moments[i]) {
        const CellSample& s = moment.cell;
        cell["time_s"].push_back(moment.time_s);
        cell["consumers"].push_back(s.consumers);
        cell["data_servers"].push_back(s.data_servers);
        cell["metadata_servers"].push_back(s.metadata_servers);
        cell["read_gbps"].push_back(s.read_bytes_per_s * 8 / 1e9);
        cell["reads_per_s"].push_back(s.reads_per_s);
        cell["value_reads_per_s"].push_back(s.value_reads_per_s);
        cell["fallbacks_per_s"].push_back(s.fallbacks_per_s);
        cell["p50_s"].push_back(moment.p50_s);
        cell["p99_s"].push_back(moment.p99_s);
        cell["behind_s"].push_back(s.behind_s);
      }
      one["cells"].push_back(std::move(cell));
    }
    root.push_back(std::move(one));
  }
  return root.dump() + "\n";
}

}  // namespace tailcast::scale
