// Lower bounds: no tree within the limits can weigh less. They tell a user how far from the optimum
// a plan can be at most, and let the search stop when it has met them.
#pragma once

#include <cstdint>

#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

// Wong's dual ascent on the layered graph. That graph has a copy (v, h) of each node v for each
// depth h = 1..depth_max, and the links (i, h-1) -> (j, h); a tree within the depth limit is a tree
// in it that meets some copy of every required node. Any set of copies that holds all copies of a
// required node, but not the root, is entered by at least one of the tree's links. The ascent gives
// such sets non-negative values while no link's weight is exceeded by the values of the sets that
// it enters; the sum of the values is the bound. On real prices it usually equals the optimum.
//
// Fan-out limits are ignored here; LagrangianBound knows them.
//
// Under a delay limit, links that no path can use in time are left out; else delay is ignored.
// Required nodes out of reach count kUnserved each. Everything is integer arithmetic: the value
// holds exactly.
// `work_max` counts elementary steps (about a nanosecond); an ascent that is cut short gives a
// valid, lower bound. Memory: 8 * depth_max * nodes squared bytes.
int64_t DualAscentBound(const Problem& problem, int64_t work_max);

// The Lagrangian bound of the layered integer program
//
//   x[h][i][j] = 1: the link i -> j is used and j is at depth h
//   (a) a required j is entered once, a relay at most once
//   (b) x[h+1][j][k] <= sum over i != k of x[h][i][j]    only a node at depth h feeds depth h+1
//   (c) sum over k of x[h+1][j][k] <= fanout_max[j] * sum over i of x[h][i][j]
//
// with (b) and (c) priced by multipliers that follow a subgradient: what is left falls apart into
// one choice per node. It is weaker than the dual ascent on depth, but sees fan-out limits; worth
// its time only where they bind. Integer arithmetic again, so it holds exactly.
//
// `goal` is the weight of the best tree known, `known` the best bound so far: the method ends when
// it meets the goal, has done its work, or has no prospect of passing `known`.
int64_t LagrangianBound(const Problem& problem, int64_t goal, int64_t known, int64_t work_max);

// The weight of the cheapest tree without limits, if every node is required; else 0.
int64_t ArborescenceBound(const Problem& problem);

}  // namespace tailcast::copytree
