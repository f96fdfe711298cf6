#include "tailcast/app/copytree_session.h"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "tailcast/node/topology_graph.h"

namespace tailcast::app {

using copytree::Plan;
using node::PlanStream;
using node::ToStream;

Status CopytreeSession::DoCheck() {
  TAILCAST_ASSIGN_OR_RETURN(CopytreeTask task, Prepare(flags_->topology));
  std::string text = flags_->topology + ": " + std::to_string(task.graph->size()) + " clusters, " +
                     std::to_string(task.graph->links().size()) + " links, " +
                     std::to_string(task.streams.size()) +
                     (task.streams.size() == 1 ? " stream\n" : " streams\n");
  nlohmann::ordered_json json;
  json["clusters"] = task.graph->size();
  json["links"] = task.graph->links().size();
  json["streams"] = nlohmann::ordered_json::array();
  for (const cell::TopologyStream& stream : task.streams) {
    const std::string name = stream.name.empty() ? "from " + stream.source : stream.name;
    const Result<Plan> plan = PlanStream(*task.graph, stream, task.options);
    nlohmann::ordered_json entry = {{"name", name}, {"ok", plan.ok()}};
    if (!plan.ok()) {
      found_trouble_ = true;
      text += "FAILED  " + name + ": " + plan.status().message() + "\n";
      entry["error"] = plan.status().message();
      json["streams"].push_back(std::move(entry));
      continue;
    }
    text += "ok      " + name + ": " + (stream.tree.empty() ? "" : "tree fixed by hand, ") +
            FormatNumber("%.4f", plan->usd_per_gb) + " USD/GB, depth " +
            std::to_string(plan->depth) + ", fan-out " + std::to_string(plan->fanout) +
            ", worst delay " + FormatNumber("%.1f", plan->worst_delay_ms) + " ms\n";
    if (!stream.tree.empty() && !plan->optimal) {
      const Result<Plan> best = copytree::MakePlan(*task.graph, ToStream(stream), task.options);
      if (best.ok() && (plan->breaks_limits || best->usd_per_gb < plan->usd_per_gb)) {
        text += "note    " + name + ": a planned tree " +
                (plan->breaks_limits ? "within the limits " : "") + "would cost " +
                FormatNumber("%.4f", best->usd_per_gb) + " USD/GB\n";
      }
    }
    // Can it survive the loss of any one link?
    if (Result<copytree::PlanPair> pair =
            copytree::MakePlanPair(*task.graph, ToStream(stream), task.options);
        pair.ok()) {
      entry["standby"] = pair->shared.empty();
      for (const copytree::SharedLink& link : pair->shared) {
        text += "note    " + name + ": a standby would share " + link.edge.from + " -> " +
                link.edge.to + (link.only_way ? ": nothing else leads there" : "") + "\n";
      }
    } else {
      entry["standby"] = false;
    }
    for (const std::string& warning : plan->warnings)
      text += "warning " + name + ": " + warning + "\n";
    entry["usd_per_gb"] = plan->usd_per_gb;
    entry["warnings"] = plan->warnings;
    json["streams"].push_back(std::move(entry));
    for (const copytree::LinkLoad& load : plan->loads) {
      copytree::LinkLoad own = load;
      own.mbps = stream.rate_mbps * copytree::kCopiesPerHop;
      task.options.reserved.push_back(own);
    }
  }
  return Write(Json() ? json.dump(2) + "\n" : text);
}

}  // namespace tailcast::app
