#include "tailcast/app/copytree_session.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tailcast/base/nearest.h"
#include "tailcast/node/topology_graph.h"

namespace tailcast::app {

namespace {

using copytree::Graph;
using copytree::Plan;
using copytree::PlanOptions;
using copytree::Tree;
using node::PlanStream;
using node::ToGraph;
using node::ToPlanOptions;

constexpr int kDone = 0, kFailed = 1, kUsage = 2;

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

// NAME:KEY=VALUE,KEY=VALUE: what the topology could say of the cluster.
Status ApplyClusterLimit(const std::string& text, cell::Topology* topology) {
  const auto wrong = [&](const std::string& what) {
    return InvalidArgumentError("--cluster-limit '" + text + "': " + what);
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size()) {
    return wrong("give NAME:max_fanout=N, or another limit");
  }
  const std::string name = text.substr(0, colon);
  const std::vector<std::string> known = topology->ClusterNames();
  const auto named = std::find(known.begin(), known.end(), name);
  if (named == known.end()) {
    return wrong("'" + name + "' is not a cluster" + DidYouMean(name, known));
  }
  cell::TopologyCluster& cluster = topology->clusters[static_cast<size_t>(named - known.begin())];
  std::stringstream limits(text.substr(colon + 1));
  for (std::string limit; std::getline(limits, limit, ',');) {
    const size_t equals = limit.find('=');
    const std::string key = limit.substr(0, equals);
    const std::vector<std::string> keys = {"max_depth", "max_fanout", "max_egress_mbps"};
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return wrong("'" + key + "' is not max_depth, max_fanout or max_egress_mbps" +
                   DidYouMean(key, keys));
    }
    const std::string number = equals == std::string::npos ? "" : limit.substr(equals + 1);
    double value = 0;
    const char* end = number.data() + number.size();
    const auto [stop, error] = std::from_chars(number.data(), end, value);
    const double most = key == "max_depth" ? 32 : key == "max_fanout" ? 1e6 : 1e9;
    const bool whole = key == "max_egress_mbps" || value == std::floor(value);
    if (error != std::errc{} || stop != end || !(value >= 0 && value <= most) || !whole) {
      return wrong(key + " must be " + (key == "max_egress_mbps" ? "a" : "a whole") +
                   " number from 0 to " + FormatNumber("%g", most));
    }
    if (key == "max_depth") cluster.max_depth = static_cast<int>(value);
    if (key == "max_fanout") cluster.max_fanout = static_cast<int>(value);
    if (key == "max_egress_mbps") cluster.max_egress_mbps = value;
  }
  return OkStatus();
}

}  // namespace

std::string FormatNumber(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

Result<std::string> ReadWholeFile(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    return InvalidArgumentError(path + " is a folder; name the file in it");
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return ErrnoStatus(errno != 0 ? errno : EIO, "can't read " + path);
  std::stringstream text;
  text << in.rdbuf();
  if (in.bad()) return ErrnoStatus(EIO, "can't read " + path);
  return text.str();
}

Status WriteWholeFile(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) return ErrnoStatus(errno != 0 ? errno : EIO, "can't write " + path);
  return OkStatus();
}

Status InStream(const cell::TopologyStream& stream, const Status& status) {
  return stream.name.empty() ? status : status.WithContext("stream '" + stream.name + "'");
}

int CopytreeSession::Run(Status (CopytreeSession::*what)()) {
  const Status status = (this->*what)();
  if (!status.ok()) {
    err_ << "tailcast: " << status.message() << "\n";
    return IsInvalidArgument(status) ? kUsage : kFailed;
  }
  return found_trouble_ ? kFailed : kDone;
}

Status CopytreeSession::Write(const std::string& text) {
  if (flags_->output.empty() || flags_->output == "-") {
    errno = 0;
    out_ << text << std::flush;
    // `| head` has seen enough.
    return out_ || errno == EPIPE ? OkStatus() : ErrnoStatus(EIO, "can't write the output");
  }
  return WriteWholeFile(flags_->output, text);
}

Result<CopytreeTask> CopytreeSession::Prepare(const std::string& file) {
  const CopytreeFlags& flags = *flags_;
  CopytreeTask task;
  TAILCAST_ASSIGN_OR_RETURN(task.topology, cell::LoadTopology(file));
  for (const std::string& limit : flags.cluster_limits) {
    TAILCAST_RETURN_IF_ERROR(ApplyClusterLimit(limit, &task.topology));
  }
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
    std::set<std::string> given;
    for (const std::string& name : flags.streams) {
      if (!given.insert(name).second) {
        return InvalidArgumentError("--stream '" + name + "' is given twice; give it once");
      }
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

Result<std::pair<CopytreeTask, cell::TopologyStream>> CopytreeSession::PrepareOne(
    const std::string& file) {
  TAILCAST_ASSIGN_OR_RETURN(CopytreeTask task, Prepare(file));
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
Result<Tree> CopytreeSession::ReadTree(const std::string& path) {
  TAILCAST_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
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

Result<Plan> CopytreeSession::PlanOf(const CopytreeTask& task, const cell::TopologyStream& stream,
                                     const PlanOptions& options) {
  Result<Plan> plan = PlanStream(*task.graph, stream, options);
  if (!plan.ok()) return InStream(stream, plan.status());
  return plan;
}

}  // namespace tailcast::app
