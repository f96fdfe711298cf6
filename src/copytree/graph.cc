#include "tailcast/copytree/graph.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tailcast/base/nearest.h"

namespace tailcast::copytree {
namespace {

std::vector<std::string> Names(const std::vector<Cluster>& clusters) {
  std::vector<std::string> names;
  names.reserve(clusters.size());
  for (const Cluster& cluster : clusters) names.push_back(cluster.name);
  return names;
}

}  // namespace

std::string_view HealthName(Health health) {
  switch (health) {
    case Health::kHealthy:
      return "healthy";
    case Health::kSick:
      return "sick";
    case Health::kNew:
      return "new";
  }
  return "unknown";
}

Result<Graph> Graph::Create(std::vector<Cluster> clusters, std::vector<Link> links) {
  if (clusters.empty()) return InvalidArgumentError("no clusters: a copy tree needs at least one");
  if (clusters.size() > kClustersMax) {
    return InvalidArgumentError(std::to_string(clusters.size()) + " clusters; at most " +
                                std::to_string(kClustersMax) + " are supported");
  }
  Graph graph;
  graph.clusters_ = std::move(clusters);
  std::sort(graph.clusters_.begin(), graph.clusters_.end(),
            [](const Cluster& a, const Cluster& b) { return a.name < b.name; });
  for (int i = 0; i < graph.size(); ++i) {
    const std::string& name = graph.clusters_[i].name;
    if (name.empty()) return InvalidArgumentError("a cluster has an empty name");
    if (!graph.index_.emplace(name, i).second) {
      return InvalidArgumentError("cluster '" + name + "' is given twice");
    }
  }
  const int n = graph.size();
  graph.link_at_.assign(static_cast<size_t>(n) * n, -1);
  for (Link& link : links) {
    const std::string which = "link " + link.from + " -> " + link.to;
    int ends[2];
    for (int end = 0; end < 2; ++end) {
      const std::string& name = end == 0 ? link.from : link.to;
      const std::optional<int> found = graph.Find(name);
      if (!found) {
        return InvalidArgumentError(which + ": no cluster is called '" + name + "'" +
                                    DidYouMean(name, Names(graph.clusters_)));
      }
      ends[end] = *found;
    }
    if (ends[0] == ends[1]) {
      return InvalidArgumentError(which + ": leads from a cluster to itself; remove it");
    }
    if (std::isnan(link.usd_per_gb)) return InvalidArgumentError(which + ": the price is missing");
    if (link.usd_per_gb < 0) return InvalidArgumentError(which + ": the price is negative");
    if (link.usd_per_gb > kUsdPerGbMax) {
      return InvalidArgumentError(which + ": the price is above " +
                                  std::to_string(static_cast<int>(kUsdPerGbMax)) +
                                  " USD per GB; is it per TB?");
    }
    if (std::isnan(link.rtt_ms)) {
      return InvalidArgumentError(which + ": the round-trip time is missing");
    }
    if (!(link.rtt_ms >= 0 && link.rtt_ms <= kRttMsMax)) {
      return InvalidArgumentError(which + ": the round-trip time must be between 0 and 1000000 ms");
    }
    if (!(link.bandwidth_gbps >= 0 && link.bandwidth_gbps <= kBandwidthGbpsMax)) {
      return InvalidArgumentError(which + ": the bandwidth must be 0 (unknown) or positive");
    }
    int& slot = graph.link_at_[static_cast<size_t>(ends[0]) * n + ends[1]];
    if (slot >= 0) return InvalidArgumentError(which + ": is given twice");
    slot = static_cast<int>(graph.links_.size());
    graph.links_.push_back(std::move(link));
  }
  return graph;
}

const Link* Graph::FindLink(int from, int to) const {
  const int at = link_at_[static_cast<size_t>(from) * clusters_.size() + to];
  return at < 0 ? nullptr : &links_[at];
}

const Link* Graph::FindLink(std::string_view from, std::string_view to) const {
  const std::optional<int> a = Find(from);
  const std::optional<int> b = Find(to);
  return a && b ? FindLink(*a, *b) : nullptr;
}

std::optional<int> Graph::Find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

Result<int> Graph::Require(std::string_view name, std::string_view what) const {
  if (const std::optional<int> found = Find(name)) return *found;
  return NotFoundError(std::string(what) + " '" + std::string(name) + "' is not a cluster" +
                       DidYouMean(name, Names(clusters_)));
}

Status Graph::SetHealth(std::string_view cluster, Health health) {
  TAILCAST_ASSIGN_OR_RETURN(const int at, Require(cluster, "cluster"));
  clusters_[at].health = health;
  return OkStatus();
}

Status Graph::SetLinkSick(std::string_view from, std::string_view to, bool sick) {
  TAILCAST_ASSIGN_OR_RETURN(const int a, Require(from, "link end"));
  TAILCAST_ASSIGN_OR_RETURN(const int b, Require(to, "link end"));
  const int at = link_at_[static_cast<size_t>(a) * clusters_.size() + b];
  if (at < 0) {
    return NotFoundError("there is no link " + std::string(from) + " -> " + std::string(to));
  }
  links_[at].sick = sick;
  return OkStatus();
}

Result<std::vector<Edge>> ParseLinks(const Graph& graph, const std::string& text) {
  const auto as_usage = [](const Status& status) {
    return IsNotFound(status) ? InvalidArgumentError(status.message()) : status;
  };
  std::vector<Edge> links;
  if (const size_t arrow = text.find("->"); arrow != std::string::npos) {
    const Edge edge{text.substr(0, arrow), text.substr(arrow + 2)};
    TAILCAST_RETURN_IF_ERROR(as_usage(graph.Require(edge.from, "link end").status()));
    TAILCAST_RETURN_IF_ERROR(as_usage(graph.Require(edge.to, "link end").status()));
    if (graph.FindLink(edge.from, edge.to) == nullptr) {
      return InvalidArgumentError("there is no link " + edge.from + " -> " + edge.to);
    }
    links.push_back(edge);
    return links;
  }
  bool names_known = false;
  for (size_t dash = text.find('-'); dash != std::string::npos; dash = text.find('-', dash + 1)) {
    const std::string a = text.substr(0, dash), b = text.substr(dash + 1);
    if (!graph.Find(a) || !graph.Find(b)) continue;
    names_known = true;
    std::vector<Edge> found;
    if (graph.FindLink(a, b) != nullptr) found.push_back({a, b});
    if (graph.FindLink(b, a) != nullptr) found.push_back({b, a});
    if (found.empty()) continue;
    if (!links.empty()) {
      return InvalidArgumentError("'" + text + "' could be more than one link; write FROM->TO");
    }
    links = std::move(found);
  }
  if (!links.empty()) return links;
  if (names_known)
    return InvalidArgumentError("there is no link between the ends of '" + text + "'");
  std::vector<std::string> names;
  for (const Cluster& cluster : graph.clusters()) names.push_back(cluster.name);
  return InvalidArgumentError("'" + text + "' is neither a cluster nor a link FROM-TO" +
                              DidYouMean(text, names));
}

}  // namespace tailcast::copytree
