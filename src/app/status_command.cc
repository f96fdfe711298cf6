// tailcast status: processes, heads of the streams, hops and operations, hit rates and fallbacks of
// each cell. What does not answer is said to be silent; the rest is shown all the same.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/command.h"
#include "tailcast/app/deployment.h"
#include "tailcast/app/lacking.h"
#include "tailcast/base/scope.h"
#include "tailcast/consumer/consumer.h"
#include "tailcast/memcached/replica_names.h"
#include "tailcast/proto/copy.pb.h"

namespace tailcast::app {
namespace {

using nlohmann::json;

constexpr char kReadBytes[] = "tailcast_reader_read_bytes_total";
constexpr Duration kCallTimeout = Duration::Seconds(2);
constexpr Duration kHeadTimeout = Duration::Seconds(1);  // for all streams of a cell
constexpr int32_t kShardsShownMax = 100;
constexpr size_t kOperationsShownMax = 12;
constexpr size_t kWaitsShownMax = 5;

struct StatusOptions {
  CellOptions cell;
  bool json = false;
};

const char* RoleOf(v1::Role role) {
  switch (role) {
    case v1::ROLE_CACHE:
      return "cache";
    case v1::ROLE_READER:
      return "reader";
    case v1::ROLE_WRITER:
      return "writer";
    case v1::ROLE_SCHEDULER:
      return "scheduler";
    default:
      return "unknown";
  }
}

// What the running operations of a hop have in common.
struct HopTotals {
  int running = 0;
  int64_t lag_bytes = 0;
  int64_t lag_us = 0, delay_us = 0;  // the largest
};

// Where a consumer of this cell that wants only new messages would begin: what the cell has, seen
// with a consumer's eyes.
json Heads(const std::string& scheduler, const v1::CellView& view) {
  json heads = json::array();
  const MonotonicTime end = ReadMonotonicClock() + kHeadTimeout;
  for (const v1::StreamConfig& stream : view.streams()) {
    json one = {{"stream", stream.name()}, {"source", stream.source()}, {"shards", json::array()}};
    consumer::Options options;
    options.cell = scheduler;
    options.stream = stream.name();
    options.start = consumer::StartPoint::End();
    options.open_timeout = std::max(Duration::Millis(50), end - ReadMonotonicClock());
    for (int32_t i = 0; i < std::min(stream.shards(), kShardsShownMax); ++i)
      options.shards.push_back(i);
    one["shards_not_shown"] = stream.shards() - static_cast<int32_t>(options.shards.size());
    auto consumer = consumer::Consumer::Open(options);
    if (!consumer.ok()) {
      one["error"] = consumer.status().message();
      heads.push_back(std::move(one));
      continue;
    }
    const auto located = [&] {
      for (int32_t shard : options.shards) {
        const auto state = (*consumer)->agent(shard)->state();
        if (state == consumer::AgentState::kLocating) return false;
      }
      return true;
    };
    while (!located() && ReadMonotonicClock() < end) {
      if (!(*consumer)->Poll(Duration::Millis(10)).ok()) break;
    }
    for (int32_t shard : options.shards) {
      const consumer::ConsumerAgent& agent = *(*consumer)->agent(shard);
      json s = {{"shard", shard}, {"state", std::string(consumer::AgentStateName(agent.state()))}};
      if (const auto position = agent.position()) {
        s["messages"] = position->number;
        s["bytes"] = position->byte;
        s["position"] = position->ToString();
      }
      if (const int64_t as_of = agent.as_of().micros(); as_of > 0) {
        s["as_of_us"] = as_of;
        s["age_ms"] = std::max<int64_t>(0, ReadWallClock().micros() - as_of) / 1000;
      }
      if (!agent.status().ok()) s["error"] = agent.status().message();
      one["shards"].push_back(std::move(s));
    }
    heads.push_back(std::move(one));
  }
  return heads;
}

Result<json> CellStatus(const DeploymentCell& where) {
  const std::string& scheduler = where.scheduler;
  TAILCAST_ASSIGN_OR_RETURN(auto session, CellSession::OpenAt(scheduler, Duration::Seconds(2)));
  const cell::CellView view = session->client().view();
  json cell = {{"name", view.cell()},
               {"scheduler", scheduler},
               {"scheduler_incarnation", view.scheduler_incarnation()},
               {"processes", json::array()},
               {"hops", json::array()},
               {"operations", json::array()},
               {"streams", Heads(scheduler, view)}};

  const v1::Ring& ring = view.metadata_ring();
  json& caches = cell["metadata_cache"] = {{"configuration_id", ring.configuration_id()},
                                           {"epoch", ring.epoch()},
                                           {"replicas", json::array()}};
  for (const v1::Replica& replica : ring.replicas()) {
    caches["replicas"].push_back({{"name", replica.name()},
                                  {"there", !replica.rpc_address().empty()},
                                  {"whole", replica.whole()},
                                  {"excused", replica.excused()}});
  }

  AddLacking(view, cell);
  cell["left_out"] = json::array();
  for (const v1::StreamConfig& stream : view.streams()) {
    for (const std::string& out : stream.left_out()) {
      cell["left_out"].push_back({{"stream", stream.name()}, {"cell", out}});
    }
  }

  // All at once, so that one silent process costs one time-out.
  std::vector<std::unique_ptr<rpc::Client>> clients;
  std::vector<std::optional<Result<std::string>>> statuses(
      static_cast<size_t>(view.processes_size()));
  std::vector<std::optional<Result<std::string>>> lists(statuses.size());
  size_t waiting = 0;
  const Scope scope;
  for (size_t i = 0; i < statuses.size(); ++i) {
    const v1::ProcessInfo& process = view.processes(static_cast<int>(i));
    clients.push_back(session->connector().MakeClient(process.rpc_address(), ""));
    ++waiting;
    clients.back()->Call("/tailcast.v1.Process/GetStatus",
                         v1::GetStatusRequest().SerializeAsString(), kCallTimeout,
                         scope.Bind([&, i](Result<std::string> r) {
                           statuses[i].emplace(std::move(r));
                           --waiting;
                         }));
    if (process.role() != v1::ROLE_READER) continue;
    v1::ListOperationsRequest list;
    list.set_scheduler_incarnation(view.scheduler_incarnation());
    ++waiting;
    clients.back()->Call("/tailcast.v1.Reader/ListOperations", list.SerializeAsString(),
                         kCallTimeout, scope.Bind([&, i](Result<std::string> r) {
                           lists[i].emplace(std::move(r));
                           --waiting;
                         }));
  }
  session->Until([&] { return waiting == 0; });

  std::map<std::pair<std::string, bool>, HopTotals> hops;  // target cell, cache layer
  std::set<std::string> there;
  for (size_t i = 0; i < statuses.size(); ++i) {
    const v1::ProcessInfo& process = view.processes(static_cast<int>(i));
    there.insert(process.name());
    json one = {{"name", process.name()},
                {"role", RoleOf(process.role())},
                {"pid", process.pid()},
                {"rpc", process.rpc_address()},
                {"metrics", process.metrics_address()},
                {"state", "up"}};
    if (!statuses[i]->ok()) {
      one["state"] = "silent";
      one["error"] = statuses[i]->status().ToString();
    } else if (auto reply = rpc::Parse<v1::GetStatusReply>(**statuses[i]); reply.ok()) {
      one["status"] = json::parse(reply->json(), nullptr, false);
      if (one["status"].is_object() && one["status"].contains("scheduler")) {
        json& known = one["status"]["scheduler"];
        if (known.is_object() && known.contains("operations")) {
          cell["operations"] = known["operations"];
          known.erase("operations");
          cell["retention_waits"] = known.value("retention_waits", json::array());
          known.erase("retention_waits");
        }
      }
    }
    cell["processes"].push_back(std::move(one));
    if (!lists[i] || !lists[i]->ok()) continue;
    const auto list = rpc::Parse<v1::ListOperationsReply>(**lists[i]);
    if (!list.ok()) continue;
    for (const auto& report : list->reports()) {
      if (report.state() != v1::OPERATION_RUNNING) continue;
      HopTotals& hop =
          hops[{report.operation().target_cell(), report.operation().layer() == v1::LAYER_CACHE}];
      ++hop.running;
      hop.lag_bytes += std::max<int64_t>(0, report.source_data_length() - report.data_length()) +
                       std::max<int64_t>(0, report.source_index_length() - report.index_length());
      hop.lag_us = std::max(hop.lag_us, report.lag_us());
      hop.delay_us = std::max(hop.delay_us, report.delay_us());
    }
  }
  for (const std::string& name : where.processes) {
    if (there.contains(name)) continue;
    cell["processes"].push_back(
        {{"name", name}, {"role", name.substr(0, name.rfind('-'))}, {"pid", 0}, {"state", "down"}});
  }
  for (const auto& [key, hop] : hops) {
    cell["hops"].push_back({{"to", key.first},
                            {"layer", key.second ? "cache" : "primary"},
                            {"operations", hop.running},
                            {"lag_bytes", hop.lag_bytes},
                            {"lag_ms", static_cast<double>(hop.lag_us) / 1e3},
                            {"confirmed_after_ms", static_cast<double>(hop.delay_us) / 1e3}});
  }
  return cell;
}

// How far each cell is behind the source of a stream, where both are known.
void CompareHeads(json& cells) {
  std::map<std::pair<std::string, int32_t>, json> source;
  const auto each = [&](auto visit) {
    for (json& cell : cells) {
      if (!cell.contains("streams")) continue;
      for (json& stream : cell["streams"]) {
        for (json& shard : stream["shards"]) visit(cell, stream, shard);
      }
    }
  };
  each([&](json& cell, json& stream, json& shard) {
    if (stream["source"] == cell["name"]) {
      source[{stream["stream"].get<std::string>(), shard["shard"].get<int32_t>()}] = shard;
    }
  });
  each([&](json& cell, json& stream, json& shard) {
    const auto it =
        source.find({stream["stream"].get<std::string>(), shard["shard"].get<int32_t>()});
    if (it == source.end() || stream["source"] == cell["name"]) return;
    if (!it->second.contains("messages") || !shard.contains("messages")) return;
    // The source was asked first: a cell may have gone past what it said.
    shard["behind_messages"] = std::max<int64_t>(
        0, it->second["messages"].get<int64_t>() - shard["messages"].get<int64_t>());
    shard["behind_bytes"] =
        std::max<int64_t>(0, it->second["bytes"].get<int64_t>() - shard["bytes"].get<int64_t>());
  });
}

// What each process of a cell says of itself, once, however many roles it has.
std::vector<const json*> StatusOfEach(const json& cell) {
  std::vector<const json*> all;
  std::set<json> incarnations;
  for (const auto& process : cell["processes"]) {
    if (!process.contains("status") || !process["status"].is_object()) continue;
    const json& status = process["status"];
    if (incarnations.insert(status.value("incarnation", json())).second) all.push_back(&status);
  }
  return all;
}

// The sum of a metric over all processes of a cell; with the label, if one is named.
int64_t Sum(const json& cell, const std::string& metric, const std::string& label = "",
            const std::string& value = "") {
  int64_t sum = 0;
  for (const json* status : StatusOfEach(cell)) {
    for (const auto& m : status->value("metrics", json::array())) {
      if (m.value("name", "") != metric) continue;
      if (!label.empty() && m.value("labels", json::object()).value(label, "") != value) continue;
      sum += m.value("value", int64_t{0});
    }
  }
  return sum;
}

// The sum of a counter of the readers' and writers' clients of the data cache.
int64_t SumCache(const json& cell, const std::string& counter) {
  int64_t sum = 0;
  for (const json* status : StatusOfEach(cell)) {
    sum += status->value("data_cache_client", json::object()).value(counter, int64_t{0});
  }
  return sum;
}

std::string TimeText(double seconds) {
  char text[32];
  if (seconds < 1)
    std::snprintf(text, sizeof text, "%.0f ms", seconds * 1e3);
  else if (seconds < 120)
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  else if (seconds < 7200)
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  else
    std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
  return text;
}

std::string BytesText(int64_t bytes) {
  char text[32];
  const auto b = static_cast<double>(bytes);
  if (b < 1e3)
    std::snprintf(text, sizeof text, "%.0f B", b);
  else if (b < 1e6)
    std::snprintf(text, sizeof text, "%.1f KB", b / 1e3);
  else if (b < 1e9)
    std::snprintf(text, sizeof text, "%.1f MB", b / 1e6);
  else
    std::snprintf(text, sizeof text, "%.2f GB", b / 1e9);
  return text;
}

void ShowProcesses(const json& cell) {
  std::printf("  %-12s %-10s %8s %9s %9s  %s\n", "process", "role", "pid", "up", "memory", "state");
  for (const auto& p : cell["processes"]) {
    std::string up = "-", memory = "-";
    if (p.contains("status") && p["status"].is_object()) {
      up = TimeText(p["status"].value("uptime_s", 0.0));
      memory = BytesText(p["status"].value("memory_bytes", int64_t{0}));
    }
    const int64_t pid = p["pid"].get<int64_t>();
    std::printf("  %-12s %-10s %8s %9s %9s  %s\n", p["name"].get<std::string>().c_str(),
                p["role"].get<std::string>().c_str(), pid > 0 ? std::to_string(pid).c_str() : "-",
                up.c_str(), memory.c_str(),
                (p["state"].get<std::string>() +
                 (p.contains("error") ? ": " + p["error"].get<std::string>() : ""))
                    .c_str());
  }
}

void ShowStreams(const json& cell) {
  if (cell["streams"].empty()) std::printf("  no streams\n");
  for (const auto& stream : cell["streams"]) {
    const std::string name = stream["stream"].get<std::string>();
    const std::string source = stream["source"].get<std::string>();
    if (stream.contains("error")) {
      std::printf("  stream %s: %s\n", name.c_str(), stream["error"].get<std::string>().c_str());
    }
    for (const auto& shard : stream["shards"]) {
      std::string text =
          "  stream " + name + "/" + std::to_string(shard["shard"].get<int32_t>()) + ": ";
      if (shard.contains("error")) {
        text += shard["error"].get<std::string>();
      } else if (!shard.contains("messages")) {
        text += shard["state"] == "locating" ? "its head was not found in time" : "no messages yet";
        if (shard.contains("lacking")) {
          text += ", " + LackingText(shard["lacking"], source == cell["name"]);
        }
      } else {
        text += std::to_string(shard["messages"].get<int64_t>()) + " messages, " +
                BytesText(shard["bytes"].get<int64_t>());
        if (shard.contains("lacking")) {
          // How far the newest is says nothing of what is missing before it.
          text += ", " + LackingText(shard["lacking"], source == cell["name"]);
        } else if (shard.contains("behind_bytes")) {
          text += ", " + BytesText(shard["behind_bytes"].get<int64_t>()) + " behind the source";
        } else if (source == cell["name"]) {
          text += ", source";
        }
        if (shard.contains("age_ms")) {
          text += ", as of " + TimeText(static_cast<double>(shard["age_ms"].get<int64_t>()) / 1e3) +
                  " ago";
        }
      }
      std::printf("%s\n", text.c_str());
    }
    if (const int32_t more = stream.value("shards_not_shown", 0); more > 0) {
      std::printf("  stream %s: %d more shards\n", name.c_str(), more);
    }
  }
}

// What keeps files from going, and for whom none are kept, as the source of a stream knows.
void ShowRetention(const json& cell) {
  const json& waits = cell.value("retention_waits", json::array());
  for (size_t i = 0; i < std::min(waits.size(), kWaitsShownMax); ++i) {
    const json& wait = waits[i];
    const auto file = wait.value("lacking_file", int64_t{0});
    std::printf("  stream %s, shard %d: old files stay for cell %s, which %s, for %s\n",
                wait.value("stream", "").c_str(), wait.value("shard", 0),
                wait.value("cell", "").c_str(),
                file == 0 ? "has not answered" : ("lacks file " + std::to_string(file)).c_str(),
                TimeText(wait.value("for_ms", 0.0) / 1e3).c_str());
  }
  if (waits.size() > kWaitsShownMax) {
    std::printf("  %zu more shards keep old files; --json has them all\n",
                waits.size() - kWaitsShownMax);
  }
  for (const json& out : cell["left_out"]) {
    std::printf("  stream %s: nothing is kept for cell %s until it answers again\n",
                out.value("stream", "").c_str(), out.value("cell", "").c_str());
  }
}

void ShowHops(const json& cell) {
  // "confirmed in": from when a byte was there to when the next cell said that it has it.
  if (!cell["hops"].empty()) {
    std::printf("  %-27s %-7s %7s %9s %9s %12s\n", "hop to", "layer", "running", "behind", "for",
                "confirmed in");
  }
  for (const auto& hop : cell["hops"]) {
    std::printf("  %-27s %-7s %7d %9s %9s %12s\n", hop["to"].get<std::string>().c_str(),
                hop["layer"].get<std::string>().c_str(), hop["operations"].get<int>(),
                BytesText(hop["lag_bytes"].get<int64_t>()).c_str(),
                TimeText(hop["lag_ms"].get<double>() / 1e3).c_str(),
                TimeText(hop["confirmed_after_ms"].get<double>() / 1e3).c_str());
  }
  size_t shown = 0, unfinished = 0;
  for (const auto& op : cell["operations"]) {
    const std::string phase = op.value("phase", "");
    if (phase == "done") continue;
    ++unfinished;
    if (shown == kOperationsShownMax) continue;
    if (++shown == 1) {
      std::printf("  %-13s %-12s %-7s %-8s %-8s %-8s %s\n", "operation", "to", "layer", "phase",
                  "reader", "writer", "written/there");
    }
    char line[600];
    std::snprintf(line, sizeof line, "  %-13s %-12s %-7s %-8s %-8s %-8s ",
                  (op.value("stream", "") + "/" + std::to_string(op.value("shard", 0)) + " #" +
                   std::to_string(op.value("file", int64_t{0})))
                      .c_str(),
                  op.value("target", "").c_str(), op.value("layer", "").c_str(), phase.c_str(),
                  op.value("reader", "").c_str(), op.value("writer", "").c_str());
    std::string text = line;
    // What is known of the source may be older than what the writer said.
    const int64_t written = op.value("written_bytes", int64_t{0});
    const int64_t source = op.value("source_bytes", int64_t{0});
    if (written > 0 || source > 0) {
      text += BytesText(written) + "/" + BytesText(std::max(written, source));
    } else if (phase == "running") {
      text += op.value("layer", "") == "cache" ? "nothing cached" : "0 B";
    } else {
      text += "-";  // nobody has said anything yet
    }
    // What was wrong is of interest until it gets on again.
    const int failures = op.value("failures", 0);
    if (failures > 0) text += ", failed " + std::to_string(failures) + " times";
    const std::string message = op.value("message", "");
    if ((failures > 0 || phase == "given up") && !message.empty()) text += ": " + message;
    std::printf("%s\n", text.c_str());
  }
  if (unfinished > shown)
    std::printf("  %zu more operations; --json has them all\n", unfinished - shown);
}

// Which replicas of the metadata cache have what they should (src/cell/cache_members.h), and what
// keeps the others.
void ShowCaches(const json& cell) {
  const json& ring = cell["metadata_cache"];
  const json& replicas = ring["replicas"];
  // Nobody knows which memcached servers began anew.
  if (replicas.empty() || memcached::IsReplicaName(replicas[0]["name"].get<std::string>())) return;
  size_t whole = 0;
  std::string others;
  for (const json& replica : replicas) {
    if (replica["whole"]) {
      ++whole;
      continue;
    }
    std::string why = replica["there"] ? "" : " is down";
    for (const json& process : cell["processes"]) {
      if (!why.empty() || process["name"] != replica["name"] || !process.contains("status") ||
          !process["status"].is_object()) {
        continue;
      }
      why = " " + process["status"].value("metadata_cache", json::object()).value("repair", "");
    }
    others += "    " + replica["name"].get<std::string>() + why + "\n";
  }
  std::printf("  metadata cache: epoch %" PRIu64 ", %zu of %zu replicas whole\n%s",
              ring["epoch"].get<uint64_t>(), whole, replicas.size(), others.c_str());
}

// Over which driver of the fabric each process reads the caches, and why.
void ShowConnections(const json& cell) {
  for (const json* status : StatusOfEach(cell)) {
    std::map<std::pair<std::string, std::string>, std::string> replicas;  // by driver and reason
    for (const char* cache : {"data_cache_client", "metadata_cache_client"}) {
      for (const json& one :
           status->value(cache, json::object()).value("connections", json::array())) {
        const json& way = one["reads"];
        if (!way.is_object()) continue;
        std::string& names = replicas[{way.value("over", ""), way.value("why", "")}];
        const std::string name = one.value("replica", "");
        if ((names + ",").find(" " + name + ",") != std::string::npos) continue;
        names += (names.empty() ? " " : ", ") + name;
      }
    }
    for (const auto& [way, names] : replicas) {
      std::printf("  %s reads%s over %s (%s)\n", status->value("name", "").c_str(), names.c_str(),
                  way.first.c_str(), way.second.c_str());
    }
  }
}

void Show(const json& cell) {
  if (cell.contains("error")) {
    std::printf("%s: %s\n\n", cell["name"].get<std::string>().c_str(),
                cell["error"].get<std::string>().c_str());
    return;
  }
  std::printf("%s   scheduler %s, incarnation %" PRIu64 "\n",
              cell["name"].get<std::string>().c_str(), cell["scheduler"].get<std::string>().c_str(),
              cell["scheduler_incarnation"].get<uint64_t>());
  ShowProcesses(cell);
  ShowCaches(cell);
  ShowConnections(cell);
  ShowStreams(cell);
  ShowRetention(cell);
  ShowHops(cell);
  const int64_t from_cache = Sum(cell, kReadBytes, "origin", "cache");
  const int64_t from_primary = Sum(cell, kReadBytes, "origin", "primary");
  if (from_cache + from_primary > 0) {
    std::printf(
        "  readers: %.1f %% of %s from the cache, %s from the primary layer\n",
        100.0 * static_cast<double>(from_cache) / static_cast<double>(from_cache + from_primary),
        BytesText(from_cache + from_primary).c_str(), BytesText(from_primary).c_str());
  }
  if (const int64_t reads = SumCache(cell, "reads"); reads > 0) {
    std::printf("  cache reads: %" PRId64 ", %.1f %% hits, %" PRId64 " short, %" PRId64
                " missed, %" PRId64 " torn, %" PRId64 " hedged\n",
                reads,
                100.0 * static_cast<double>(SumCache(cell, "hits")) / static_cast<double>(reads),
                SumCache(cell, "short_reads"), SumCache(cell, "misses"),
                SumCache(cell, "torn_retries"), SumCache(cell, "hedges"));
  }
  std::printf("\n");
}

int ShowStatus(const StatusOptions& options) {
  std::vector<DeploymentCell> cells;
  const auto checked = options.cell.cell.empty() && !options.cell.dir.empty()
                           ? Result<std::string>("")
                           : options.cell.Find();
  if (!checked.ok()) return Fail(checked.status());
  if (!options.cell.cell.empty()) {
    cells.push_back({"", options.cell.cell});
  } else {
    const auto deployment = Deployment::Read(options.cell.dir);
    if (!deployment.ok()) return Fail(deployment.status());
    cells = deployment->cells;
  }
  json all = json::array();
  bool failed = false;
  for (const DeploymentCell& cell : cells) {
    auto status = CellStatus(cell);
    if (status.ok()) {
      all.push_back(std::move(*status));
    } else {
      failed = true;
      all.push_back({{"name", cell.name.empty() ? cell.scheduler : cell.name},
                     {"error", status.status().message()},
                     {"processes", json::array()}});
    }
  }
  CompareHeads(all);
  if (options.json) {
    std::printf("%s\n", json({{"cells", all}}).dump(2).c_str());
  } else {
    for (const auto& cell : all) Show(cell);
  }
  return failed ? kExitFailed : kExitDone;
}

}  // namespace

void AddStatus(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "status", "Processes, heads of the streams, operations, lag per hop, hit rates");
  auto options = std::make_shared<StatusOptions>();
  options->cell.Add(command, false);
  command->add_flag("--json", options->json, "Everything, as JSON");
  command->callback([&action, options] { action = [options] { return ShowStatus(*options); }; });
}

}  // namespace tailcast::app
