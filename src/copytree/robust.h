// Trees that a failure does not make much dearer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/copytree/plan.h"

namespace tailcast::copytree {

// What a tree costs after one cluster or one link of it failed. Only the clusters that hung on what
// failed move then; the others keep their feeds (mend.h).
struct FailureCost {
  std::string cluster;  // that fails; empty: the link
  Edge link;
  double usd_per_gb = 0;  // of the mended tree
  double extra = 0;       // above `alone_usd_per_gb`, as a part of that; may be < 0
  // Nothing else leads to some destination within the limits on depth and delay: no tree is safe
  // from it, and the figures are 0.
  bool hopeless = false;
};

struct RobustPlan {
  Plan plan;
  std::vector<FailureCost>
      failures;            // of each cluster that feeds others and of each link, worst first
  double worst_extra = 0;  // of those that are not hopeless
  // The cheapest tree that was found when failures were not asked about, and its worst; nothing:
  // one of them leaves clusters that nothing was found to feed.
  double alone_usd_per_gb = 0;
  std::optional<double> alone_worst_extra;
};

// The cheapest tree that was found which, when any one cluster but the source or any one link of it
// fails, costs at most `most_extra` (0.2 = 20 %) more than the cheapest tree does while all is
// well. Failures from which no tree is safe (hopeless) do not count; a warning names them. The
// plan's bound is that on any tree. Effort, status and the rest as MakePlan. FailedPrecondition
// names a value of `most_extra` or of a limit that will do: this very plan was made with it. The
// elementary steps spent are added to `work`, if given: two searches, and up to five for a
// refusal's values.
Result<RobustPlan> MakeRobustPlan(const Graph& graph, const Stream& stream,
                                  const PlanOptions& options, double most_extra,
                                  int64_t* work = nullptr);

}  // namespace tailcast::copytree
