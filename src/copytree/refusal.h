// Why there is no tree, and which limit would have to be which for there to be one.
#pragma once

#include "tailcast/base/status.h"
#include "tailcast/copytree/graph.h"
#include "tailcast/copytree/plan.h"
#include "tailcast/copytree/plan_setup.h"
#include "tailcast/copytree/solver.h"

namespace tailcast::copytree {

// Both refuse with FailedPrecondition, and name for each limit alone the least value found with
// which this very plan succeeds: it was planned with that value, with the effort of the options.

// What blocks a destination whatever the rest of the tree looks like: a proof. Ok if nothing does.
Status FindBlocked(const Graph& graph, const Stream& stream, const PlanOptions& options,
                   const Setup& setup);

// The search found no tree though each destination can be reached.
Status ExplainFailure(const Graph& graph, const Stream& stream, const PlanOptions& options,
                      const Setup& setup, const SolveResult& failed);

}  // namespace tailcast::copytree
