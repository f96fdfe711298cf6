// Why there is no tree, and which limit would have to be which for there to be one.
#pragma once

#include <cstdint>

#include "tailcast/base/status.h"
#include "tailcast/copytree/advice.h"
#include "tailcast/copytree/graph.h"
#include "tailcast/copytree/plan.h"
#include "tailcast/copytree/plan_setup.h"
#include "tailcast/copytree/solver.h"

namespace tailcast::copytree {

// Both refuse with FailedPrecondition and advice (advice.h), whose elementary steps are added to
// `work`, if given.

// What blocks a destination whatever the rest of the tree looks like: a proof. Ok if nothing does.
Status FindBlocked(const Graph& graph, const Stream& stream, const PlanOptions& options,
                   const Setup& setup, const Demand& demand = {}, int64_t* work = nullptr);

// The search found no tree though each destination can be reached.
Status ExplainFailure(const Graph& graph, const Stream& stream, const PlanOptions& options,
                      const Setup& setup, const SolveResult& failed, const Demand& demand = {},
                      int64_t* work = nullptr);

}  // namespace tailcast::copytree
