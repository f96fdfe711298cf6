// Of equally cheap trees, a faster one.
#pragma once

#include <cstdint>

#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

// Moves nodes to other parents of the same weight while that lowers the sum of all arrival times.
// Keeps feasible trees feasible.
void ShortenDelays(const Problem& problem, Parents* parents);

// Replaces a feasible tree by one of the same weight whose slowest node is fast: a binary search
// for the tightest delay limit under which the search still finds a tree of this weight.
void LowerWorstDelay(const Problem& problem, uint64_t seed, int64_t work_max, Parents* parents);

}  // namespace tailcast::copytree
