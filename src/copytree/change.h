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
  kAddEdge,          // start the operations from -> to, beside those that feed `to` already
  kWaitCaughtUp,     // go on when `to`, fed over from -> to, stands where the old edge brought it
  kSwitchConsumers,  // consumers in `from` read from cluster `to` from here on
  kRemoveEdge,       // end the operations from -> to
};
std::string_view StepKindName(StepKind kind);  // "add-edge", "wait-caught-up", ...

struct Step {
  StepKind kind = StepKind::kAddEdge;
  std::string from, to;
  // Steps of one wave touch different clusters and may run side by side. For people: who carries
  // the steps out keeps to `after`.
  int wave = 0;
  bool rate_limited = false;  // kAddEdge: `to` is a new cluster, or has yet to catch up
  // The steps (their places in the list, ascending) that must have ended before this one begins.
  // Nothing else is asked for: steps that do not depend on one another may be taken in any order.
  std::vector<int> after;
  bool operator==(const Step&) const = default;
};

// What Diff needs to know besides the trees.
struct DiffOptions {
  // Clusters that have yet to catch up; those that only `after` holds are, anyway.
  std::vector<std::string> new_clusters;
  std::vector<Reroute> reroutes;         // of the new plan
  std::vector<Reroute> reroutes_before;  // of the running plan
  // If `before` was to become another tree already and that change was not carried out to its end:
  // the edges of that tree (of all such trees) that neither `before` nor `after` has. Some of them
  // may run. A cluster that one of them enters is fed anew over its edge in `after`.
  std::vector<Edge> abandoned;
};

// The steps that turn `before` into `after`, which have the same source. Clusters change from the
// source downwards in the new tree:
//
//   add-edge n -> c          after the wait-caught-up of the nearest cluster on the way from the
//                            source to n in the new tree, n included, that changes too: n is then
//                            *settled*: feeds form no cycle. The old edge c -> n may run on beside it
//   wait-caught-up n -> c    after its add-edge
//   remove-edge o -> c       after that: c always has a feed. Until then o -> c is fenced: harmless
//   remove-edge o -> gone    (a cluster that the new tree leaves out) after the wait-caught-up of
//                            each cluster that the old tree feeds through it, and after its
//                            consumers went
//   switch-consumers c -> d  at once, if d was fed before; else after d's wait-caught-up
//   switch-consumers c -> c  (home again) when c is settled
//
// The list is in an order that respects this: consumers of sick clusters (`reroutes`) first of all;
// consumers that go home and edges into clusters that leave, the deepest first, last.
// The source and every cluster may for a while feed more clusters than the limits allow: the old
// ones and the new ones. InvalidArgument if a tree is none, or the sources differ.
//
// The schedulers carry out just these steps (scheduler/stream_edges.h), each those whose `from`
// it is.
Result<std::vector<Step>> Diff(const Tree& before, const Tree& after,
                               const DiffOptions& options = {});

// Clusters whose feed differs between the trees, in the order of `after`, then those left out.
std::vector<std::string> ChangedClusters(const Tree& before, const Tree& after);

}  // namespace tailcast::copytree
