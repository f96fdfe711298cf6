// Which value of which limit would do, for refusals.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tailcast/copytree/graph.h"
#include "tailcast/copytree/plan.h"
#include "tailcast/copytree/plan_setup.h"
#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

// What a tree must be besides within the limits; empty: nothing. Adds the elementary steps that it
// took to `work`.
using Demand = std::function<bool(const Problem& problem, const Parents& tree, int64_t* work)>;

// "; it works with max_fanout 3, or with max_egress_mbps 128 of 'hub'": for each limit alone the
// least value found with which this very plan succeeds; it was planned with that value, with the
// effort of the options, and meets the demand. If no limit alone helps, what else to do. Once as
// many steps are spent as the effort of the options has, no further way is tried: the last one may
// take as many again, twice with a demand. The steps are added to `work`, if given.
std::string Advice(const Graph& graph, const Stream& stream, const PlanOptions& options,
                   const Setup& setup, const Demand& demand, int64_t* work = nullptr);

// Some cluster has a limit of its own.
bool HasOwnLimits(const Graph& graph);

}  // namespace tailcast::copytree
