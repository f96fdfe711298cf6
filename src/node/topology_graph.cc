#include "tailcast/node/topology_graph.h"

#include <utility>
#include <vector>

namespace tailcast::node {

Result<copytree::Graph> ToGraph(const cell::Topology& topology) {
  std::vector<copytree::Cluster> clusters;
  for (const cell::TopologyCluster& cluster : topology.clusters) {
    copytree::Health health = copytree::Health::kHealthy;
    if (cluster.health == cell::ClusterHealth::kSick) health = copytree::Health::kSick;
    if (cluster.health == cell::ClusterHealth::kNew) health = copytree::Health::kNew;
    clusters.push_back({.name = cluster.name,
                        .relay_only = cluster.relay_only,
                        .health = health,
                        .max_depth = cluster.max_depth,
                        .max_fanout = cluster.max_fanout,
                        .max_egress_mbps = cluster.max_egress_mbps});
  }
  std::vector<copytree::Link> links;
  links.reserve(topology.links.size());
  for (const cell::TopologyLink& link : topology.links) {
    links.push_back({.from = link.from,
                     .to = link.to,
                     .usd_per_gb = link.usd_per_gb,
                     .rtt_ms = link.rtt_ms,
                     .bandwidth_gbps = link.bandwidth_gbps,
                     .sick = link.sick});
  }
  return copytree::Graph::Create(std::move(clusters), std::move(links));
}

copytree::Stream ToStream(const cell::TopologyStream& stream) {
  return {.name = stream.name,
          .source = stream.source,
          .destinations = stream.destinations,
          .rate_mbps = stream.rate_mbps};
}

copytree::PlanOptions ToPlanOptions(const cell::Topology& topology) {
  copytree::PlanOptions options;
  options.limits.max_depth = topology.max_depth;
  options.limits.max_fanout = topology.max_fanout;
  options.limits.max_delay_ms = topology.max_delay_ms;
  options.hop_delay_ms = topology.hop_delay_ms;
  options.churn_usd_per_gb = topology.churn_usd_per_gb;
  return options;
}

copytree::Tree ToTree(const cell::TopologyStream& stream) {
  copytree::Tree tree{stream.source, {}};
  for (const cell::TopologyEdge& edge : stream.tree) tree.edges.push_back({edge.from, edge.to});
  return tree;
}

Result<copytree::Plan> PlanStream(const copytree::Graph& graph, const cell::TopologyStream& stream,
                                  const copytree::PlanOptions& options) {
  if (stream.tree.empty()) return copytree::MakePlan(graph, ToStream(stream), options);
  return copytree::DescribeTree(graph, ToStream(stream), options, ToTree(stream));
}

}  // namespace tailcast::node
