// Why is this edge in the tree, and what would the next best cost?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tailcast/copytree/plan.h"

namespace tailcast::copytree {

// Another parent for the cluster, everything else staying as it is.
struct Alternative {
  std::string from;
  double usd_per_gb = 0;
  double extra_usd_per_gb = 0;  // against the edge in the tree; negative = cheaper
  double arrival_ms = 0;        // of the cluster, if it were fed from there
  // Why the tree does not or cannot use it; empty = it could, at that price.
  std::string blocked;
};

struct Explanation {
  Hop hop;
  // Sorted by price, then arrival; the edge itself is not among them.
  std::vector<Alternative> alternatives;
  // The whole tree planned anew without this edge; none if there is no such tree, or none was
  // found within the effort: `irreplaceable` says which.
  std::optional<Plan> next_best;
  std::string irreplaceable;
  // In a sentence or two.
  std::string reason;
};

// NotFound if `plan` has no edge into `cluster`. The graph, stream and options are those of the
// plan.
Result<Explanation> Explain(const Graph& graph, const Stream& stream, const PlanOptions& options,
                            const Plan& plan, std::string_view cluster);

}  // namespace tailcast::copytree
