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

Result<std::vector<Step>> Diff(const Tree& before, const Tree& after, const DiffOptions& options) {
  if (before.source != after.source) {
    return InvalidArgumentError("the trees have different sources: '" + before.source + "' and '" +
                                after.source + "'; a stream keeps its source");
  }
  TAILCAST_ASSIGN_OR_RETURN(const Tree from_tree, Normalized(before));
  TAILCAST_ASSIGN_OR_RETURN(const Tree to_tree, Normalized(after));
  std::vector<Edge> abandoned;
  for (const Edge& edge : options.abandoned) {
    if (edge.to != to_tree.source && !from_tree.HasEdge(edge.from, edge.to) &&
        !to_tree.HasEdge(edge.from, edge.to) &&
        std::find(abandoned.begin(), abandoned.end(), edge) == abandoned.end()) {
      abandoned.push_back(edge);
    }
  }

  std::vector<Step> steps;
  int wave = 0;
  const auto add = [&](StepKind kind, const std::string& from, const std::string& to,
                       std::vector<int> needs, bool rate_limited = false) {
    std::sort(needs.begin(), needs.end());
    needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
    steps.push_back({kind, from, to, wave, rate_limited, std::move(needs)});
    return static_cast<int>(steps.size()) - 1;
  };
  const auto rerouted = [](const std::vector<Reroute>& list, const std::string& cluster,
                           const std::string& to) {
    return std::any_of(list.begin(), list.end(), [&](const Reroute& r) {
      return r.from == cluster && (to.empty() || r.to == to);
    });
  };
  std::map<std::string, std::vector<int>> switched;  // by the cluster that consumers leave
  for (const Reroute& reroute : options.reroutes) {
    // A cluster that only now joins the tree cannot serve others yet; its turn comes at the end.
    if (rerouted(options.reroutes_before, reroute.from, reroute.to) || !before.Contains(reroute.to))
      continue;
    switched[reroute.from].push_back(add(StepKind::kSwitchConsumers, reroute.from, reroute.to, {}));
  }
  if (!steps.empty()) ++wave;

  // By depth in the new tree: everything of one depth is one wave.
  std::map<std::string, int> depth{{to_tree.source, 0}};
  std::map<std::string, int> waited;  // clusters that change -> their wait-caught-up
  // The wait-caught-up by which a cluster of the new tree is settled; none if it is from the first.
  std::map<std::string, std::vector<int>> settled;
  int wave_depth = 0;
  bool open = false;
  for (const Edge& edge : to_tree.edges) {
    depth[edge.to] = depth[edge.from] + 1;
    settled[edge.to] = settled[edge.from];
    const std::string old_parent = from_tree.ParentOf(edge.to);
    std::vector<std::string> leaving;
    if (!old_parent.empty() && old_parent != edge.from) leaving.push_back(old_parent);
    for (const Edge& other : abandoned) {
      if (other.to == edge.to) leaving.push_back(other.from);
    }
    if (old_parent == edge.from && leaving.empty()) continue;
    if (open && depth[edge.to] != wave_depth) ++wave;
    wave_depth = depth[edge.to];
    open = true;
    const bool fresh =
        old_parent.empty() || std::find(options.new_clusters.begin(), options.new_clusters.end(),
                                        edge.to) != options.new_clusters.end();
    const int added = add(StepKind::kAddEdge, edge.from, edge.to, settled[edge.from], fresh);
    const int wait = add(StepKind::kWaitCaughtUp, edge.from, edge.to, {added});
    waited[edge.to] = wait;
    settled[edge.to] = {wait};
    for (const std::string& parent : leaving) {
      add(StepKind::kRemoveEdge, parent, edge.to, {wait});
    }
  }
  if (open) ++wave;

  bool tail = false;
  for (const Reroute& reroute : options.reroutes) {
    if (rerouted(options.reroutes_before, reroute.from, reroute.to) || before.Contains(reroute.to))
      continue;
    switched[reroute.from].push_back(
        add(StepKind::kSwitchConsumers, reroute.from, reroute.to, settled[reroute.to]));
    tail = true;
  }
  for (const Reroute& reroute : options.reroutes_before) {
    if (rerouted(options.reroutes, reroute.from, "")) continue;
    // Also away from the cluster that served them.
    switched[reroute.to].push_back(
        add(StepKind::kSwitchConsumers, reroute.from, reroute.from, settled[reroute.from]));
    tail = true;
  }
  if (tail) ++wave;
  // What leaves: one wave per depth of the old tree, the deepest first.
  std::map<std::string, int> old_depth{{from_tree.source, 0}};
  for (const Edge& edge : from_tree.edges) old_depth[edge.to] = old_depth[edge.from] + 1;
  std::map<std::string, std::vector<int>> fed;  // clusters that leave -> waits of those below them
  // After a change that was not carried out anything may hang on a cluster that leaves.
  std::vector<int> all;
  if (!abandoned.empty()) {
    for (const auto& [cluster, wait] : waited) all.push_back(wait);
  }
  int leaving_depth = -1;
  for (size_t i = from_tree.edges.size(); i-- > 0;) {
    const Edge& edge = from_tree.edges[i];
    if (to_tree.Contains(edge.to)) {
      if (const auto wait = waited.find(edge.to); wait != waited.end()) {
        fed[edge.from].push_back(wait->second);
      }
      continue;
    }
    if (leaving_depth >= 0 && old_depth[edge.to] != leaving_depth) ++wave;
    leaving_depth = old_depth[edge.to];
    std::vector<int> needs = abandoned.empty() ? fed[edge.to] : all;
    fed[edge.from].insert(fed[edge.from].end(), needs.begin(), needs.end());
    needs.insert(needs.end(), switched[edge.to].begin(), switched[edge.to].end());
    add(StepKind::kRemoveEdge, edge.from, edge.to, std::move(needs));
    for (const Edge& other : abandoned) {
      if (other.to == edge.to) add(StepKind::kRemoveEdge, other.from, other.to, all);
    }
  }
  // Clusters that only a change in between would have brought into the tree.
  for (const Edge& edge : abandoned) {
    if (!to_tree.Contains(edge.to) && !from_tree.Contains(edge.to)) {
      add(StepKind::kRemoveEdge, edge.from, edge.to, all);
    }
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
