// The bare combinatorial problem that the optimiser solves, free of names, prices in floating point
// and health: a rooted tree of least weight in a dense directed graph, under limits on depth,
// fan-out and delay, that holds every required node and any other node where that helps (relays).
//
// Weights are integers (1e-9 USD per GB, plus penalties), so that sums are exact, ties are real
// ties and a result does not depend on the compiler.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tailcast::copytree {

// The weight of a link that does not exist, and the price of leaving a required node out. Far above
// any tree's real weight; 1,000 of them still fit an int64_t with room for sums.
inline constexpr int64_t kUnserved = 2'000'000'000'000'000;
// No limit on a path's delay.
inline constexpr int64_t kNoDelayLimit = INT64_MAX / 4;
// parent[] of the root and of nodes outside the tree.
inline constexpr int kNoParent = -1;

struct Problem {
  int n = 0;
  int root = 0;
  std::vector<int64_t> weight;      // [from * n + to]; kUnserved = no such link
  std::vector<int64_t> delay_us;    // [from * n + to]; one way, the hop's own delay included
  int depth_max = 1;                // edges on a path from the root; at least 1
  std::vector<int> node_depth_max;  // of each node, besides; empty = no such limits
  std::vector<int> fanout_max;      // children per node; n or more = no limit
  int64_t delay_max_us = kNoDelayLimit;
  std::vector<char> required;  // 1 = must be in the tree; the root's entry is ignored

  int64_t Weight(int from, int to) const { return weight[static_cast<size_t>(from) * n + to]; }
  int64_t Delay(int from, int to) const { return delay_us[static_cast<size_t>(from) * n + to]; }
  bool HasLink(int from, int to) const { return Weight(from, to) < kUnserved; }
  int DepthMax(int v) const {
    return node_depth_max.empty() ? depth_max : std::min(depth_max, node_depth_max[v]);
  }
  bool DelayLimited() const { return delay_max_us < kNoDelayLimit; }
};

// parent[v] for each node; kNoParent for the root, for relays that are not used, and for required
// nodes that could not be reached.
using Parents = std::vector<int>;

// The sum of the weights of the tree's links and kUnserved for each required node outside it.
int64_t TotalWeight(const Problem& problem, const Parents& parents);

// True if `parents` is a tree that meets every limit; every required node must be in it.
bool IsFeasible(const Problem& problem, const Parents& parents);

// Depth of each node (root 0), -1 outside the tree. The parents must be free of cycles.
std::vector<int> Depths(const Problem& problem, const Parents& parents);
// Microseconds from the root to each node, -1 outside the tree.
std::vector<int64_t> Arrivals(const Problem& problem, const Parents& parents);

}  // namespace tailcast::copytree
