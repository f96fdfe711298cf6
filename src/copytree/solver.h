// Puts the parts together: starts, local search, bounds, exhaustive search where that is quick.
#pragma once

#include <cstdint>
#include <vector>

#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

struct SolveResult {
  Parents parents;
  int64_t weight = 0;  // with kUnserved for each required node that was left out
  int64_t bound = 0;   // no tree weighs less
  bool feasible = false;
  bool proven = false;  // feasible: this is the optimum; else: no tree meets the limits
  int64_t work = 0;
};

// About 100 ms for 60 nodes and 1.5 s for 500, if the optimum is not proven before.
int64_t DefaultWork(int nodes);

// `starts` are trees worth starting from (the running one); they need not be feasible.
SolveResult Solve(const Problem& problem, const std::vector<Parents>& starts, uint64_t seed,
                  int64_t work_max);

// The bounds alone, for a tree of the given weight.
int64_t BestBound(const Problem& problem, int64_t weight, int64_t work_max);

// Prim's algorithm under the limits: the cheapest link that adds a node and breaks none of them; of
// equals the one that arrives first. Nodes that cannot be added keep kNoParent. `delay_price` is
// added to a link's weight for each microsecond that its node then waits for the root.
Parents LimitedPrim(const Problem& problem, int64_t delay_price = 0);

// Moves nodes to other parents of the same weight while that lowers the sum of all arrival times.
// Keeps feasible trees feasible.
void ShortenDelays(const Problem& problem, Parents* parents);

}  // namespace tailcast::copytree
