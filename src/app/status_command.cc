// tailcast status: processes, operations, lag per hop, hit rates and fallbacks of each cell.
#include <cinttypes>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "cell_session.h"
#include "command.h"
#include "deployment.h"
#include "tailcast/proto/copy.pb.h"

namespace tailcast::app {
namespace {

constexpr char kReadBytes[] = "tailcast_reader_read_bytes_total";
constexpr Duration kCallTimeout = Duration::Seconds(2);

struct StatusOptions {
  CellOptions cell;
  bool json = false;
};

const char* RoleOf(v1::Role role) {
  switch (role) {
    case v1::ROLE_CACHE: return "cache";
    case v1::ROLE_READER: return "reader";
    case v1::ROLE_WRITER: return "writer";
    case v1::ROLE_SCHEDULER: return "scheduler";
    default: return "unknown";
  }
}

// What the running operations of a hop have in common.
struct HopTotals {
  int running = 0;
  int64_t lag_bytes = 0;
};

Result<nlohmann::json> CellStatus(const std::string& scheduler) {
  TAILCAST_ASSIGN_OR_RETURN(auto session, CellSession::OpenAt(scheduler, Duration::Seconds(2)));
  const cell::CellView view = session->client().view();
  nlohmann::json cell = {{"name", view.cell()},
                         {"scheduler", scheduler},
                         {"scheduler_incarnation", view.scheduler_incarnation()},
                         {"processes", nlohmann::json::array()},
                         {"hops", nlohmann::json::array()},
                         {"streams", nlohmann::json::array()}};
  for (const auto& stream : view.streams()) cell["streams"].push_back(stream.name());

  // All at once, so that one silent process costs one time-out.
  std::vector<std::unique_ptr<rpc::Client>> clients;
  std::vector<std::optional<Result<std::string>>> statuses(
      static_cast<size_t>(view.processes_size()));
  std::vector<std::optional<Result<std::string>>> lists(statuses.size());
  size_t waiting = 0;
  for (size_t i = 0; i < statuses.size(); ++i) {
    const v1::ProcessInfo& process = view.processes(static_cast<int>(i));
    clients.push_back(session->connector().MakeClient(process.rpc_address(), ""));
    ++waiting;
    clients.back()->Call("/tailcast.v1.Process/GetStatus", v1::GetStatusRequest().SerializeAsString(),
                         kCallTimeout, [&, i](Result<std::string> r) {
                           statuses[i].emplace(std::move(r));
                           --waiting;
                         });
    if (process.role() != v1::ROLE_READER) continue;
    v1::ListOperationsRequest list;
    list.set_scheduler_incarnation(view.scheduler_incarnation());
    ++waiting;
    clients.back()->Call("/tailcast.v1.Reader/ListOperations", list.SerializeAsString(), kCallTimeout,
                         [&, i](Result<std::string> r) {
                           lists[i].emplace(std::move(r));
                           --waiting;
                         });
  }
  session->Until([&] { return waiting == 0; });

  std::map<std::pair<std::string, bool>, HopTotals> hops;  // target cell, cache layer
  for (size_t i = 0; i < statuses.size(); ++i) {
    const v1::ProcessInfo& process = view.processes(static_cast<int>(i));
    nlohmann::json one = {{"name", process.name()},
                          {"role", RoleOf(process.role())},
                          {"pid", process.pid()},
                          {"rpc", process.rpc_address()},
                          {"metrics", process.metrics_address()},
                          {"state", "up"}};
    if (!statuses[i]->ok()) {
      one["state"] = statuses[i]->status().ToString();
    } else if (auto reply = rpc::Parse<v1::GetStatusReply>(**statuses[i]); reply.ok()) {
      one["status"] = nlohmann::json::parse(reply->json(), nullptr, false);
    }
    cell["processes"].push_back(std::move(one));
    if (!lists[i] || !lists[i]->ok()) continue;
    const auto list = rpc::Parse<v1::ListOperationsReply>(**lists[i]);
    if (!list.ok()) continue;
    for (const auto& report : list->reports()) {
      if (report.state() != v1::OPERATION_RUNNING) continue;
      HopTotals& hop = hops[{report.operation().target_cell(),
                             report.operation().layer() == v1::LAYER_CACHE}];
      ++hop.running;
      hop.lag_bytes += std::max<int64_t>(0, report.source_data_length() - report.data_length()) +
                       std::max<int64_t>(0, report.source_index_length() - report.index_length());
    }
  }
  for (const auto& [key, hop] : hops) {
    cell["hops"].push_back({{"to", key.first},
                            {"layer", key.second ? "cache" : "primary"},
                            {"operations", hop.running},
                            {"lag_bytes", hop.lag_bytes}});
  }
  return cell;
}

// The sum of a metric with this label over all processes of a cell.
int64_t Sum(const nlohmann::json& cell, const std::string& metric, const std::string& label,
            const std::string& value) {
  int64_t sum = 0;
  for (const auto& process : cell["processes"]) {
    if (!process.contains("status") || !process["status"].is_object()) continue;
    for (const auto& m : process["status"].value("metrics", nlohmann::json::array())) {
      if (m.value("name", "") != metric) continue;
      if (m.value("labels", nlohmann::json::object()).value(label, "") != value) continue;
      sum += m.value("value", int64_t{0});
    }
  }
  return sum;
}

void Show(const nlohmann::json& cell) {
  if (cell.contains("error")) {
    std::printf("%s: %s\n\n", cell["name"].get<std::string>().c_str(),
                cell["error"].get<std::string>().c_str());
    return;
  }
  std::printf("%s   scheduler %s, incarnation %" PRIu64 "\n", cell["name"].get<std::string>().c_str(),
              cell["scheduler"].get<std::string>().c_str(),
              cell["scheduler_incarnation"].get<uint64_t>());
  for (const auto& p : cell["processes"]) {
    std::printf("  %-12s %-10s pid %-8" PRId64 " %s\n", p["name"].get<std::string>().c_str(),
                p["role"].get<std::string>().c_str(), p["pid"].get<int64_t>(),
                p["state"].get<std::string>().c_str());
  }
  for (const auto& hop : cell["hops"]) {
    std::printf("  to %-16s %-8s %4d operations, %.1f KB behind\n",
                hop["to"].get<std::string>().c_str(), hop["layer"].get<std::string>().c_str(),
                hop["operations"].get<int>(), static_cast<double>(hop["lag_bytes"].get<int64_t>()) / 1e3);
  }
  const int64_t from_cache = Sum(cell, kReadBytes, "origin", "cache");
  const int64_t from_primary = Sum(cell, kReadBytes, "origin", "primary");
  if (from_cache + from_primary > 0) {
    std::printf("  readers took %.1f %% of %.1f MB from the cache, the rest fell back to the primary layer\n",
                100.0 * static_cast<double>(from_cache) / static_cast<double>(from_cache + from_primary),
                static_cast<double>(from_cache + from_primary) / 1e6);
  }
  std::string streams;
  for (const auto& s : cell["streams"]) streams += (streams.empty() ? "" : ", ") + s.get<std::string>();
  std::printf("  streams: %s\n\n", streams.empty() ? "none" : streams.c_str());
}

int ShowStatus(const StatusOptions& options) {
  std::vector<DeploymentCell> cells;
  if (!options.cell.cell.empty()) {
    cells.push_back({"", options.cell.cell});
  } else {
    if (options.cell.dir.empty()) return Fail(options.cell.Find().status());
    const auto deployment = Deployment::Read(options.cell.dir);
    if (!deployment.ok()) return Fail(deployment.status());
    cells = deployment->cells;
  }
  nlohmann::json all = nlohmann::json::array();
  bool failed = false;
  for (const DeploymentCell& cell : cells) {
    auto status = CellStatus(cell.scheduler);
    if (status.ok()) {
      all.push_back(std::move(*status));
    } else {
      failed = true;
      all.push_back({{"name", cell.name.empty() ? cell.scheduler : cell.name},
                     {"error", status.status().message()},
                     {"processes", nlohmann::json::array()}});
    }
  }
  if (options.json) {
    std::printf("%s\n", nlohmann::json({{"cells", all}}).dump(2).c_str());
  } else {
    for (const auto& cell : all) Show(cell);
  }
  return failed ? kExitFailed : kExitDone;
}

}  // namespace

void AddStatus(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("status", "Processes, operations, lag per hop, hit rates");
  auto options = std::make_shared<StatusOptions>();
  options->cell.Add(command, false);
  command->add_flag("--json", options->json, "Everything, as JSON");
  command->callback([&action, options] { action = [options] { return ShowStatus(*options); }; });
}

}  // namespace tailcast::app
