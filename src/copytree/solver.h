// Puts the parts together: starts, local search, annealing, bounds, exhaustive search where that is
// quick.
#pragma once

#include <cstdint>
#include <vector>

#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

// Problems with more nodes are annealed part by part, and a search may take longer.
inline constexpr int kManyNodes = 100;

struct SolveOptions {
  uint64_t seed = 1;
  // Elementary steps of about a nanosecond that all parts together may spend.
  int64_t work_max = 100'000'000;
  // Good enough: the search ends when the tree is within this part of the bound, in millionths.
  int64_t gap_ppm = 0;
  // Any tree within the limits is good enough: the search is the same up to the first one, and
  // ends.
  bool any_tree = false;
  // Quick effort gets twice as much again before it is said that no tree was found; but not with
  // this.
  bool give_up_early = false;
  // Of equally light trees a fast one is taken (delays.h).
  bool shorten_delays = true;
};

struct SolveResult {
  Parents parents;
  int64_t weight = 0;  // with kUnserved for each required node that was left out
  int64_t bound = 0;   // no tree weighs less
  bool feasible = false;
  bool proven = false;  // feasible: this is the optimum; else: no tree meets the limits
  int64_t work = 0;     // elementary steps, set-up included
};

// `starts` are trees worth starting from (the running one); they need not be feasible.
//
// Restarts until the tree is as light as the bound (or near enough), until several restarts in a
// row ended at the same weight, or until the work is used up.
SolveResult Solve(const Problem& problem, const std::vector<Parents>& starts,
                  const SolveOptions& options);

// The bounds alone, raised with `work_max` elementary steps in all until they reach `weight`, that
// of a tree to compare with: no tree within the limits weighs less. More than `weight`: that tree
// is not within the limits. kUnserved and more: no tree is.
int64_t BestBound(const Problem& problem, int64_t weight, int64_t work_max);

}  // namespace tailcast::copytree
