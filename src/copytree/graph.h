// What the optimiser works on: clusters and the directed links between them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/copytree/tree.h"

namespace tailcast::copytree {

enum class Health : uint8_t {
  kHealthy,
  kSick,  // a leaf wherever possible; its consumers read from the nearest healthy cluster
  kNew,   // a rate-limited leaf until it has caught up and is set healthy
};
std::string_view HealthName(Health health);  // "healthy", "sick", "new"

struct Cluster {
  std::string name;
  // Never a destination; may carry a stream between others.
  bool relay_only = false;
  Health health = Health::kHealthy;
  // Instead of the limits of the plan (plan.h); 0 = those.
  int max_depth = 0;           // hops from the source to it; the plan's limit holds besides
  int max_fanout = 0;          // children; more or fewer than the plan's limit
  double max_egress_mbps = 0;  // what it sends, all streams and copies; 0 = no limit
};

// One direction; prices differ by direction for most pairs of real regions.
struct Link {
  std::string from, to;
  double usd_per_gb = 0;      // 0 to 100
  double rtt_ms = 0;          // round trip; one way counts half
  double bandwidth_gbps = 0;  // 0 = unknown, taken as enough
  bool sick = false;          // used only where nothing else leads
};

// At most this many clusters: sums of weights must fit 64 bits (problem.h).
inline constexpr size_t kClustersMax = 1000;
inline constexpr double kUsdPerGbMax = 100;
inline constexpr double kRttMsMax = 1e6;
inline constexpr double kBandwidthGbpsMax = 1e9;

// Immutable but for health. Clusters are numbered in the order of their names, so that a plan does
// not depend on the order in which they were listed.
class Graph {
 public:
  // InvalidArgument for: no or too many clusters, empty or double names, links with unknown ends
  // (with the nearest known name), from a cluster to itself or given twice, prices that are
  // negative, missing (NaN) or above kUsdPerGbMax, negative or missing round-trip times, negative
  // bandwidth.
  static Result<Graph> Create(std::vector<Cluster> clusters, std::vector<Link> links);

  int size() const { return static_cast<int>(clusters_.size()); }
  const std::vector<Cluster>& clusters() const { return clusters_; }
  const Cluster& cluster(int i) const { return clusters_[i]; }
  const std::vector<Link>& links() const { return links_; }
  // Null if there is no such link.
  const Link* FindLink(int from, int to) const;
  const Link* FindLink(std::string_view from, std::string_view to) const;
  std::optional<int> Find(std::string_view name) const;
  // NotFound with the nearest name; `what` says whose name it is ("source", "destination", ...).
  Result<int> Require(std::string_view name, std::string_view what) const;

  // NotFound for unknown names.
  Status SetHealth(std::string_view cluster, Health health);
  // One direction only.
  Status SetLinkSick(std::string_view from, std::string_view to, bool sick);

 private:
  Graph() = default;
  std::vector<Cluster> clusters_;
  std::vector<Link> links_;
  std::unordered_map<std::string, int> index_;  // looked up only, never walked
  std::vector<int> link_at_;                    // [from * size + to], -1 = none
};

// The links that a person means: "A->B" is that one, "A-B" both directions, as far as they exist.
// Names may hold dashes. InvalidArgument: unknown names (with the nearest), no such link, or more
// than one way to read it.
Result<std::vector<Edge>> ParseLinks(const Graph& graph, const std::string& text);

}  // namespace tailcast::copytree
