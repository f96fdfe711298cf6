// What the optimiser is worth: its tree beside those that simpler ways give.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tailcast/copytree/plan.h"

namespace tailcast::copytree {

struct Contender {
  std::string name;  // "star", "prim", "capped-prim", "planned"
  std::string what;  // in a few words
  // None: there is no such tree, because of `missing`.
  std::optional<Plan> plan;
  std::string missing;
  // Which limits it breaks, in sentences; empty = it could be used.
  std::vector<std::string> broken;
};

// In this order:
//   star         every destination straight from the source, whatever that breaks
//   prim         Prim's algorithm, whatever its tree breaks: the cheapest link that leads to one more
//   capped-prim  the same, but no link that breaks a limit (plan.h, PrimPlan)
//   planned      MakePlan; its lower bound holds for all that break no limit
// Status as MakePlan's.
Result<std::vector<Contender>> Compare(const Graph& graph, const Stream& stream,
                                       const PlanOptions& options);

}  // namespace tailcast::copytree
