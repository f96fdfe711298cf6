#include "tailcast/app/copytree_command.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tailcast/base/nearest.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/cell/link_table.h"
#include "tailcast/cell/topology.h"
#include "tailcast/copytree/change.h"
#include "tailcast/copytree/explain.h"
#include "tailcast/copytree/import.h"
#include "tailcast/copytree/plan.h"
#include "tailcast/copytree/render.h"
#include "tailcast/node/topology_graph.h"

namespace tailcast::app {
namespace {

using copytree::Edge;
using copytree::Graph;
using copytree::Plan;
using copytree::PlanOptions;
using copytree::RenderOptions;
using copytree::Stream;
using copytree::Tree;
using node::PlanStream;
using node::ToGraph;
using node::ToPlanOptions;
using node::ToStream;

constexpr int kDone = 0, kFailed = 1, kUsage = 2;

std::string Format(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

Result<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return ErrnoStatus(errno != 0 ? errno : EIO, "can't read " + path);
  std::stringstream text;
  text << in.rdbuf();
  if (in.bad()) return ErrnoStatus(EIO, "can't read " + path);
  return text.str();
}

Status WriteFile(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) return ErrnoStatus(errno != 0 ? errno : EIO, "can't write " + path);
  return OkStatus();
}

// A name that was mistyped on the command line is bad usage.
Status AsUsage(const Status& status) {
  return IsNotFound(status) ? InvalidArgumentError(status.message()) : status;
}

// Elementary steps of an effort by name or in seconds.
Result<int64_t> WorkOfFlag(const std::string& effort, int clusters) {
  using copytree::Effort;
  if (effort == "quick") return copytree::WorkOf(Effort::kQuick, clusters);
  if (effort == "normal") return copytree::WorkOf(Effort::kNormal, clusters);
  if (effort == "thorough") return copytree::WorkOf(Effort::kThorough, clusters);
  double seconds = 0;
  const char* end = effort.data() + effort.size();
  const auto [stop, error] = std::from_chars(effort.data(), end, seconds);
  if (error != std::errc{} || stop != end || !(seconds >= 0.001 && seconds <= 86400)) {
    return InvalidArgumentError("--effort '" + effort +
                                "' is not quick, normal, thorough or seconds (0.001 to 86400)");
  }
  return std::llround(seconds * 1e9);
}

// Options that several subcommands share.
struct Flags {
  std::string topology;
  std::vector<std::string> streams;
  std::string source;
  std::vector<std::string> destinations;
  std::optional<double> rate_mbps;
  std::optional<int> max_depth, max_fanout;
  std::optional<double> max_delay_ms, hop_delay_ms, churn;
  std::string current;
  std::string effort = "normal";
  double tolerance_percent = 0;
  bool standby = false;
  bool replan = false;
  bool each_source = false;
  bool prim = false;
  bool time = false;
  bool ascii = false;
  std::string format = "text";
  std::string output;
  // explain, simulate, diff
  std::string target;
  std::vector<std::string> fail;
  std::string before, after;
  // import
  std::vector<std::string> tables;
  std::string tier = "PREMIUM";
  bool complete = false;
  std::string table;
  std::vector<std::string> only;
};

// A topology with the flags applied: what to plan.
struct Task {
  cell::Topology topology;
  std::optional<Graph> graph;
  PlanOptions options;
  std::vector<cell::TopologyStream> streams;
};

class Command {
 public:
  Command(std::shared_ptr<Flags> flags, std::ostream& out, std::ostream& err)
      : flags_(std::move(flags)), out_(out), err_(err) {}

  int Run(Status (Command::*what)()) {
    const Status status = (this->*what)();
    if (!status.ok()) {
      err_ << "tailcast: " << status.message() << "\n";
      return IsInvalidArgument(status) ? kUsage : kFailed;
    }
    return found_trouble_ ? kFailed : kDone;
  }

  Status DoPlan();
  Status DoExplain();
  Status DoSimulate();
  Status DoDiff();
  Status DoImport();
  Status DoCheck();

 private:
  Result<Task> Prepare(const std::string& file);
  Result<std::pair<Task, cell::TopologyStream>> PrepareOne(const std::string& file);
  Result<Tree> ReadTree(const std::string& path);
  Result<Plan> PlanOf(const Task& task, const cell::TopologyStream& stream,
                      const PlanOptions& options);
  Status Write(const std::string& text);
  RenderOptions Rendering(const PlanOptions& options) const {
    return {.ascii = flags_->ascii, .standby = nullptr, .limits = options.limits};
  }
  bool Json() const { return flags_->format == "json"; }

  std::shared_ptr<Flags> flags_;
  std::ostream& out_;
  std::ostream& err_;
  bool found_trouble_ = false;
};

Status Command::Write(const std::string& text) {
  if (flags_->output.empty() || flags_->output == "-") {
    errno = 0;
    out_ << text << std::flush;
    // `| head` has seen enough.
    return out_ || errno == EPIPE ? OkStatus() : ErrnoStatus(EIO, "can't write the output");
  }
  return WriteFile(flags_->output, text);
}

Result<Task> Command::Prepare(const std::string& file) {
  const Flags& flags = *flags_;
  Task task;
  TAILCAST_ASSIGN_OR_RETURN(task.topology, cell::LoadTopology(file));
  TAILCAST_ASSIGN_OR_RETURN(Graph graph, ToGraph(task.topology));
  task.graph.emplace(std::move(graph));
  task.options = ToPlanOptions(task.topology);
  if (flags.max_depth) task.options.limits.max_depth = *flags.max_depth;
  if (flags.max_fanout) task.options.limits.max_fanout = *flags.max_fanout;
  if (flags.max_delay_ms) task.options.limits.max_delay_ms = *flags.max_delay_ms;
  if (flags.hop_delay_ms) task.options.hop_delay_ms = *flags.hop_delay_ms;
  if (flags.churn) task.options.churn_usd_per_gb = *flags.churn;
  TAILCAST_ASSIGN_OR_RETURN(task.options.work_max, WorkOfFlag(flags.effort, task.graph->size()));
  task.options.gap = flags.tolerance_percent / 100;

  if (flags.each_source) {
    for (const copytree::Cluster& cluster : task.graph->clusters()) {
      if (cluster.relay_only) continue;
      cell::TopologyStream stream;
      stream.name = stream.source = cluster.name;
      task.streams.push_back(std::move(stream));
    }
  } else if (!flags.source.empty()) {
    TAILCAST_RETURN_IF_ERROR(AsUsage(task.graph->Require(flags.source, "--source").status()));
    cell::TopologyStream stream;
    stream.source = flags.source;
    if (flags.streams.size() == 1) stream.name = flags.streams[0];
    task.streams.push_back(std::move(stream));
  } else if (!flags.streams.empty()) {
    std::vector<std::string> known;
    for (const cell::TopologyStream& stream : task.topology.streams) known.push_back(stream.name);
    for (const std::string& name : flags.streams) {
      const cell::TopologyStream* stream = task.topology.FindStream(name);
      if (stream == nullptr) {
        return InvalidArgumentError("--stream '" + name + "' is not in " + file +
                                    DidYouMean(name, known));
      }
      task.streams.push_back(*stream);
    }
  } else {
    task.streams = task.topology.streams;
  }
  for (cell::TopologyStream& stream : task.streams) {
    if (!flags.destinations.empty()) stream.destinations = flags.destinations;
    if (flags.rate_mbps) stream.rate_mbps = *flags.rate_mbps;
    if (flags.replan) stream.tree.clear();
    for (const std::string& name : stream.destinations) {
      TAILCAST_RETURN_IF_ERROR(AsUsage(task.graph->Require(name, "destination").status()));
    }
  }
  return task;
}

Result<std::pair<Task, cell::TopologyStream>> Command::PrepareOne(const std::string& file) {
  TAILCAST_ASSIGN_OR_RETURN(Task task, Prepare(file));
  if (task.streams.empty()) {
    return InvalidArgumentError(file +
                                " has no streams; say where the stream comes from with "
                                "--source CLUSTER");
  }
  if (task.streams.size() > 1) {
    std::string names;
    for (const cell::TopologyStream& stream : task.streams) {
      names += (names.empty() ? "" : ", ") + stream.name;
    }
    return InvalidArgumentError(file + " has several streams (" + names +
                                "); choose one with --stream");
  }
  cell::TopologyStream stream = task.streams[0];
  return std::make_pair(std::move(task), std::move(stream));
}

// A tree out of a plan in JSON.
Result<Tree> Command::ReadTree(const std::string& path) {
  TAILCAST_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_array() && json.size() == 1) json = json[0];
  const auto wrong = [&](const std::string& what) {
    return InvalidArgumentError(path + ": " + what +
                                "; a plan as `tailcast copytree plan --format json` prints it is "
                                "needed");
  };
  if (json.is_discarded()) return wrong("not JSON");
  if (json.is_array()) return wrong("several plans");
  if (!json.is_object() || !json["source"].is_string() || !json["hops"].is_array()) {
    return wrong("no 'source' or no 'hops'");
  }
  Tree tree;
  tree.source = json["source"];
  for (const nlohmann::json& hop : json["hops"]) {
    if (!hop.is_object() || !hop.contains("from") || !hop.contains("to") ||
        !hop["from"].is_string() || !hop["to"].is_string()) {
      return wrong("a hop without 'from' and 'to'");
    }
    tree.edges.push_back({hop["from"], hop["to"]});
  }
  Result<Tree> normal = copytree::Normalized(tree);
  if (!normal.ok()) return InvalidArgumentError(path + ": " + normal.status().message());
  return normal;
}

Result<Plan> Command::PlanOf(const Task& task, const cell::TopologyStream& stream,
                             const PlanOptions& options) {
  Result<Plan> plan = PlanStream(*task.graph, stream, options);
  if (!plan.ok() && !stream.name.empty()) {
    return plan.status().WithContext("stream '" + stream.name + "'");
  }
  return plan;
}

Status Command::DoPlan() {
  TAILCAST_ASSIGN_OR_RETURN(Task task, Prepare(flags_->topology));
  if (task.streams.empty()) {
    return InvalidArgumentError(flags_->topology +
                                " has no streams; say where the stream comes from with --source "
                                "CLUSTER");
  }
  const bool drawn = flags_->format == "dot" || flags_->format == "svg";
  if (drawn && task.streams.size() > 1) {
    return InvalidArgumentError("--format " + flags_->format +
                                " draws one stream; choose it with --stream");
  }
  if (!flags_->current.empty()) {
    TAILCAST_ASSIGN_OR_RETURN(task.options.current, ReadTree(flags_->current));
  }
  std::string text;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const cell::TopologyStream& stream : task.streams) {
    const Stream named = ToStream(stream);
    std::optional<Plan> plan, standby;
    bool both_directions = true;
    const MonotonicTime began = ReadMonotonicClock();
    const std::clock_t cpu_began = std::clock();
    if (flags_->prim) {
      TAILCAST_ASSIGN_OR_RETURN(plan, copytree::PrimPlan(*task.graph, named, task.options));
    } else if (flags_->standby) {
      Result<copytree::PlanPair> pair = copytree::MakePlanPair(*task.graph, named, task.options);
      if (!pair.ok()) return pair.status();
      plan = std::move(pair->primary);
      standby = std::move(pair->standby);
      both_directions = pair->avoids_both_directions;
    } else {
      TAILCAST_ASSIGN_OR_RETURN(plan, PlanOf(task, stream, task.options));
    }
    const double plan_ms = static_cast<double>((ReadMonotonicClock() - began).micros()) / 1000;
    const double cpu_ms = 1000.0 * static_cast<double>(std::clock() - cpu_began) / CLOCKS_PER_SEC;
    RenderOptions rendering = Rendering(task.options);
    if (standby) rendering.standby = &*standby;
    if (flags_->format == "text") {
      if (!text.empty()) text += "\n";
      if (!stream.name.empty()) text += "stream " + stream.name + "\n";
      text += copytree::PlanText(named, *plan, rendering);
      if (standby && !both_directions) {
        text += "note      the standby uses some links against the first tree's direction\n";
      }
      if (flags_->time)
        text += "planned   in " + Format("%.1f", plan_ms) + " ms (" + Format("%.1f", cpu_ms) +
                " ms of processor time)\n";
    } else if (Json()) {
      all.push_back(nlohmann::ordered_json::parse(copytree::PlanJson(named, *plan, rendering)));
      if (flags_->time) {
        all.back()["plan_ms"] = plan_ms;
        all.back()["plan_cpu_ms"] = cpu_ms;
      }
    } else if (flags_->format == "dot") {
      text = copytree::PlanDot(named, *plan, rendering);
    } else {
      text = copytree::PlanSvg(named, *plan, rendering);
    }
    // The next stream finds the links as full as this one leaves them.
    if (flags_->each_source) continue;
    for (const copytree::LinkLoad& load : plan->loads) {
      copytree::LinkLoad own = load;
      own.mbps = named.rate_mbps * copytree::kCopiesPerHop;
      task.options.reserved.push_back(own);
    }
  }
  if (Json()) text = (all.size() == 1 ? all[0] : all).dump(2) + "\n";
  return Write(text);
}

Status Command::DoExplain() {
  TAILCAST_ASSIGN_OR_RETURN(auto prepared, PrepareOne(flags_->topology));
  const auto& [task, stream] = prepared;
  TAILCAST_ASSIGN_OR_RETURN(const Plan plan, PlanOf(task, stream, task.options));
  std::string cluster = flags_->target;
  if (!task.graph->Find(cluster)) {
    // An edge: its lower end, if the tree has it.
    Result<std::vector<Edge>> links = copytree::ParseLinks(*task.graph, cluster);
    if (!links.ok()) return links.status();
    bool used = false;
    for (const Edge& edge : *links) {
      if (plan.tree.HasEdge(edge.from, edge.to)) {
        cluster = edge.to;
        used = true;
      }
    }
    if (!used) {
      const Edge& edge = links->front();
      const std::string parent = plan.tree.ParentOf(edge.to);
      return NotFoundError(
          "the tree does not use " + edge.from + " -> " + edge.to + "; '" + edge.to +
          (parent.empty() ? "' is not fed in it" : "' is fed from '" + parent + "'"));
    }
  }
  TAILCAST_ASSIGN_OR_RETURN(
      const copytree::Explanation why,
      copytree::Explain(*task.graph, ToStream(stream), task.options, plan, cluster));
  if (Json()) {
    nlohmann::ordered_json json;
    json["from"] = why.hop.from;
    json["to"] = why.hop.to;
    json["usd_per_gb"] = why.hop.usd_per_gb;
    json["arrival_ms"] = why.hop.arrival_ms;
    json["reason"] = why.reason;
    json["alternatives"] = nlohmann::ordered_json::array();
    for (const copytree::Alternative& other : why.alternatives) {
      json["alternatives"].push_back({{"from", other.from},
                                      {"usd_per_gb", other.usd_per_gb},
                                      {"extra_usd_per_gb", other.extra_usd_per_gb},
                                      {"arrival_ms", other.arrival_ms},
                                      {"blocked", other.blocked}});
    }
    if (why.next_best) {
      json["next_best"] = nlohmann::ordered_json::parse(
          copytree::PlanJson(ToStream(stream), *why.next_best, Rendering(task.options)));
    } else {
      json["next_best"] = nullptr;
      json["irreplaceable"] = why.irreplaceable;
    }
    return Write(json.dump(2) + "\n");
  }
  std::string text = why.hop.from + " -> " + why.hop.to + "  " +
                     Format("%.4f", why.hop.usd_per_gb) + " USD/GB, arrives after " +
                     Format("%.1f", why.hop.arrival_ms) + " ms\n" + why.reason + "\n";
  if (!why.alternatives.empty()) text += "\nother parents for " + why.hop.to + "\n";
  size_t shown = 0;
  constexpr size_t kShown = 12;
  size_t width = 0;
  for (const copytree::Alternative& other : why.alternatives) {
    if (shown++ < kShown) width = std::max(width, other.from.size());
  }
  shown = 0;
  for (const copytree::Alternative& other : why.alternatives) {
    if (shown++ == kShown) {
      text +=
          "  and " + std::to_string(why.alternatives.size() - kShown) + " dearer or equal ones\n";
      break;
    }
    text += "  " + other.from + std::string(width - other.from.size(), ' ') + "  " +
            Format("%.4f", other.usd_per_gb) + " USD/GB (" +
            Format("%+.4f", other.extra_usd_per_gb) + ")" + Format("%9.1f", other.arrival_ms) +
            " ms" + (other.blocked.empty() ? "" : "  no: " + other.blocked) + "\n";
  }
  if (why.next_best) {
    text += "\nthe best tree without it: " + Format("%.4f", why.next_best->usd_per_gb) +
            " USD/GB (" + Format("%+.4f", why.next_best->usd_per_gb - plan.usd_per_gb) +
            "), worst delay " + Format("%.1f", why.next_best->worst_delay_ms) + " ms, " +
            why.hop.to + " fed from " + why.next_best->tree.ParentOf(why.hop.to) + "\n";
  }
  return Write(text);
}

Status Command::DoSimulate() {
  TAILCAST_ASSIGN_OR_RETURN(auto prepared, PrepareOne(flags_->topology));
  auto& [task, stream] = prepared;
  TAILCAST_ASSIGN_OR_RETURN(const Plan before, PlanOf(task, stream, task.options));
  std::string what;
  for (const std::string& text : flags_->fail) {
    if (!what.empty()) what += ", ";
    if (task.graph->Find(text)) {
      if (text == stream.source) {
        return InvalidArgumentError("'" + text +
                                    "' is the source; when it fails nothing is produced");
      }
      TAILCAST_RETURN_IF_ERROR(task.graph->SetHealth(text, copytree::Health::kSick));
      what += "cluster " + text;
      continue;
    }
    TAILCAST_ASSIGN_OR_RETURN(const std::vector<Edge> links,
                              copytree::ParseLinks(*task.graph, text));
    for (const Edge& link : links) {
      TAILCAST_RETURN_IF_ERROR(task.graph->SetLinkSick(link.from, link.to, true));
    }
    what += "link " + links[0].from + (links.size() == 2 ? " <-> " : " -> ") + links[0].to;
  }
  PlanOptions options = task.options;
  options.current = before.tree;
  cell::TopologyStream planned = stream;
  planned.tree.clear();  // a failure overrides a tree fixed by hand
  TAILCAST_ASSIGN_OR_RETURN(const Plan after, PlanOf(task, planned, options));
  TAILCAST_ASSIGN_OR_RETURN(
      const std::vector<copytree::Step> steps,
      copytree::Diff(before.tree, after.tree,
                     {.reroutes = after.reroutes, .reroutes_before = before.reroutes}));
  if (Json()) {
    nlohmann::ordered_json json;
    json["failed"] = flags_->fail;
    json["before"] = nlohmann::ordered_json::parse(copytree::PlanJson(ToStream(stream), before));
    json["after"] = nlohmann::ordered_json::parse(copytree::PlanJson(ToStream(stream), after));
    json["steps"] = nlohmann::ordered_json::parse(copytree::StepsJson(steps));
    return Write(json.dump(2) + "\n");
  }
  const RenderOptions rendering = Rendering(task.options);
  std::string text =
      "before\n" + copytree::PlanText(ToStream(stream), before, rendering) + "\nafter " + what +
      " failed\n" + copytree::PlanText(ToStream(stream), after, rendering) + "\nextra     " +
      Format("%+.4f", after.usd_per_gb - before.usd_per_gb) + " USD/GB, worst delay " +
      Format("%+.1f", after.worst_delay_ms - before.worst_delay_ms) + " ms\n\nsteps\n" +
      copytree::StepsText(steps);
  return Write(text);
}

Status Command::DoDiff() {
  // Each side: a plan in JSON, or a topology to be planned.
  std::optional<Tree> trees[2];
  std::optional<Plan> plans[2];
  const std::string files[2] = {flags_->before, flags_->after};
  for (int side = 0; side < 2; ++side) {
    TAILCAST_ASSIGN_OR_RETURN(const std::string text, ReadFile(files[side]));
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && (text[first] == '{' || text[first] == '[')) {
      TAILCAST_ASSIGN_OR_RETURN(trees[side], ReadTree(files[side]));
      continue;
    }
    TAILCAST_ASSIGN_OR_RETURN(auto prepared, PrepareOne(files[side]));
    auto& [task, stream] = prepared;
    if (side == 1 && trees[0]) task.options.current = trees[0];
    TAILCAST_ASSIGN_OR_RETURN(plans[side], PlanOf(task, stream, task.options));
    trees[side] = plans[side]->tree;
  }
  std::vector<std::string> fresh;
  std::vector<copytree::Reroute> reroutes, reroutes_before;
  if (plans[1]) {
    for (const copytree::Hop& hop : plans[1]->hops) {
      if (hop.rate_limited) fresh.push_back(hop.to);
    }
    reroutes = plans[1]->reroutes;
  }
  if (plans[0]) reroutes_before = plans[0]->reroutes;
  TAILCAST_ASSIGN_OR_RETURN(
      const std::vector<copytree::Step> steps,
      copytree::Diff(
          *trees[0], *trees[1],
          {.new_clusters = fresh, .reroutes = reroutes, .reroutes_before = reroutes_before}));
  if (Json()) return Write(copytree::StepsJson(steps));
  std::string text = copytree::StepsText(steps);
  if (plans[0] && plans[1]) {
    text += "\ncost      " + Format("%.4f", plans[0]->usd_per_gb) + " -> " +
            Format("%.4f", plans[1]->usd_per_gb) + " USD/GB\n";
  }
  return Write(text);
}

Status Command::DoImport() {
  std::vector<copytree::CsvTable> tables;
  for (const std::string& path : flags_->tables) {
    TAILCAST_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
    tables.push_back({path, std::move(text)});
  }
  TAILCAST_ASSIGN_OR_RETURN(
      const copytree::Imported imported,
      copytree::ImportTables(
          tables, {.tier = flags_->tier, .complete = flags_->complete, .only = flags_->only}));
  cell::Topology topology;
  for (const copytree::Cluster& cluster : imported.clusters) {
    topology.clusters.push_back({.name = cluster.name});
  }
  for (const copytree::Link& link : imported.links) {
    topology.links.push_back({.from = link.from,
                              .to = link.to,
                              .usd_per_gb = link.usd_per_gb,
                              .rtt_ms = link.rtt_ms,
                              .bandwidth_gbps = link.bandwidth_gbps});
  }
  if (flags_->max_depth) topology.max_depth = *flags_->max_depth;
  if (flags_->max_fanout) topology.max_fanout = *flags_->max_fanout;
  if (flags_->max_delay_ms) topology.max_delay_ms = *flags_->max_delay_ms;
  if (flags_->hop_delay_ms) topology.hop_delay_ms = *flags_->hop_delay_ms;
  for (const std::string& note : imported.notes) err_ << "note: " << note << "\n";
  std::vector<std::string> tables_out;
  std::string name = "the imported topology";
  if (!flags_->table.empty()) {
    TAILCAST_RETURN_IF_ERROR(WriteFile(flags_->table, cell::LinkTableText(topology.links)));
    // The topology finds its table from where it lies itself.
    std::filesystem::path folder = std::filesystem::path(flags_->output).parent_path();
    if (folder.empty()) folder = ".";
    tables_out = {std::filesystem::proximate(flags_->table, folder).string()};
    name = (folder / name).string();
  }
  const std::string text = cell::TopologyText(topology, tables_out);
  // What was written must be readable; a name that YAML or the topology refuses shows here.
  if (Result<cell::Topology> again = cell::ParseTopology(text, name); !again.ok()) {
    return again.status();
  }
  err_ << imported.clusters.size() << " clusters, " << imported.links.size() << " links\n";
  return Write(text);
}

Status Command::DoCheck() {
  TAILCAST_ASSIGN_OR_RETURN(Task task, Prepare(flags_->topology));
  std::string text = flags_->topology + ": " + std::to_string(task.graph->size()) + " clusters, " +
                     std::to_string(task.graph->links().size()) + " links, " +
                     std::to_string(task.streams.size()) +
                     (task.streams.size() == 1 ? " stream\n" : " streams\n");
  nlohmann::ordered_json json;
  json["clusters"] = task.graph->size();
  json["links"] = task.graph->links().size();
  json["streams"] = nlohmann::ordered_json::array();
  for (const cell::TopologyStream& stream : task.streams) {
    const std::string name = stream.name.empty() ? "from " + stream.source : stream.name;
    const Result<Plan> plan = PlanStream(*task.graph, stream, task.options);
    nlohmann::ordered_json entry = {{"name", name}, {"ok", plan.ok()}};
    if (!plan.ok()) {
      found_trouble_ = true;
      text += "FAILED  " + name + ": " + plan.status().message() + "\n";
      entry["error"] = plan.status().message();
      json["streams"].push_back(std::move(entry));
      continue;
    }
    text += "ok      " + name + ": " + (stream.tree.empty() ? "" : "tree fixed by hand, ") +
            Format("%.4f", plan->usd_per_gb) + " USD/GB, depth " + std::to_string(plan->depth) +
            ", fan-out " + std::to_string(plan->fanout) + ", worst delay " +
            Format("%.1f", plan->worst_delay_ms) + " ms\n";
    if (!stream.tree.empty() && !plan->optimal) {
      const Result<Plan> best = copytree::MakePlan(*task.graph, ToStream(stream), task.options);
      if (best.ok() && best->usd_per_gb < plan->usd_per_gb) {
        text += "note    " + name + ": a planned tree would cost " +
                Format("%.4f", best->usd_per_gb) + " USD/GB\n";
      }
    }
    // Can it survive the loss of any one link?
    if (Result<copytree::PlanPair> pair =
            copytree::MakePlanPair(*task.graph, ToStream(stream), task.options);
        !pair.ok()) {
      text += "note    " + name + ": " + pair.status().message() + "\n";
      entry["standby"] = false;
    } else {
      entry["standby"] = true;
    }
    for (const std::string& warning : plan->warnings)
      text += "warning " + name + ": " + warning + "\n";
    entry["usd_per_gb"] = plan->usd_per_gb;
    entry["warnings"] = plan->warnings;
    json["streams"].push_back(std::move(entry));
    for (const copytree::LinkLoad& load : plan->loads) {
      copytree::LinkLoad own = load;
      own.mbps = stream.rate_mbps * copytree::kCopiesPerHop;
      task.options.reserved.push_back(own);
    }
  }
  return Write(Json() ? json.dump(2) + "\n" : text);
}

}  // namespace

void AddCopytreeCommand(CLI::App& app, std::function<int()>& action, std::ostream& out,
                        std::ostream& err) {
  CLI::App* copytree = app.add_subcommand(
      "copytree", "Plan the trees along which streams are copied between clusters");
  copytree->require_subcommand(1);
  const auto flags = std::make_shared<Flags>();
  const auto add = [&](const char* name, const char* text, Status (Command::*what)()) {
    CLI::App* command = copytree->add_subcommand(name, text);
    command->callback([&action, flags, what, &out, &err] {
      action = [flags, what, &out, &err] { return Command(flags, out, err).Run(what); };
    });
    return command;
  };
  const auto topology = [&](CLI::App* command) {
    command->add_option("--topology", flags->topology, "Topology file (YAML)")->required();
  };
  const auto planning = [&](CLI::App* command) {
    command->add_option("--stream", flags->streams, "Stream of the topology; default: all");
    command->add_option("--source", flags->source,
                        "Source, for a stream that the file does not have");
    command
        ->add_option("--destinations", flags->destinations,
                     "Clusters that need it; default: all but relays")
        ->delimiter(',');
    command->add_option("--rate-mbps", flags->rate_mbps,
                        "Mbit/s of the stream, for USD per day and loads");
    command->add_option("--max-depth", flags->max_depth, "At most this many hops (1 to 32)");
    command->add_option("--max-fanout", flags->max_fanout,
                        "At most so many children each; 0 = no limit");
    command->add_option("--max-delay-ms", flags->max_delay_ms,
                        "At most this one-way delay; 0 = no limit");
    command->add_option("--hop-delay-ms", flags->hop_delay_ms,
                        "What a hop adds to half the round trip");
    command
        ->add_option(
            "--effort", flags->effort,
            "quick, normal, thorough, or seconds: how long to search at most. It is counted "
            "in steps of about 1 ns, so the same effort gives the same tree")
        ->capture_default_str();
    command
        ->add_option("--tolerance", flags->tolerance_percent,
                     "Good enough: percent above the proven bound at which the search ends")
        ->check(CLI::Range(0.0, 100.0))
        ->capture_default_str();
    command->add_option("--churn", flags->churn, "USD per GB that changing one edge must save");
    command->add_flag("--replan", flags->replan, "Ignore trees fixed by hand in the file");
  };
  const auto output = [&](CLI::App* command, const std::vector<std::string>& formats) {
    command->add_option("--format", flags->format, "Output format")
        ->check(CLI::IsMember(formats))
        ->capture_default_str();
    command->add_option("-o,--output", flags->output,
                        "Write to this file instead of standard output");
    command->add_flag("--ascii", flags->ascii, "Draw trees with ASCII characters only");
  };

  CLI::App* plan = add("plan", "The cheapest tree within the limits", &Command::DoPlan);
  topology(plan);
  planning(plan);
  plan->add_option("--current", flags->current, "The running tree (JSON): change only what pays");
  plan->add_flag("--each-source", flags->each_source,
                 "One tree from each cluster in turn, each alone");
  plan->add_flag("--prim", flags->prim, "For comparison: Prim's algorithm, same limits");
  plan->add_flag("--time", flags->time, "Print how long planning took");
  plan->add_flag("--standby", flags->standby, "Also a second tree that shares no link with it");
  output(plan, {"text", "json", "dot", "svg"});

  CLI::App* explain = add("explain", "Why an edge is in the tree, and what the next best costs",
                          &Command::DoExplain);
  explain->add_option("edge", flags->target, "A cluster (the edge into it), FROM->TO, FROM-TO")
      ->required();
  topology(explain);
  planning(explain);
  output(explain, {"text", "json"});

  CLI::App* simulate =
      add("simulate", "What a failure changes: the tree before and after, edges, consumers",
          &Command::DoSimulate);
  simulate->add_option("--fail", flags->fail, "A cluster, FROM->TO, or FROM-TO for both directions")
      ->required();
  topology(simulate);
  planning(simulate);
  output(simulate, {"text", "json"});

  CLI::App* diff =
      add("diff", "The make-before-break steps from one tree to another", &Command::DoDiff);
  diff->add_option("before", flags->before, "A plan in JSON, or a topology to be planned")
      ->required();
  diff->add_option("after", flags->after, "The same")->required();
  planning(diff);
  output(diff, {"text", "json"});

  CLI::App* import =
      add("import", "Make a topology out of price, round-trip and throughput tables (CSV)",
          &Command::DoImport);
  import->add_option("tables", flags->tables, "CSV: from,to and usd_per_gb, rtt_ms, bandwidth_gbps")
      ->required();
  import->add_option("--tier", flags->tier, "Network tier, where tables have one; empty: all")
      ->capture_default_str();
  import->add_flag("--complete", flags->complete,
                   "Keep only clusters with values between all of them");
  import->add_option("--clusters", flags->only, "Keep only these clusters")->delimiter(',');
  import->add_option("--table", flags->table,
                     "Write the links into this CSV, and only its name into the topology: for "
                     "hundreds of clusters");
  import->add_option("--max-depth", flags->max_depth, "Limit to write into the topology");
  import->add_option("--max-fanout", flags->max_fanout, "Limit to write into the topology");
  import->add_option("--max-delay-ms", flags->max_delay_ms, "Limit to write into the topology");
  import->add_option("--hop-delay-ms", flags->hop_delay_ms, "Written into the topology");
  import->add_option("-o,--output", flags->output, "Write to this file instead of standard output");

  CLI::App* check =
      add("check", "Read a topology and see whether each stream has a tree", &Command::DoCheck);
  topology(check);
  planning(check);
  output(check, {"text", "json"});
}

}  // namespace tailcast::app
