// A tree and a standby for it that shares no link with it where that can be, planned together, so
// that one can be switched to the other when a link fails.
#pragma once

#include <vector>

#include "tailcast/copytree/plan.h"

namespace tailcast::copytree {

// A link that both trees use in the same direction.
struct SharedLink {
  Edge edge;
  // Nothing else leads from the source to `edge.to`: any two trees share it. Else: no pair without
  // it was found within this effort.
  bool only_way = false;
};

struct PlanPair {
  // The cheaper one, unless a running tree was given; its `work` is that of the whole search.
  Plan primary;
  Plan standby;
  std::vector<SharedLink> shared;
  // Links of the standby whose other direction the first tree uses: a cable that fails cuts both.
  std::vector<Edge> reversed;
  double usd_per_gb = 0;  // of both trees
  // No two trees within the limits that share no link cost less together.
  double lower_bound_usd_per_gb = 0;
  bool optimal = false;  // the bound is met
  // The cheapest tree that was found when no standby was asked for; what the first costs more than
  // that is given up for the standby.
  double alone_usd_per_gb = 0;

  // (usd_per_gb - lower bound) / lower bound; infinite if there is no bound above 0.
  double Gap() const;
};

// Fewest shared links first (one that is used in opposite directions counts half), then the least
// price of both together. Each tree by itself meets the limits; the running tree and its churn
// price concern the first one. The effort of the options is for the search as a whole. Status as
// MakePlan's; where there is a tree, there is a pair.
Result<PlanPair> MakePlanPair(const Graph& graph, const Stream& stream, const PlanOptions& options);

}  // namespace tailcast::copytree
