#include "tailcast/app/copytree_session.h"

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tailcast/copytree/explain.h"
#include "tailcast/node/topology_graph.h"

namespace tailcast::app {

using copytree::Edge;
using copytree::Plan;
using node::ToStream;

namespace {

std::string SentencePerLine(std::string text) {
  for (size_t at = text.find(". "); at != std::string::npos; at = text.find(". ", at)) {
    text[at + 1] = '\n';
  }
  return text;
}

}  // namespace

Status CopytreeSession::DoExplain() {
  TAILCAST_ASSIGN_OR_RETURN(auto prepared, PrepareOne(flags_->topology));
  const auto& [task, stream] = prepared;
  TAILCAST_ASSIGN_OR_RETURN(const Plan plan, PlanOf(task, stream, task.options));
  std::string cluster = flags_->target;
  if (!task.graph->Find(cluster)) {
    // An edge: its lower end, if the tree has it.
    Result<std::vector<Edge>> links = copytree::ParseLinks(*task.graph, cluster);
    if (!links.ok()) return links.status();
    bool used = false;
    for (const Edge& edge : *links) {
      if (plan.tree.HasEdge(edge.from, edge.to)) {
        cluster = edge.to;
        used = true;
      }
    }
    if (!used) {
      const Edge& edge = links->front();
      const std::string parent = plan.tree.ParentOf(edge.to);
      return NotFoundError(
          "the tree does not use " + edge.from + " -> " + edge.to + "; '" + edge.to +
          (parent.empty() ? "' is not fed in it" : "' is fed from '" + parent + "'"));
    }
  }
  TAILCAST_ASSIGN_OR_RETURN(
      const copytree::Explanation why,
      copytree::Explain(*task.graph, ToStream(stream), task.options, plan, cluster));
  if (Json()) {
    nlohmann::ordered_json json;
    json["from"] = why.hop.from;
    json["to"] = why.hop.to;
    json["usd_per_gb"] = why.hop.usd_per_gb;
    json["arrival_ms"] = why.hop.arrival_ms;
    json["reason"] = why.reason;
    json["alternatives"] = nlohmann::ordered_json::array();
    for (const copytree::Alternative& other : why.alternatives) {
      json["alternatives"].push_back({{"from", other.from},
                                      {"usd_per_gb", other.usd_per_gb},
                                      {"extra_usd_per_gb", other.extra_usd_per_gb},
                                      {"arrival_ms", other.arrival_ms},
                                      {"blocked", other.blocked}});
    }
    if (why.next_best) {
      json["next_best"] = nlohmann::ordered_json::parse(
          copytree::PlanJson(ToStream(stream), *why.next_best, Rendering(task.options)));
    } else {
      json["next_best"] = nullptr;
      json["irreplaceable"] = why.irreplaceable;
    }
    return Write(json.dump(2) + "\n");
  }
  std::string text = why.hop.from + " -> " + why.hop.to + "  " +
                     FormatNumber("%.4f", why.hop.usd_per_gb) + " USD/GB, arrives after " +
                     FormatNumber("%.1f", why.hop.arrival_ms) + " ms\n" +
                     SentencePerLine(why.reason) + "\n";
  if (!why.alternatives.empty()) text += "\nother parents for " + why.hop.to + "\n";
  size_t shown = 0;
  constexpr size_t kShown = 12;
  size_t width = 0;
  for (const copytree::Alternative& other : why.alternatives) {
    if (shown++ < kShown) width = std::max(width, other.from.size());
  }
  shown = 0;
  for (const copytree::Alternative& other : why.alternatives) {
    if (shown++ == kShown) {
      text +=
          "  and " + std::to_string(why.alternatives.size() - kShown) + " dearer or equal ones\n";
      break;
    }
    text += "  " + other.from + std::string(width - other.from.size(), ' ') + "  " +
            FormatNumber("%.4f", other.usd_per_gb) + " USD/GB (" +
            FormatNumber("%+.4f", other.extra_usd_per_gb) + ")" +
            FormatNumber("%9.1f", other.arrival_ms) + " ms" +
            (other.blocked.empty() ? "" : "  no: " + other.blocked) + "\n";
  }
  if (why.next_best) {
    const std::string parent = why.next_best->tree.ParentOf(why.hop.to);
    text += "\nthe best tree without it: " + FormatNumber("%.4f", why.next_best->usd_per_gb) +
            " USD/GB (" + FormatNumber("%+.4f", why.next_best->usd_per_gb - plan.usd_per_gb) +
            "), worst delay " + FormatNumber("%.1f", why.next_best->worst_delay_ms) + " ms, " +
            (parent.empty() ? "without " + why.hop.to : why.hop.to + " fed from " + parent) + "\n";
  }
  return Write(text);
}

}  // namespace tailcast::app
