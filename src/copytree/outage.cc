#include "tailcast/copytree/outage.h"

#include <map>
#include <set>

namespace tailcast::copytree {

Result<Suspects> FindSuspects(const Tree& tree, const std::vector<Observation>& observations,
                              double late_ms) {
  TAILCAST_ASSIGN_OR_RETURN(const Tree sorted, Normalized(tree));
  std::map<std::string, Observation> seen;
  for (const Observation& observation : observations) seen[observation.cluster] = observation;
  const auto unwell = [&](const std::string& name) {
    const auto at = seen.find(name);
    return at != seen.end() && (at->second.unwell || at->second.silent);
  };
  const auto late = [&](const std::string& name) {
    const auto at = seen.find(name);
    return at != seen.end() && !at->second.silent && at->second.lag_ms > late_ms;
  };
  std::map<std::string, std::vector<std::string>> children;
  for (const Edge& edge : sorted.edges) children[edge.from].push_back(edge.to);

  Suspects suspects;
  std::set<std::string> below_trouble;  // something above, or the cluster itself, is to blame
  std::vector<std::string> order{sorted.source};
  if (unwell(sorted.source)) suspects.clusters.push_back(sorted.source);
  for (size_t next = 0; next < order.size(); ++next) {
    const std::string at = order[next];
    const std::vector<std::string>& fed = children[at];
    const bool trouble_here = below_trouble.contains(at);
    // Children that are unwell themselves say nothing about how well `at` sends.
    int judged = 0, judged_late = 0;
    for (const std::string& child : fed) {
      if (unwell(child)) continue;
      ++judged;
      judged_late += late(child);
    }
    const bool sends_badly =
        !trouble_here && !unwell(at) && judged >= 2 && judged_late == judged && at != sorted.source;
    if (sends_badly) suspects.clusters.push_back(at);
    for (const std::string& child : fed) {
      order.push_back(child);
      if (unwell(child)) {
        suspects.clusters.push_back(child);
        below_trouble.insert(child);
      } else if (late(child)) {
        below_trouble.insert(child);
        if (trouble_here || unwell(at) || sends_badly) {
          suspects.victims.push_back(child);
        } else {
          suspects.links.push_back({at, child});
        }
      }
    }
  }
  return suspects;
}

Status ApplySuspects(const Suspects& suspects, Graph* graph) {
  for (const std::string& cluster : suspects.clusters) {
    TAILCAST_RETURN_IF_ERROR(graph->SetHealth(cluster, Health::kSick));
  }
  for (const Edge& link : suspects.links) {
    TAILCAST_RETURN_IF_ERROR(graph->SetLinkSick(link.from, link.to, true));
    if (graph->FindLink(link.to, link.from) != nullptr) {
      TAILCAST_RETURN_IF_ERROR(graph->SetLinkSick(link.to, link.from, true));
    }
  }
  return OkStatus();
}

}  // namespace tailcast::copytree
