#include "tailcast/copytree/explain.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "tailcast/base/nearest.h"

namespace tailcast::copytree {
namespace {

std::string Usd(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

std::string Ms(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

}  // namespace

Result<Explanation> Explain(const Graph& graph, const Stream& stream, const PlanOptions& options,
                            const Plan& plan, std::string_view cluster) {
  Explanation out;
  std::map<std::string, const Hop*> into;
  std::map<std::string, int> fanout;
  std::vector<std::string> names;
  for (const Hop& hop : plan.hops) {
    into[hop.to] = &hop;
    ++fanout[hop.from];
    names.push_back(hop.to);
  }
  const auto found = into.find(std::string(cluster));
  if (found == into.end()) {
    if (cluster == plan.tree.source) {
      return NotFoundError("'" + std::string(cluster) + "' is the source; no edge leads to it");
    }
    return NotFoundError("no edge of the tree leads to '" + std::string(cluster) + "'" +
                         DidYouMean(cluster, names));
  }
  out.hop = *found->second;

  const auto deepest = [&](const std::string& name) {
    const int own = graph.cluster(*graph.Find(name)).max_depth;
    return own > 0 ? std::min(own, options.limits.max_depth) : options.limits.max_depth;
  };
  // The cluster's subtree: its members, its height and its slowest member.
  std::set<std::string> below{out.hop.to};
  int height = 0;
  int sink = deepest(out.hop.to) - out.hop.depth;  // by how many hops it may be deeper
  double slowest = 0;
  for (const Hop& hop : plan.hops) {  // breadth first: parents come before children
    if (!below.contains(hop.from)) continue;
    below.insert(hop.to);
    height = std::max(height, hop.depth - out.hop.depth);
    sink = std::min(sink, deepest(hop.to) - hop.depth);
    slowest = std::max(slowest, hop.arrival_ms - out.hop.arrival_ms);
  }

  int cheaper = 0;
  for (const Link& link : graph.links()) {
    if (link.to != out.hop.to || link.from == out.hop.from) continue;
    Alternative other;
    other.from = link.from;
    other.usd_per_gb = link.usd_per_gb;
    other.extra_usd_per_gb = link.usd_per_gb - out.hop.usd_per_gb;
    const bool is_source = link.from == plan.tree.source;
    const auto parent = into.find(link.from);
    const int depth = is_source ? 0 : parent == into.end() ? -1 : parent->second->depth;
    const double hop_ms = link.rtt_ms / 2 + options.hop_delay_ms;
    other.arrival_ms = (is_source || depth < 0 ? 0 : parent->second->arrival_ms) + hop_ms;
    const double needed = stream.rate_mbps * kCopiesPerHop;
    const Cluster& from = graph.cluster(*graph.Find(link.from));
    const int limit = from.max_fanout > 0 ? from.max_fanout : options.limits.max_fanout;
    if (depth < 0) {
      other.blocked = "not in the tree";
    } else if (below.contains(link.from)) {
      other.blocked = "is itself fed through " + out.hop.to;
    } else if (depth + 1 - out.hop.depth > sink) {
      other.blocked = "max_depth " + std::to_string(out.hop.depth + sink + height) + ": " +
                      (height == 0 ? out.hop.to : "what " + out.hop.to + " feeds") +
                      " would be at depth " + std::to_string(depth + 1 + height);
    } else if (limit > 0 && fanout[link.from] >= limit) {
      other.blocked = "max_fanout " + std::to_string(limit) + ": " + link.from + " feeds " +
                      std::to_string(fanout[link.from]) + " already";
    } else if (from.max_egress_mbps > 0 &&
               (fanout[link.from] + 1) * needed > from.max_egress_mbps) {
      other.blocked = "max_egress_mbps of " + link.from;
    } else if (options.limits.max_delay_ms > 0 &&
               other.arrival_ms + slowest > options.limits.max_delay_ms) {
      other.blocked =
          "max_delay_ms: the slowest below would wait " + Ms(other.arrival_ms + slowest) + " ms";
    } else if (link.bandwidth_gbps > 0 && needed > link.bandwidth_gbps * 1000) {
      other.blocked = "the link is too slow for the stream";
    } else if (!is_source && from.health != Health::kHealthy) {
      other.blocked = link.from + " is " + std::string(HealthName(from.health)) + ", so a leaf";
    } else if (link.sick) {
      other.blocked = "the link is sick";
    }
    cheaper += other.usd_per_gb < out.hop.usd_per_gb;
    out.alternatives.push_back(std::move(other));
  }
  std::stable_sort(out.alternatives.begin(), out.alternatives.end(),
                   [](const Alternative& a, const Alternative& b) {
                     if (a.usd_per_gb != b.usd_per_gb) return a.usd_per_gb < b.usd_per_gb;
                     if (a.arrival_ms != b.arrival_ms) return a.arrival_ms < b.arrival_ms;
                     return a.from < b.from;
                   });

  PlanOptions without = options;
  without.avoid.push_back({out.hop.from, out.hop.to});
  Result<Plan> next = MakePlan(graph, stream, without);
  if (next.ok()) {
    out.next_best = std::move(next).value();
  } else {
    out.irreplaceable = next.status().message();
  }

  const Alternative* best = nullptr;
  for (const Alternative& other : out.alternatives) {
    if (other.blocked.empty()) {
      best = &other;
      break;
    }
  }
  if (out.alternatives.empty()) {
    out.reason = "It is the only link into " + out.hop.to + ".";
  } else if (cheaper == 0) {
    out.reason = "No link into " + out.hop.to + " is cheaper.";
  } else if (best != nullptr && best->extra_usd_per_gb < 0) {
    out.reason = best->from + " could feed " + out.hop.to + " for " + Usd(-best->extra_usd_per_gb) +
                 " USD/GB less; the plan keeps this edge because of its churn price or because it "
                 "was given.";
  } else {
    out.reason = std::to_string(cheaper) + " cheaper " +
                 (cheaper == 1 ? "link into " : "links into ") + out.hop.to +
                 (cheaper == 1 ? " is" : " are") + " blocked by the limits as the tree stands.";
  }
  const int feeds = static_cast<int>(below.size()) - 1;
  if (feeds > 0) {
    out.reason += " Through it " + std::to_string(feeds) + " more " +
                  (feeds == 1 ? "cluster is" : "clusters are") + " fed.";
  }
  if (out.next_best) {
    const double extra = out.next_best->usd_per_gb - plan.usd_per_gb;
    out.reason += std::abs(extra) < 5e-10
                      ? " Another tree without this edge costs the same."
                      : std::string(" The best tree ") + (out.next_best->optimal ? "" : "found ") +
                            "without this edge costs " + Usd(std::abs(extra)) + " USD/GB " +
                            (extra > 0 ? "more." : "less.");
  } else {
    out.reason += " Without it: " + out.irreplaceable + ".";
  }
  return out;
}

}  // namespace tailcast::copytree
