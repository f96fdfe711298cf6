#include "tailcast/copytree/change.h"

#include <algorithm>
#include <map>

namespace tailcast::copytree {

std::string_view StepKindName(StepKind kind) {
  switch (kind) {
    case StepKind::kAddEdge:
      return "add-edge";
    case StepKind::kWaitCaughtUp:
      return "wait-caught-up";
    case StepKind::kSwitchConsumers:
      return "switch-consumers";
    case StepKind::kRemoveEdge:
      return "remove-edge";
  }
  return "unknown";
}

Result<std::vector<Step>> Diff(const Tree& before, const Tree& after,
                               const std::vector<std::string>& new_clusters,
                               const std::vector<Reroute>& reroutes,
                               const std::vector<Reroute>& reroutes_before) {
  if (before.source != after.source) {
    return InvalidArgumentError("the trees have different sources: '" + before.source + "' and '" +
                                after.source + "'; a stream keeps its source");
  }
  TAILCAST_ASSIGN_OR_RETURN(const Tree from_tree, Normalized(before));
  TAILCAST_ASSIGN_OR_RETURN(const Tree to_tree, Normalized(after));

  std::vector<Step> steps;
  int wave = 0;
  const auto rerouted = [](const std::vector<Reroute>& list, const std::string& cluster,
                           const std::string& to) {
    return std::any_of(list.begin(), list.end(), [&](const Reroute& r) {
      return r.from == cluster && (to.empty() || r.to == to);
    });
  };
  for (const Reroute& reroute : reroutes) {
    // A cluster that only now joins the tree cannot serve others yet; its turn comes at the end.
    if (rerouted(reroutes_before, reroute.from, reroute.to) || !before.Contains(reroute.to))
      continue;
    steps.push_back({StepKind::kSwitchConsumers, reroute.from, reroute.to, wave, false});
  }
  if (!steps.empty()) ++wave;

  // By depth in the new tree: everything of one depth is one wave.
  std::map<std::string, int> depth{{to_tree.source, 0}};
  int wave_depth = 0;
  bool open = false;
  for (const Edge& edge : to_tree.edges) {
    depth[edge.to] = depth[edge.from] + 1;
    const std::string old_parent = from_tree.ParentOf(edge.to);
    if (old_parent == edge.from) continue;
    if (open && depth[edge.to] != wave_depth) ++wave;
    wave_depth = depth[edge.to];
    open = true;
    const bool joins = old_parent.empty();
    const bool fresh =
        joins || std::find(new_clusters.begin(), new_clusters.end(), edge.to) != new_clusters.end();
    steps.push_back({StepKind::kAddEdge, edge.from, edge.to, wave, fresh});
    steps.push_back({StepKind::kWaitCaughtUp, edge.from, edge.to, wave, false});
    if (!joins) steps.push_back({StepKind::kRemoveEdge, old_parent, edge.to, wave, false});
  }
  if (open) ++wave;

  bool tail = false;
  for (const Reroute& reroute : reroutes) {
    if (rerouted(reroutes_before, reroute.from, reroute.to) || before.Contains(reroute.to))
      continue;
    steps.push_back({StepKind::kSwitchConsumers, reroute.from, reroute.to, wave, false});
    tail = true;
  }
  for (const Reroute& reroute : reroutes_before) {
    if (rerouted(reroutes, reroute.from, "")) continue;
    steps.push_back({StepKind::kSwitchConsumers, reroute.from, reroute.from, wave, false});
    tail = true;
  }
  if (tail) ++wave;
  // What leaves: one wave per depth of the old tree, the deepest first.
  std::map<std::string, int> old_depth{{from_tree.source, 0}};
  for (const Edge& edge : from_tree.edges) old_depth[edge.to] = old_depth[edge.from] + 1;
  int leaving_depth = -1;
  for (size_t i = from_tree.edges.size(); i-- > 0;) {
    const Edge& edge = from_tree.edges[i];
    if (to_tree.Contains(edge.to)) continue;
    if (leaving_depth >= 0 && old_depth[edge.to] != leaving_depth) ++wave;
    leaving_depth = old_depth[edge.to];
    steps.push_back({StepKind::kRemoveEdge, edge.from, edge.to, wave, false});
  }
  return steps;
}

std::vector<std::string> ChangedClusters(const Tree& before, const Tree& after) {
  std::vector<std::string> changed;
  for (const Edge& edge : after.edges) {
    if (!before.HasEdge(edge.from, edge.to)) changed.push_back(edge.to);
  }
  for (const Edge& edge : before.edges) {
    if (!after.Contains(edge.to)) changed.push_back(edge.to);
  }
  return changed;
}

}  // namespace tailcast::copytree
