#include "tailcast/app/copytree_session.h"

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tailcast/copytree/change.h"
#include "tailcast/node/topology_graph.h"

namespace tailcast::app {

using copytree::Edge;
using copytree::Plan;
using copytree::PlanOptions;
using copytree::RenderOptions;
using copytree::Tree;
using node::ToStream;

Status CopytreeSession::DoSimulate() {
  TAILCAST_ASSIGN_OR_RETURN(auto prepared, PrepareOne(flags_->topology));
  auto& [task, stream] = prepared;
  TAILCAST_ASSIGN_OR_RETURN(const Plan before, PlanOf(task, stream, task.options));
  std::string what;
  for (const std::string& text : flags_->fail) {
    if (!what.empty()) what += ", ";
    if (task.graph->Find(text)) {
      if (text == stream.source) {
        return InvalidArgumentError("'" + text +
                                    "' is the source; when it fails nothing is produced");
      }
      TAILCAST_RETURN_IF_ERROR(task.graph->SetHealth(text, copytree::Health::kSick));
      what += "cluster " + text;
      continue;
    }
    TAILCAST_ASSIGN_OR_RETURN(const std::vector<Edge> links,
                              copytree::ParseLinks(*task.graph, text));
    for (const Edge& link : links) {
      TAILCAST_RETURN_IF_ERROR(task.graph->SetLinkSick(link.from, link.to, true));
    }
    what += "link " + links[0].from + (links.size() == 2 ? " <-> " : " -> ") + links[0].to;
  }
  PlanOptions options = task.options;
  options.current = before.tree;
  cell::TopologyStream planned = stream;
  planned.tree.clear();  // a failure overrides a tree fixed by hand
  TAILCAST_ASSIGN_OR_RETURN(const Plan after, PlanOf(task, planned, options));
  TAILCAST_ASSIGN_OR_RETURN(
      const std::vector<copytree::Step> steps,
      copytree::Diff(before.tree, after.tree,
                     {.reroutes = after.reroutes, .reroutes_before = before.reroutes}));
  if (Json()) {
    nlohmann::ordered_json json;
    json["failed"] = flags_->fail;
    json["before"] = nlohmann::ordered_json::parse(copytree::PlanJson(ToStream(stream), before));
    json["after"] = nlohmann::ordered_json::parse(copytree::PlanJson(ToStream(stream), after));
    json["steps"] = nlohmann::ordered_json::parse(copytree::StepsJson(steps));
    return Write(json.dump(2) + "\n");
  }
  const RenderOptions rendering = Rendering(task.options);
  std::string text =
      "before\n" + copytree::PlanText(ToStream(stream), before, rendering) + "\nafter " + what +
      " failed\n" + copytree::PlanText(ToStream(stream), after, rendering) + "\nextra     " +
      FormatNumber("%+.4f", after.usd_per_gb - before.usd_per_gb) + " USD/GB, worst delay " +
      FormatNumber("%+.1f", after.worst_delay_ms - before.worst_delay_ms) + " ms\n\nsteps\n" +
      copytree::StepsText(steps);
  return Write(text);
}

Status CopytreeSession::DoDiff() {
  // Each side: a plan in JSON, or a topology to be planned.
  std::optional<Tree> trees[2];
  std::optional<Plan> plans[2];
  const std::string files[2] = {flags_->before, flags_->after};
  for (int side = 0; side < 2; ++side) {
    TAILCAST_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files[side]));
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && (text[first] == '{' || text[first] == '[')) {
      TAILCAST_ASSIGN_OR_RETURN(trees[side], ReadTree(files[side]));
      continue;
    }
    TAILCAST_ASSIGN_OR_RETURN(auto prepared, PrepareOne(files[side]));
    auto& [task, stream] = prepared;
    if (side == 1 && trees[0]) task.options.current = trees[0];
    TAILCAST_ASSIGN_OR_RETURN(plans[side], PlanOf(task, stream, task.options));
    trees[side] = plans[side]->tree;
  }
  std::vector<std::string> fresh;
  std::vector<copytree::Reroute> reroutes, reroutes_before;
  if (plans[1]) {
    for (const copytree::Hop& hop : plans[1]->hops) {
      if (hop.rate_limited) fresh.push_back(hop.to);
    }
    reroutes = plans[1]->reroutes;
  }
  if (plans[0]) reroutes_before = plans[0]->reroutes;
  TAILCAST_ASSIGN_OR_RETURN(
      const std::vector<copytree::Step> steps,
      copytree::Diff(
          *trees[0], *trees[1],
          {.new_clusters = fresh, .reroutes = reroutes, .reroutes_before = reroutes_before}));
  if (Json()) return Write(copytree::StepsJson(steps));
  std::string text = copytree::StepsText(steps);
  if (plans[0] && plans[1]) {
    text += "\ncost      " + FormatNumber("%.4f", plans[0]->usd_per_gb) + " -> " +
            FormatNumber("%.4f", plans[1]->usd_per_gb) + " USD/GB\n";
  }
  return Write(text);
}

}  // namespace tailcast::app
