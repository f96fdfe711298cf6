// Branch and bound over all trees, for graphs so small that this is quick. Most deployments have a
// handful of clusters: their plans are then proven, whatever the limits.
#pragma once

#include <cstdint>

#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

inline constexpr int kExhaustiveNodesMax = 9;

struct ExhaustiveResult {
  Parents parents;  // the best tree found; all kNoParent if none
  int64_t weight = INT64_MAX;
  bool complete = false;  // every tree was considered: it is the optimum, or there is none
};

// Looks for a feasible tree lighter than `below`. Gives up after `steps_max` partial trees.
ExhaustiveResult SearchAllTrees(const Problem& problem, int64_t below, int64_t steps_max);

}  // namespace tailcast::copytree
