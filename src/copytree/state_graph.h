// The graph on which trees within the limits on depth and delay are trees without limits: each node
// has a state for each depth, and, under a delay limit, for each class of arrival times at it.
//
// A state (v, h, b) says: v is fed over exactly h links, and the stream arrives there no sooner
// than the b-th of v's times. A link from it leads to the state of the latest of the other node's
// times that is no later than the arrival then: arrivals are rounded down, so every tree within the
// limits is in the graph with the same weight, and links that cannot be in time are not.
#pragma once

#include <cstdint>
#include <vector>

#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

struct StateGraph {
  // State 0 is the root's. States are sorted by depth: links lead from lower to higher numbers.
  std::vector<int> node, depth;
  // The links into state s are [first_in[s], first_in[s + 1]): where they come from.
  std::vector<int64_t> first_in;
  std::vector<int> from;
  // The states of each node.
  std::vector<std::vector<int>> of_node;

  // False: one state for each node, in no order.
  bool layered = true;

  int64_t work = 0;  // elementary steps that it took to make it, about

  int size() const { return static_cast<int>(node.size()); }
};

// Under a delay limit with about `links_max` links: the fewer, the coarser are the classes of
// arrival times, down to one. A graph that would have more than kStateLinksMost even so has one
// state for each node instead, and knows neither depth nor delay.
inline constexpr int64_t kStateLinksMost = 16'000'000;
StateGraph MakeStateGraph(const Problem& problem, int64_t links_max);

}  // namespace tailcast::copytree
