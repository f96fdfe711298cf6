// Graphs and checkers for tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/copytree/graph.h"
#include "tailcast/copytree/plan.h"
#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

// A problem over n nodes without links or limits, root 0, every node required.
inline Problem EmptyProblem(int n, int depth_max) {
  Problem p;
  p.n = n;
  p.root = 0;
  p.weight.assign(static_cast<size_t>(n) * n, kUnserved);
  p.delay_us.assign(static_cast<size_t>(n) * n, 1000);
  p.depth_max = depth_max;
  p.fanout_max.assign(n, n);
  p.required.assign(n, 1);
  return p;
}

inline void SetLink(Problem* p, int from, int to, int64_t weight, int64_t delay_us = 1000) {
  p->weight[static_cast<size_t>(from) * p->n + to] = weight;
  p->delay_us[static_cast<size_t>(from) * p->n + to] = delay_us;
}

// The dumb reference: every choice of parents, no pruning, an independent check of every limit.
// INT64_MAX if no tree meets them.
inline int64_t BruteForceWeight(const Problem& p) {
  std::vector<int> parent(p.n, -1);
  int64_t best = INT64_MAX;
  const auto check = [&] {
    int64_t weight = 0;
    std::vector<int> children(p.n, 0);
    for (int v = 0; v < p.n; ++v) {
      if (v == p.root) continue;
      if (parent[v] < 0) {
        if (p.required[v]) return;
        continue;
      }
      int64_t delay = 0;
      int hops = 0;
      for (int at = v; at != p.root; at = parent[at]) {
        if (parent[at] < 0 || ++hops > p.depth_max) return;
        delay += p.Delay(parent[at], at);
      }
      if (!p.node_depth_max.empty() && hops > p.node_depth_max[v]) return;
      if (delay > p.delay_max_us) return;
      if (++children[parent[v]] > p.fanout_max[parent[v]]) return;
      weight += p.Weight(parent[v], v);
    }
    best = std::min(best, weight);
  };
  const auto choose = [&](const auto& self, int v) -> void {
    if (v == p.n) return check();
    if (v == p.root) return self(self, v + 1);
    for (int from = -1; from < p.n; ++from) {
      if (from == v || (from >= 0 && p.Weight(from, v) >= kUnserved)) continue;
      parent[v] = from;
      self(self, v + 1);
    }
    parent[v] = -1;
  };
  choose(choose, 0);
  return best;
}

// "c00", "c01", ... with random prices from a few levels (so that ties are frequent) and delays.
inline Graph RandomGraph(int n, uint64_t seed, double density = 1.0) {
  Rng rng(seed);
  const auto name = [](int i) {
    std::string digits = std::to_string(i);
    return "c" + std::string(digits.size() < 2 ? 1 : 0, '0') + digits;
  };
  std::vector<Cluster> clusters;
  for (int i = 0; i < n; ++i) clusters.push_back({.name = name(i)});
  std::vector<Link> links;
  std::vector<std::pair<double, double>> place;
  for (int i = 0; i < n; ++i) place.emplace_back(rng.Unit(), rng.Unit());
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      if (i == j || !rng.Chance(density)) continue;
      const double distance =
          std::hypot(place[i].first - place[j].first, place[i].second - place[j].second);
      // Price by where the bytes leave, as clouds charge, less within a neighbourhood.
      const double level = 0.02 * static_cast<double>(1 + (i * 7 + 3) % 5);
      links.push_back({.from = name(i),
                       .to = name(j),
                       .usd_per_gb = distance < 0.25
                                         ? level / 4
                                         : level + 0.01 * static_cast<double>(rng.Below(4)),
                       .rtt_ms = 2 + 150 * distance});
    }
  }
  return *Graph::Create(std::move(clusters), std::move(links));
}

// The tree in the plan is one, meets the limits, holds the destinations, and its figures add up.
inline void ExpectConsistent(const Graph& graph, const Stream& stream, const PlanOptions& options,
                             const Plan& plan) {
  std::map<std::string, double> arrival{{stream.source, 0}};
  std::map<std::string, int> depth{{stream.source, 0}}, fanout;
  double cost = 0, worst = 0, sum = 0;
  int destinations = 0, deepest = 0, widest = 0;
  for (const Hop& hop : plan.hops) {
    ASSERT_TRUE(depth.contains(hop.from)) << hop.from << " feeds " << hop.to << " before it is fed";
    ASSERT_FALSE(depth.contains(hop.to)) << hop.to << " is fed twice";
    const Link* link = graph.FindLink(hop.from, hop.to);
    ASSERT_NE(link, nullptr);
    depth[hop.to] = depth[hop.from] + 1;
    arrival[hop.to] = arrival[hop.from] + link->rtt_ms / 2 + options.hop_delay_ms;
    EXPECT_EQ(hop.depth, depth[hop.to]);
    EXPECT_NEAR(hop.arrival_ms, arrival[hop.to], 0.01 * hop.depth);
    EXPECT_LE(hop.depth, options.limits.max_depth);
    if (options.limits.max_delay_ms > 0) {
      EXPECT_LE(arrival[hop.to], options.limits.max_delay_ms + 0.01 * hop.depth);
    }
    cost += link->usd_per_gb;
    deepest = std::max(deepest, depth[hop.to]);
    if (hop.destination) {
      worst = std::max(worst, arrival[hop.to]);
      sum += arrival[hop.to];
      ++destinations;
    }
    widest = std::max(widest, ++fanout[hop.from]);
  }
  for (const auto& [name, children] : fanout) {
    if (options.limits.max_fanout > 0) {
      EXPECT_LE(children, options.limits.max_fanout) << name;
    }
  }
  std::set<std::string> wanted(stream.destinations.begin(), stream.destinations.end());
  for (const Cluster& cluster : graph.clusters()) {
    const bool is_wanted =
        stream.destinations.empty() ? !cluster.relay_only : wanted.contains(cluster.name);
    if (is_wanted) {
      EXPECT_TRUE(depth.contains(cluster.name)) << cluster.name << " is left out";
    }
  }
  EXPECT_NEAR(plan.usd_per_gb, cost, 1e-9);
  EXPECT_NEAR(plan.worst_delay_ms, worst, 0.1);
  EXPECT_NEAR(plan.mean_delay_ms, destinations == 0 ? 0 : sum / destinations, 0.1);
  EXPECT_EQ(plan.depth, deepest);
  EXPECT_EQ(plan.fanout, widest);
  // Mbit/s * 86,400 s / 8 bits / 1000 = GB a day; every byte goes over a hop twice.
  EXPECT_NEAR(plan.usd_per_day, cost * stream.rate_mbps * 86400 / 8 / 1000 * 2, 1e-6);
  ASSERT_EQ(plan.loads.size(), plan.hops.size());
  for (size_t i = 0; i < plan.loads.size(); ++i) {
    const LinkLoad& load = plan.loads[i];
    EXPECT_EQ(load.from, plan.hops[i].from);
    EXPECT_EQ(load.to, plan.hops[i].to);
    double mbps = stream.rate_mbps * 2;
    for (const LinkLoad& other : options.reserved) {
      if (other.from == load.from && other.to == load.to) mbps += other.mbps;
    }
    EXPECT_NEAR(load.mbps, mbps, 1e-9);
    const double gbps = graph.FindLink(load.from, load.to)->bandwidth_gbps;
    EXPECT_NEAR(load.share, gbps > 0 ? mbps / 1000 / gbps : 0, 1e-9);
  }
  EXPECT_EQ(plan.tree.edges.size(), plan.hops.size());
  EXPECT_LE(plan.lower_bound_usd_per_gb, plan.usd_per_gb + 1e-9);
}

inline Graph MakeGraph(std::vector<Cluster> clusters, std::vector<Link> links) {
  Result<Graph> graph = Graph::Create(std::move(clusters), std::move(links));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return std::move(graph).value();
}

inline Plan MustPlan(const Graph& graph, const Stream& stream, const PlanOptions& options = {}) {
  Result<Plan> plan = MakePlan(graph, stream, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  ExpectConsistent(graph, stream, options, *plan);
  return std::move(plan).value();
}

// The limits with each value for all clusters that a refusal names, one at a time.
inline std::vector<Limits> Advised(const Limits& limits, const std::string& message) {
  std::vector<Limits> advised;
  const size_t from = message.find("it works with ");
  if (from == std::string::npos) return advised;
  const auto value = [&](const std::string& name) -> std::optional<double> {
    const size_t at = message.find(name + " ", from);
    if (at == std::string::npos) return std::nullopt;
    return std::stod(message.substr(at + name.size()));
  };
  if (const auto depth = value("max_depth")) {
    advised.push_back(limits);
    advised.back().max_depth = static_cast<int>(*depth);
  }
  if (const auto fanout = value("max_fanout")) {
    advised.push_back(limits);
    advised.back().max_fanout = static_cast<int>(*fanout);
  }
  if (const auto delay = value("max_delay_ms")) {
    advised.push_back(limits);
    advised.back().max_delay_ms = *delay;
  }
  return advised;
}

}  // namespace tailcast::copytree
