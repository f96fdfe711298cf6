// The optimiser: a graph and a stream in, a copy tree out, with what it costs and how good it is.
//
//   auto graph = Graph::Create(clusters, links);
//   auto plan = MakePlan(*graph, {.name = "flights", .source = "us", .rate_mbps = 32}, {});
//   for (const Hop& hop : plan->hops) ...
//
// Pure functions: no clock, no I/O, no state between calls; safe from any thread. The same input
// gives the same plan, on any machine and in any build.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/copytree/graph.h"
#include "tailcast/copytree/tree.h"

namespace tailcast::copytree {

// Each hop copies a file twice, to the primary layer and to the cache, as independent operations
// (paper, section 2.3), so the bytes on a link are this many times the stream's.
inline constexpr int kCopiesPerHop = 2;

struct Stream {
  std::string name;
  std::string source;
  // Empty: every cluster that is not relay_only.
  std::vector<std::string> destinations;
  double rate_mbps = 0;  // 1e6 bit/s of stream bytes, one copy; 0 = unknown, then no cost per day
};

struct Limits {
  int max_depth = 4;        // hops from the source to any cluster, 1 to 32
  int max_fanout = 0;       // children of any cluster; 0 = no limit
  double max_delay_ms = 0;  // one way from the source to any cluster, hops included; 0 = none
};

// Bytes that other streams already put on a link.
struct LinkLoad {
  std::string from, to;
  double mbps = 0;            // all copies
  double bandwidth_gbps = 0;  // 0 = unknown
  double share = 0;           // mbps / bandwidth; 0 if that is unknown
};

// How long to search when the optimum is not proven before. Effort is counted in elementary steps
// of about a nanosecond, so the same effort gives the same tree.
enum class Effort : uint8_t {
  kQuick,     // 0.1 s for 60 clusters, 1.5 s for 500; what schedulers use
  kNormal,    // 2 s for 60 clusters, 10 s for 500, 15 s for 1,000
  kThorough,  // ten times that
};
int64_t WorkOf(Effort effort, int clusters);

struct PlanOptions {
  Limits limits;
  // What a hop adds to half the round-trip time: polling, reading, flushing.
  double hop_delay_ms = 25;
  // The running tree, if any. An edge that it does not have costs churn_usd_per_gb more, so a
  // rebuilt tree changes only edges that are worth it; equally cheap trees keep the running edges.
  std::optional<Tree> current;
  double churn_usd_per_gb = 0;
  // Links are left out if the stream does not fit beside these.
  std::vector<LinkLoad> reserved;
  // Links that must not be used, e.g. those of the first tree for the second.
  std::vector<Edge> avoid;
  uint64_t seed = 1;
  // Bounds the effort, in elementary steps (WorkOf); 0 = that of Effort::kQuick. Up to 2e9 in all
  // twice as much again is spent before a refusal without proof, and a third more while the tree is
  // more than 1 % above its bound.
  int64_t work_max = 0;
  // Good enough: the search ends when the tree is within this part of the lower bound; 0 to 1.
  double gap = 0;
};

struct Hop {
  std::string from, to;
  int depth = 0;   // of `to`; 1 = fed by the source
  int fanout = 0;  // children of `to`
  double usd_per_gb = 0;
  double rtt_ms = 0;
  double hop_ms = 0;                 // rtt / 2 + hop_delay_ms
  double arrival_ms = 0;             // from the source to `to`
  bool destination = true;           // false: a relay
  bool kept = false;                 // the running tree has it
  bool rate_limited = false;         // `to` is new
  Health health = Health::kHealthy;  // of `to`
};

// Consumers of a sick cluster read from another one until it is well.
struct Reroute {
  std::string from, to;
  double rtt_ms = 0;
};

struct Plan {
  Tree tree;               // breadth first
  std::vector<Hop> hops;   // one per edge, in the same order
  double usd_per_gb = 0;   // sum of the links' prices for one copy of each byte
  double usd_per_day = 0;  // at the stream's rate, kCopiesPerHop copies; 0 if the rate is unknown
  int depth = 0;
  int fanout = 0;  // the largest
  double worst_delay_ms = 0;
  double mean_delay_ms = 0;  // over destinations
  // No tree within the limits costs less than this; with a churn price or sick clusters, no tree
  // scores better by more than usd_per_gb - lower_bound_usd_per_gb.
  double lower_bound_usd_per_gb = 0;
  // The same with the penalties for sick and new clusters and the churn price that the search
  // weighs besides prices, in 1e-9 USD per GB: no tree within the limits weighs less.
  int64_t weight_bound = 0;
  bool optimal = false;         // it keeps to the limits and meets the bound
  bool breaks_limits = false;   // `warnings` says which; none that MakePlan made does
  std::vector<LinkLoad> loads;  // of the tree's links, `reserved` included
  int edges_added = 0;          // against `current`
  int edges_removed = 0;
  std::vector<Reroute> reroutes;
  // What a person should know: a sick or new cluster that must feed others because nothing else
  // leads there, a link filled to 80 %.
  std::vector<std::string> warnings;
  int64_t work = 0;  // elementary steps spent: about work_max at most, or what is said there

  // (usd_per_gb - lower bound) / lower bound: the tree costs at most this part of the optimum more
  // than it. 0 if the tree costs less than the bound, which one that breaks the limits can;
  // infinite if there is no bound above 0, unless the tree costs nothing.
  double Gap() const;
};

// InvalidArgument or NotFound: names, limits or options that make no sense (with the nearest name).
// FailedPrecondition: no such tree; the message says which limit blocks which cluster, and what
// would have to change. The elementary steps spent are added to `work`, if given: those of the
// search (PlanOptions::work_max); a refusal takes work_max more for the values that it names, and
// what the last try of these spends beyond, once more at most.
Result<Plan> MakePlan(const Graph& graph, const Stream& stream, const PlanOptions& options,
                      int64_t* work = nullptr);

// A given tree in the same terms, e.g. one that a user fixed by hand, or the running one after
// prices or health changed. It must be a tree over known links that holds every destination;
// limits are not enforced: what breaks them is listed in `warnings`, and the lower bound then is
// that of trees within them, or 0 where no tree is. The bound is proven, but need not be as high as
// MakePlan's with the same options: nothing is searched for, and all the effort goes into it.
Result<Plan> DescribeTree(const Graph& graph, const Stream& stream, const PlanOptions& options,
                          const Tree& tree);

// For comparison only: Prim's algorithm under the same limits, which adds the cheapest link that
// leads to one more cluster and breaks no limit. Knows no relays; health and churn count as above.
Result<Plan> PrimPlan(const Graph& graph, const Stream& stream, const PlanOptions& options);

}  // namespace tailcast::copytree
