#include "tailcast/app/reroute.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/nearest.h"
#include "tailcast/base/strong.h"
#include "tailcast/cell/topology.h"
#include "tailcast/node/topology_graph.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::app {
namespace {

// The stream's, by name: those of none are all cells but relays. InvalidArgument,
// FailedPrecondition: a cell that can't be added or taken away.
Status ChangeDestinations(const RerouteRequest& request, const cell::Topology& topology,
                          cell::TopologyStream& stream) {
  std::vector<std::string>& destinations = stream.destinations;
  if (request.without.empty() && request.with.empty()) return OkStatus();
  if (destinations.empty()) {
    for (const cell::TopologyCluster& cluster : topology.clusters) {
      if (cluster.name != stream.source && !cluster.relay_only) {
        destinations.push_back(cluster.name);
      }
    }
  }
  const auto find = [&](const std::string& name) {
    return std::find(destinations.begin(), destinations.end(), name);
  };
  for (const std::string& name : request.without) {
    if (find(name) == destinations.end()) {
      return FailedPreconditionError("'" + name + "' is no destination of stream '" + stream.name +
                                     "'" + DidYouMean(name, destinations));
    }
    destinations.erase(find(name));
  }
  for (const std::string& name : request.with) {
    const cell::TopologyCluster* cluster = topology.FindCluster(name);
    if (cluster == nullptr) {
      return InvalidArgumentError("'" + name + "' is no cell of the topology" +
                                  DidYouMean(name, topology.ClusterNames()));
    }
    if (cluster->relay_only || name == stream.source || find(name) != destinations.end()) {
      return FailedPreconditionError("'" + name + "' " +
                                     (cluster->relay_only     ? "only relays"
                                      : name == stream.source ? "is the source"
                                                              : "is a destination") +
                                     (cluster->relay_only ? "" : " already") + " of stream '" +
                                     stream.name + "'");
    }
    destinations.push_back(name);
  }
  // None at all would be all of them.
  if (destinations.empty()) {
    return FailedPreconditionError("stream '" + stream.name +
                                   "' needs a destination; `tailcast stream delete` ends it");
  }
  return OkStatus();
}

}  // namespace

Result<copytree::Edge> ParseEdge(const std::string& text, const std::vector<std::string>& known) {
  const auto is_known = [&](const std::string& name) {
    return std::find(known.begin(), known.end(), name) != known.end();
  };
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '-' && text[at] != '>') continue;
    const copytree::Edge edge{text.substr(0, at), text.substr(at + 1)};
    if (is_known(edge.from) && is_known(edge.to)) return edge;
  }
  const size_t middle = text.find('>');
  std::string hint = DidYouMean(text.substr(0, middle), known);
  return InvalidArgumentError("'" + text + "' is not FROM-TO with two cells of the topology" +
                              hint);
}

Result<Rerouted> Reroute(CellSession& session, const RerouteRequest& request) {
  const cell::CellView& view = session.client().view();
  TAILCAST_ASSIGN_OR_RETURN(v1::StreamConfig stream, session.client().FindStream(request.stream));
  if (stream.source() != view.cell()) {
    return FailedPreconditionError("stream '" + stream.name() + "' begins in cell " +
                                   stream.source() + ", not in " + view.cell() +
                                   "; ask that cell's scheduler");
  }
  TAILCAST_ASSIGN_OR_RETURN(const cell::Topology topology,
                            cell::ParseTopology(view.topology(), "topology of " + view.cell()));
  TAILCAST_ASSIGN_OR_RETURN(copytree::Graph graph, node::ToGraph(topology));
  for (const std::string& name : request.sick) {
    TAILCAST_RETURN_IF_ERROR(graph.SetHealth(name, copytree::Health::kSick));
  }
  for (const std::string& text : request.failed) {
    if (text == stream.source()) {
      return InvalidArgumentError("'" + text +
                                  "' is the source; when it fails nothing is produced");
    }
    if (graph.Find(text)) {
      TAILCAST_RETURN_IF_ERROR(graph.SetHealth(text, copytree::Health::kSick));
      continue;
    }
    TAILCAST_ASSIGN_OR_RETURN(const auto links, copytree::ParseLinks(graph, text));
    for (const copytree::Edge& link : links) {
      TAILCAST_RETURN_IF_ERROR(graph.SetLinkSick(link.from, link.to, true));
    }
  }
  cell::TopologyStream what;
  what.name = stream.name();
  what.source = stream.source();
  what.destinations.assign(stream.destinations().begin(), stream.destinations().end());
  Rerouted result;
  result.before.source = stream.source();
  for (const v1::TreeEdge& edge : stream.tree()) {
    result.before.edges.push_back({edge.from(), edge.to()});
  }
  copytree::PlanOptions options = node::ToPlanOptions(topology);
  TAILCAST_ASSIGN_OR_RETURN(
      const copytree::Plan before,
      copytree::DescribeTree(graph, node::ToStream(what), options, result.before));
  result.usd_per_gb_before = before.usd_per_gb;
  options.current = result.before;
  options.avoid = request.avoid;
  TAILCAST_RETURN_IF_ERROR(ChangeDestinations(request, topology, what));
  // Else it might go on as a relay.
  for (const std::string& name : request.without) {
    TAILCAST_RETURN_IF_ERROR(graph.SetHealth(name, copytree::Health::kSick));
  }
  for (const copytree::Edge& edge : request.tree) what.tree.push_back({edge.from, edge.to});
  TAILCAST_ASSIGN_OR_RETURN(const copytree::Plan after, node::PlanStream(graph, what, options));
  result.after = after.tree;
  result.usd_per_gb_after = after.usd_per_gb;
  result.warnings = after.warnings;
  // As the source's registry records it (cell/registry_core.h): a change that is not carried out
  // yet is left off where it stands.
  copytree::Tree base = result.before;
  copytree::DiffOptions diff;
  diff.reroutes = after.reroutes;
  if (stream.has_change()) {
    base.edges.clear();
    for (const auto& edge : stream.change().base()) base.edges.push_back({edge.from(), edge.to()});
    for (const auto& edge : stream.change().abandoned()) {
      diff.abandoned.push_back({edge.from(), edge.to()});
    }
    diff.abandoned.insert(diff.abandoned.end(), result.before.edges.begin(),
                          result.before.edges.end());
  }
  TAILCAST_ASSIGN_OR_RETURN(result.steps, copytree::Diff(base, result.after, diff));
  const bool other_destinations = !request.without.empty() || !request.with.empty();
  result.changed =
      other_destinations || !copytree::ChangedClusters(result.before, result.after).empty();
  result.tree_version = stream::TreeVersion{stream.tree_version() + (result.changed ? 1 : 0)};
  if (!result.changed || request.dry_run) return result;

  v1::InstallStreamRequest install;
  *install.mutable_stream() = stream;
  install.mutable_stream()->set_tree_version(Raw(result.tree_version));
  install.mutable_stream()->clear_tree();
  install.mutable_stream()->clear_change();
  if (other_destinations) {
    install.mutable_stream()->clear_destinations();
    for (const std::string& name : what.destinations) {
      install.mutable_stream()->add_destinations(name);
    }
  }
  for (const copytree::Edge& edge : result.after.edges) {
    v1::TreeEdge* added = install.mutable_stream()->add_tree();
    added->set_from(edge.from);
    added->set_to(edge.to);
  }
  std::string scheduler;
  for (const v1::ProcessInfo& process : view.processes()) {
    if (process.role() == v1::ROLE_SCHEDULER) scheduler = process.rpc_address();
  }
  auto client = session.connector().MakeClient(scheduler, "");
  const auto answer = session.Call<Result<std::string>>(
      [&](auto done) {
        client->Call("/tailcast.v1.Peer/InstallStream", install.SerializeAsString(),
                     Duration::Seconds(10), std::move(done));
      },
      "`tailcast stream describe` shows the tree");
  if (!answer.ok()) return answer.status();
  return result;
}

Status WaitForTree(CellSession& session, const std::string& stream,
                   stream::TreeVersion tree_version, Duration timeout) {
  Status status;
  const auto known = [&] {
    const auto now = session.client().FindStream(stream);
    status = now.status();
    if (!now.ok()) return true;
    if (stream::TreeVersionOf(*now) > tree_version) {
      status = AbortedError("another tree has replaced this one meanwhile");
      return true;
    }
    return stream::TreeVersionOf(*now) == tree_version &&
           now->finished_version() >= Raw(tree_version);
  };
  if (session.loop().RunUntil(known, session.loop().Now() + timeout)) return status;
  return DeadlineExceededError("not carried out within " +
                               std::to_string(static_cast<int>(timeout.seconds())) +
                               " s; the schedulers go on, and `tailcast stream describe` shows "
                               "when it is done");
}

}  // namespace tailcast::app
