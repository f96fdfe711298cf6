#include "tailcast/copytree/describe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace tailcast::copytree {
namespace {

constexpr double kFullShare = 0.8;

std::vector<Reroute> FindReroutes(const Graph& graph, const Setup& setup, const Tree& tree) {
  std::vector<Reroute> reroutes;
  const int n = graph.size();
  for (int sick = 0; sick < n; ++sick) {
    if (graph.cluster(sick).health != Health::kSick || !setup.destination[sick]) continue;
    // The nearest by round trip, either direction being measured; the first of equals by name.
    int best = -1;
    double least = 0;
    for (int other = 0; other < n; ++other) {
      if (other == sick || graph.cluster(other).health != Health::kHealthy) continue;
      if (other != setup.problem.root && !setup.destination[other]) continue;
      if (!tree.Contains(graph.cluster(other).name)) continue;
      const Link* there = graph.FindLink(sick, other);
      const Link* back = graph.FindLink(other, sick);
      if (there == nullptr && back == nullptr) continue;
      const double rtt = there == nullptr  ? back->rtt_ms
                         : back == nullptr ? there->rtt_ms
                                           : std::min(there->rtt_ms, back->rtt_ms);
      if (best < 0 || rtt < least) {
        best = other;
        least = rtt;
      }
    }
    if (best >= 0) reroutes.push_back({graph.cluster(sick).name, graph.cluster(best).name, least});
  }
  return reroutes;
}

}  // namespace

Plan Describe(const Graph& graph, const Stream& stream, const Setup& setup,
              const Parents& parents) {
  const Problem& problem = setup.problem;
  const int n = graph.size();
  Plan plan;
  plan.tree.source = stream.source;
  std::vector<std::vector<int>> children(n);
  for (int v = 0; v < n; ++v) {
    if (v != problem.root && parents[v] != kNoParent) children[parents[v]].push_back(v);
  }
  plan.fanout = static_cast<int>(children[problem.root].size());
  std::vector<int> order{problem.root};
  std::vector<int> depth(n, 0);
  std::vector<double> arrival(n, 0);
  int destinations = 0;
  for (size_t next = 0; next < order.size(); ++next) {
    const int from = order[next];
    for (int to : children[from]) {
      order.push_back(to);
      const Link& link = *graph.FindLink(from, to);
      depth[to] = depth[from] + 1;
      Hop hop;
      hop.from = link.from;
      hop.to = link.to;
      hop.depth = depth[to];
      hop.fanout = static_cast<int>(children[to].size());
      hop.usd_per_gb = link.usd_per_gb;
      hop.rtt_ms = link.rtt_ms;
      hop.hop_ms = static_cast<double>(problem.Delay(from, to)) / 1000;
      hop.arrival_ms = arrival[to] = arrival[from] + hop.hop_ms;
      hop.destination = setup.destination[to];
      hop.kept = setup.current && setup.current->HasEdge(link.from, link.to);
      hop.health = graph.cluster(to).health;
      hop.rate_limited = hop.health == Health::kNew;
      plan.usd_per_gb += hop.usd_per_gb;
      plan.depth = std::max(plan.depth, hop.depth);
      plan.fanout = std::max(plan.fanout, hop.fanout);
      if (hop.destination) {
        plan.worst_delay_ms = std::max(plan.worst_delay_ms, hop.arrival_ms);
        plan.mean_delay_ms += hop.arrival_ms;
        ++destinations;
      }
      LinkLoad load{link.from, link.to, 0, link.bandwidth_gbps, 0};
      load.mbps =
          setup.reserved[static_cast<size_t>(from) * n + to] + stream.rate_mbps * kCopiesPerHop;
      if (link.bandwidth_gbps > 0) load.share = load.mbps / (link.bandwidth_gbps * 1000);
      if (load.share > kFullShare) {
        plan.warnings.push_back("link " + link.from + " -> " + link.to + " is filled to " +
                                Number(std::round(load.share * 1000) / 10) + " % of its bandwidth");
      }
      if (link.sick) {
        plan.warnings.push_back("sick link " + link.from + " -> " + link.to +
                                " stays in use: no other way to '" + link.to +
                                "' within the limits");
      }
      if (from != problem.root && graph.cluster(from).health != Health::kHealthy) {
        plan.warnings.push_back(std::string(HealthName(graph.cluster(from).health)) + " cluster '" +
                                link.from + "' must feed '" + link.to +
                                "': no other way there within the limits");
      }
      plan.loads.push_back(std::move(load));
      plan.tree.edges.push_back({link.from, link.to});
      plan.hops.push_back(std::move(hop));
    }
  }
  if (destinations > 0) plan.mean_delay_ms /= destinations;
  // 1 Mbit/s for a day is 10.8 GB.
  plan.usd_per_day = plan.usd_per_gb * stream.rate_mbps * 10.8 * kCopiesPerHop;
  if (setup.current) {
    for (const Edge& edge : plan.tree.edges) {
      plan.edges_added += !setup.current->HasEdge(edge.from, edge.to);
    }
    for (const Edge& edge : setup.current->edges) {
      plan.edges_removed += !plan.tree.HasEdge(edge.from, edge.to);
    }
  }
  plan.reroutes = FindReroutes(graph, setup, plan.tree);
  if (graph.cluster(problem.root).health == Health::kSick) {
    plan.warnings.push_back("source '" + stream.source +
                            "' is sick; no tree helps while it produces there");
  }
  return plan;
}

void SetBound(int64_t weight, int64_t bound, Plan* plan) {
  const double gap = static_cast<double>(weight - bound) / kNanos;
  plan->weight_bound = bound;
  plan->lower_bound_usd_per_gb = bound >= kUnserved ? 0 : std::max(0.0, plan->usd_per_gb - gap);
  plan->optimal = weight == bound && !plan->breaks_limits;
}

double GapAbove(double usd, double bound_usd) {
  if (usd <= bound_usd) return 0;
  return bound_usd > 0 ? (usd - bound_usd) / bound_usd : std::numeric_limits<double>::infinity();
}

std::vector<std::string> BrokenLimits(const Graph& graph, const Setup& setup, const Plan& plan) {
  const Problem& problem = setup.problem;
  std::vector<std::string> broken;
  std::map<std::string, int> fanout;
  for (const Hop& hop : plan.hops) {
    ++fanout[hop.from];
    const int to = *graph.Find(hop.to);
    if (!problem.HasLink(*graph.Find(hop.from), to)) {
      broken.push_back("link " + hop.from + " -> " + hop.to +
                       " is too slow for the stream or excluded");
    }
    if (const int limit = problem.DepthMax(to); hop.depth > limit) {
      broken.push_back("cluster '" + hop.to + "' is at depth " + std::to_string(hop.depth) +
                       ", max_depth is " + std::to_string(limit));
    }
    if (Micros(hop.arrival_ms) > problem.delay_max_us) {
      broken.push_back("cluster '" + hop.to + "' is reached after " + Number(hop.arrival_ms) +
                       " ms, max_delay_ms is " +
                       Number(static_cast<double>(problem.delay_max_us) / 1000));
    }
  }
  for (const auto& [name, children] : fanout) {
    const int limit = problem.fanout_max[*graph.Find(name)];
    if (children > limit) {
      broken.push_back("cluster '" + name + "' feeds " + std::to_string(children) +
                       " clusters, its limit is " + std::to_string(limit));
    }
  }
  return broken;
}

}  // namespace tailcast::copytree
