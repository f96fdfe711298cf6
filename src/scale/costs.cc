#include "tailcast/scale/costs.h"

#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

namespace tailcast::scale {
namespace {

// Batches of 64: a consumer's poll brings a few chunks of each of its shards.
constexpr char kRead[] = "ReadChunks/tcp/depth:64/MB:64/real_time";
constexpr char kValue[] = "ReadLengths/tcp/real_time";
constexpr char kWrite[] = "MutateChunks/tcp/in_flight:4/iterations:1/real_time";

}  // namespace

std::string CostRows() {
  return "ReadChunks/tcp/depth:64|ReadLengths/tcp|MutateChunks/tcp/in_flight:4";
}

Result<Costs> ReadCosts(const std::string& json, const std::string& name) {
  const auto root = nlohmann::json::parse(json, nullptr, false);
  if (root.is_discarded() || !root.is_object() || !root.contains("benchmarks") ||
      !root["benchmarks"].is_array()) {
    return InvalidArgumentError(name + " is not what ./dev bench cache writes with " +
                                "--benchmark_out=FILE --benchmark_out_format=json");
  }
  std::map<std::string, nlohmann::json> rows;
  for (const auto& row : root["benchmarks"]) {
    if (row.is_object() && row.contains("name") && row["name"].is_string()) {
      rows[row["name"].get<std::string>()] = row;
    }
  }
  std::string missing;
  const auto seconds = [&](const char* row, const char* counter) {
    const auto found = rows.find(row);
    if (found == rows.end() || !found->second.contains(counter) ||
        !found->second[counter].is_number()) {
      missing = std::string(row) + ": " + counter;
      return 0.0;
    }
    return found->second[counter].get<double>() / 1e6;
  };
  Costs costs;
  costs.server_read_s = seconds(kRead, "server_us");
  costs.client_read_s = seconds(kRead, "client_us");
  costs.server_write_s = seconds(kWrite, "server_us");
  costs.server_value_s = seconds(kValue, "server_us");
  costs.client_value_s = seconds(kValue, "client_us");
  if (!missing.empty()) return InvalidArgumentError(name + " has no row " + missing);
  for (const double cost : {costs.server_read_s, costs.client_read_s, costs.server_write_s,
                            costs.server_value_s, costs.client_value_s}) {
    if (!std::isfinite(cost) || cost <= 0) {
      return InvalidArgumentError(name + ": a cost that is not above 0");
    }
  }
  if (root.contains("context") && root["context"].is_object()) {
    const auto& context = root["context"];
    if (context.contains("num_cpus") && context["num_cpus"].is_number() &&
        context.contains("mhz_per_cpu") && context["mhz_per_cpu"].is_number()) {
      costs.machine = std::to_string(context["num_cpus"].get<int>()) + " x " +
                      std::to_string(context["mhz_per_cpu"].get<int>()) + " MHz";
    }
  }
  return costs;
}

}  // namespace tailcast::scale
