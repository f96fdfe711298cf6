#include "tailcast/copytree/refusal.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tailcast/copytree/advice.h"
#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {
namespace {

std::string PathText(const Graph& graph, const std::vector<int>& path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    text += (i == 0 ? "" : " -> ") + graph.cluster(path[i]).name;
  }
  return text;
}

std::string Join(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

// A path that a limit forbids, for messages: least delay (or hops) from the root to `to`.
std::vector<int> PathTo(const Problem& problem, int to, bool by_delay) {
  const int n = problem.n;
  std::vector<int64_t> distance(n, kNoDelayLimit);
  std::vector<int> before(n, -1);
  distance[problem.root] = 0;
  for (int round = 0; round < n; ++round) {
    bool changed = false;
    for (int a = 0; a < n; ++a) {
      if (distance[a] >= kNoDelayLimit) continue;
      for (int b = 0; b < n; ++b) {
        if (!problem.HasLink(a, b)) continue;
        const int64_t step = by_delay ? problem.Delay(a, b) : 1;
        if (distance[a] + step < distance[b]) {
          distance[b] = distance[a] + step;
          before[b] = a;
          changed = true;
        }
      }
    }
    if (!changed) break;
  }
  std::vector<int> path;
  if (distance[to] >= kNoDelayLimit) return path;
  for (int at = to; at >= 0; at = before[at]) path.push_back(at);
  std::reverse(path.begin(), path.end());
  return path;
}

// Least delay to `to` within the depth limit, or kNoDelayLimit.
int64_t LeastDelayWithin(const Problem& problem, int to) {
  std::vector<int64_t> now(problem.n, kNoDelayLimit);
  now[problem.root] = 0;
  for (int h = 0; h < problem.depth_max; ++h) {
    std::vector<int64_t> next = now;
    for (int a = 0; a < problem.n; ++a) {
      if (now[a] >= kNoDelayLimit) continue;
      for (int b = 0; b < problem.n; ++b) {
        if (problem.HasLink(a, b)) next[b] = std::min(next[b], now[a] + problem.Delay(a, b));
      }
    }
    now = std::move(next);
  }
  return now[to];
}

}  // namespace

Status FindBlocked(const Graph& graph, const Stream& stream, const PlanOptions& options,
                   const Setup& setup) {
  const Problem& problem = setup.problem;
  for (int v = 0; v < problem.n; ++v) {
    if (v == problem.root || !problem.required[v]) continue;
    const std::string& name = graph.cluster(v).name;
    const std::vector<int> hops = PathTo(problem, v, false);
    if (hops.empty()) {
      std::string why =
          "cluster '" + name + "' cannot be reached from source '" + stream.source + "'";
      std::vector<std::string> slow;
      for (const Edge& edge : setup.too_slow) {
        if (edge.to == name) {
          const Link* link = graph.FindLink(edge.from, edge.to);
          slow.push_back(edge.from + " (" + Number(link->bandwidth_gbps) + " Gbit/s)");
        }
      }
      bool entered = false;
      for (int from = 0; from < problem.n; ++from) entered |= problem.HasLink(from, v);
      if (!slow.empty()) {
        why += ": the stream needs " + Number(stream.rate_mbps * kCopiesPerHop / 1000) +
               " Gbit/s on each link (" + std::to_string(kCopiesPerHop) + " copies of " +
               Number(stream.rate_mbps) + " Mbit/s), too much for those from " + Join(slow) +
               "; add bandwidth or a link";
      } else if (!entered) {
        why += options.avoid.empty() ? ": no link leads to it; add one"
                                     : ": no other link leads to it; add one";
      } else {
        why += ": no chain of links leads there; add a link from a cluster that is reached";
      }
      return FailedPreconditionError(why);
    }
    const int needed = static_cast<int>(hops.size()) - 1;
    if (needed > problem.DepthMax(v)) {
      const bool own = needed <= problem.depth_max;
      return FailedPreconditionError(
          (own ? "its own max_depth " : "max_depth ") +
          std::to_string(own ? problem.DepthMax(v) : options.limits.max_depth) +
          " blocks cluster '" + name + "': the shortest way there has " + std::to_string(needed) +
          " hops (" + PathText(graph, hops) + ")" + Advice(graph, stream, options, setup));
    }
    if (!problem.DelayLimited()) continue;
    const std::vector<int> fast = PathTo(problem, v, true);
    int64_t least = 0;
    for (size_t i = 1; i < fast.size(); ++i) least += problem.Delay(fast[i - 1], fast[i]);
    const double ms = static_cast<double>(least) / 1000;
    if (least > problem.delay_max_us) {
      return FailedPreconditionError(
          "max_delay_ms " + Number(options.limits.max_delay_ms) + " blocks cluster '" + name +
          "': the fastest way there takes " + Number(ms) + " ms (" + PathText(graph, fast) + ")" +
          Advice(graph, stream, options, setup));
    }
    const int64_t within = LeastDelayWithin(problem, v);
    if (within > problem.delay_max_us) {
      return FailedPreconditionError(
          "max_depth " + std::to_string(options.limits.max_depth) + " and max_delay_ms " +
          Number(options.limits.max_delay_ms) + " together block cluster '" + name +
          "': within that depth the fastest way takes " +
          Number(static_cast<double>(within) / 1000) + " ms, without it " + Number(ms) + " ms (" +
          PathText(graph, fast) + ")" + Advice(graph, stream, options, setup));
    }
  }
  // Room for everybody: a full tree of that depth and fan-out.
  int64_t room = 0;
  int64_t level = 1, widest = 0;
  for (int v = 0; v < problem.n; ++v) {
    if (v != problem.root) widest = std::max<int64_t>(widest, problem.fanout_max[v]);
  }
  for (int depth = 1; depth <= problem.depth_max && room < problem.n; ++depth) {
    const int64_t width = depth == 1 ? problem.fanout_max[problem.root] : widest;
    level = std::min<int64_t>(level * width, problem.n);
    room += level;
  }
  int64_t needed = 0;
  for (int v = 0; v < problem.n; ++v) needed += v != problem.root && problem.required[v];
  if (room < needed) {
    return FailedPreconditionError(
        "max_depth " + std::to_string(options.limits.max_depth) + " and max_fanout " +
        std::to_string(options.limits.max_fanout) +
        (HasOwnLimits(graph) ? ", with the limits of single clusters," : "") + " have room for " +
        std::to_string(room) + " clusters below the source, but the stream has " +
        std::to_string(needed) + " destinations" + Advice(graph, stream, options, setup));
  }
  return OkStatus();
}

Status ExplainFailure(const Graph& graph, const Stream& stream, const PlanOptions& options,
                      const Setup& setup, const SolveResult& failed) {
  const Problem& problem = setup.problem;
  std::string text = failed.proven ? "no tree meets all limits"
                                   : "no tree that meets all limits was found within this effort";
  text += " (max_depth " + std::to_string(options.limits.max_depth);
  if (options.limits.max_fanout > 0) {
    text += ", max_fanout " + std::to_string(options.limits.max_fanout);
  }
  if (problem.DelayLimited()) text += ", max_delay_ms " + Number(options.limits.max_delay_ms);
  text += ")";
  std::vector<std::string> missing;
  for (int v = 0; v < problem.n; ++v) {
    if (v != problem.root && problem.required[v] && failed.parents[v] == kNoParent) {
      missing.push_back(graph.cluster(v).name);
    }
  }
  if (!missing.empty()) text += "; they block " + Join(missing);
  if (!failed.proven) {
    text += "; it took " + Number(std::round(static_cast<double>(failed.work) / 1e6)) +
            " million steps, more effort may find one";
  }
  return FailedPreconditionError(text + Advice(graph, stream, options, setup));
}

}  // namespace tailcast::copytree
