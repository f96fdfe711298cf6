// From one tree to another without losing anything: make before break.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/copytree/plan.h"
#include "tailcast/copytree/tree.h"

namespace tailcast::copytree {

enum class StepKind : uint8_t {
  kAddEdge,       // start the operations from -> to, beside those that feed `to` already
  kWaitCaughtUp,  // go on when `to`, fed over from -> to, stands where the old edge has brought it
  kSwitchConsumers,  // consumers in `from` read from cluster `to` from here on
  kRemoveEdge,       // end the operations from -> to
};
std::string_view StepKindName(StepKind kind);  // "add-edge", "wait-caught-up", ...

struct Step {
  StepKind kind = StepKind::kAddEdge;
  std::string from, to;
  // Steps of one wave touch different clusters and may run side by side; a wave starts when the
  // one before it has ended. Within a wave the steps of one cluster keep their order.
  int wave = 0;
  bool rate_limited = false;  // kAddEdge: `to` is a new cluster, or has yet to catch up
  bool operator==(const Step&) const = default;
};

// The steps that turn `before` into `after`, which have the same source. Clusters change from the
// source downwards in the new tree, so that
//  - whoever is to feed a cluster is itself fed over its final path by then, so a chain of copies
//    never closes to a ring,
//  - a cluster that both trees hold has a caught-up feed at any moment,
//  - edges into clusters that the new tree leaves out go last, the deepest first.
// Consumers of sick clusters (`reroutes`, from the new plan) switch first of all; consumers that
// were re-routed before (`reroutes_before`) and no longer are, go home (from == to) last.
// The source and every cluster may for a while feed more clusters than the limits allow: the old
// ones and the new ones. InvalidArgument if a tree is none, or the sources differ.
Result<std::vector<Step>> Diff(const Tree& before, const Tree& after,
                               const std::vector<std::string>& new_clusters = {},
                               const std::vector<Reroute>& reroutes = {},
                               const std::vector<Reroute>& reroutes_before = {});

// Clusters whose feed differs between the trees, in the order of `after`, then those left out.
std::vector<std::string> ChangedClusters(const Tree& before, const Tree& after);

}  // namespace tailcast::copytree
