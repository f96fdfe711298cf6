#include "tailcast/copytree/refusal.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/copytree/advice.h"
#include "tailcast/copytree/problem.h"
#include "tailcast/copytree/starts.h"

namespace tailcast::copytree {
namespace {

std::string Join(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

// Least delay (or hops) from the root to each node whatever the limits, and on which way, for
// messages.
class Ways {
 public:
  Ways(const Problem& problem, bool by_delay)
      : distance_(static_cast<size_t>(problem.n), kNoDelayLimit),
        before_(static_cast<size_t>(problem.n), -1) {
    distance_[problem.root] = 0;
    bool changed = true;
    for (int round = 0; round < problem.n && changed; ++round) {
      changed = false;
      for (int from = 0; from < problem.n; ++from) {
        if (distance_[from] >= kNoDelayLimit) continue;
        for (int to = 0; to < problem.n; ++to) {
          if (!problem.HasLink(from, to)) continue;
          const int64_t step = by_delay ? problem.Delay(from, to) : 1;
          if (distance_[from] + step >= distance_[to]) continue;
          distance_[to] = distance_[from] + step;
          before_[to] = from;
          changed = true;
        }
      }
    }
  }

  // kNoDelayLimit: there is none.
  int64_t To(int v) const { return distance_[v]; }
  std::string Text(const Graph& graph, int v) const {
    std::string text = graph.cluster(v).name;
    for (int at = before_[v]; at >= 0; at = before_[at]) {
      text.insert(0, graph.cluster(at).name + " -> ");
    }
    return text;
  }

 private:
  std::vector<int64_t> distance_;
  std::vector<int> before_;
};

}  // namespace

Status FindBlocked(const Graph& graph, const Stream& stream, const PlanOptions& options,
                   const Setup& setup, const Demand& demand, int64_t* work) {
  const Problem& problem = setup.problem;
  const Ways shortest(problem, false);
  std::optional<Ways> fastest;
  std::vector<int64_t> within;
  if (problem.DelayLimited()) {
    fastest.emplace(problem, true);
    within = LeastDelays(problem);
  }
  for (int v = 0; v < problem.n; ++v) {
    if (v == problem.root || !problem.required[v]) continue;
    const std::string& name = graph.cluster(v).name;
    const int64_t needed = shortest.To(v);
    if (needed >= kNoDelayLimit) {
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
    if (needed > problem.DepthMax(v)) {
      const bool own = needed <= problem.depth_max;
      return FailedPreconditionError(
          (own ? "its own max_depth " : "max_depth ") +
          std::to_string(own ? problem.DepthMax(v) : options.limits.max_depth) +
          " blocks cluster '" + name + "': the shortest way there has " + std::to_string(needed) +
          " hops (" + shortest.Text(graph, v) + ")" +
          Advice(graph, stream, options, setup, demand, work));
    }
    if (!fastest) continue;
    const auto ms = [](int64_t us) { return Number(static_cast<double>(us) / 1000) + " ms"; };
    const auto way = [&] { return ms(fastest->To(v)) + " (" + fastest->Text(graph, v) + ")"; };
    if (fastest->To(v) > problem.delay_max_us) {
      return FailedPreconditionError("max_delay_ms " + Number(options.limits.max_delay_ms) +
                                     " blocks cluster '" + name +
                                     "': the fastest way there takes " + way() +
                                     Advice(graph, stream, options, setup, demand, work));
    }
    if (within[v] > problem.delay_max_us && within[v] < kNoDelayLimit) {
      return FailedPreconditionError(
          "max_depth " + std::to_string(options.limits.max_depth) + " and max_delay_ms " +
          Number(options.limits.max_delay_ms) + " together block cluster '" + name +
          "': within that depth the fastest way takes " + ms(within[v]) + ", without it " + way() +
          Advice(graph, stream, options, setup, demand, work));
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
    const int fanout = options.limits.max_fanout;
    std::string limits = "max_depth " + std::to_string(options.limits.max_depth);
    if (fanout > 0) limits += " and max_fanout " + std::to_string(fanout);
    if (HasOwnLimits(graph)) limits += ", with the limits of single clusters,";
    return FailedPreconditionError(
        limits + (fanout > 0 ? " have" : " has") + " room for " + std::to_string(room) +
        " clusters below the source, but the stream has " + std::to_string(needed) +
        " destinations" + Advice(graph, stream, options, setup, demand, work));
  }
  return OkStatus();
}

Status ExplainFailure(const Graph& graph, const Stream& stream, const PlanOptions& options,
                      const Setup& setup, const SolveResult& failed, const Demand& demand,
                      int64_t* work) {
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
  return FailedPreconditionError(text + Advice(graph, stream, options, setup, demand, work));
}

}  // namespace tailcast::copytree
