// A tree over numbers as a Plan in names and figures. For plan.cc and its neighbours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tailcast/copytree/graph.h"
#include "tailcast/copytree/plan.h"
#include "tailcast/copytree/plan_setup.h"
#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

// Everything in a Plan but the bound. The parents must be a tree over links of the graph.
Plan Describe(const Graph& graph, const Stream& stream, const Setup& setup, const Parents& parents);

// `weight` of the tree and `bound` on trees within the limits, penalties included, in 1e-9 USD per
// GB; kUnserved and more: there are none. Whether the tree breaks the limits is known before.
void SetBound(int64_t weight, int64_t bound, Plan* plan);

// Plan::Gap and PlanPair::Gap.
double GapAbove(double usd, double bound_usd);

// Which limits the tree breaks, in sentences; none for a tree that MakePlan made.
std::vector<std::string> BrokenLimits(const Graph& graph, const Setup& setup, const Plan& plan);

}  // namespace tailcast::copytree
