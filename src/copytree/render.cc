#include "tailcast/copytree/render.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "tailcast/copytree/text_format.h"

namespace tailcast::copytree {
namespace {

using Json = nlohmann::ordered_json;

std::string Marks(const Hop& hop) {
  std::string marks;
  if (!hop.destination) marks += "  relay";
  if (hop.health == Health::kSick) marks += "  sick";
  if (hop.health == Health::kNew) marks += "  new, rate-limited";
  return marks;
}

void DrawTree(const Plan& plan, bool ascii, std::string* out) {
  struct Line {
    std::string left;
    const Hop* hop;
  };
  const auto children = ByParent(plan);
  std::vector<Line> lines;
  const std::function<void(const std::string&, const std::string&)> walk =
      [&](const std::string& at, const std::string& indent) {
        const auto found = children.find(at);
        if (found == children.end()) return;
        for (size_t i = 0; i < found->second.size(); ++i) {
          const Hop* hop = found->second[i];
          const bool last = i + 1 == found->second.size();
          const char* branch = ascii ? (last ? "`- " : "|- ") : (last ? "└─ " : "├─ ");
          const char* below = last ? "   " : ascii ? "|  " : "│  ";
          lines.push_back({indent + branch + hop->to, hop});
          walk(hop->to, indent + below);
        }
      };
  walk(plan.tree.source, "");
  size_t width = 0;
  for (const Line& line : lines) width = std::max(width, Width(line.left));
  *out += plan.tree.source + "\n";
  for (const Line& line : lines) {
    *out += Pad(line.left, width) + "  " + Usd(line.hop->usd_per_gb) + " USD/GB" +
            Format("%9.1f", line.hop->arrival_ms) + " ms";
    // What the link carries, all streams and both copies. 80 columns hold real names at depth 3.
    const LinkLoad& load = plan.loads[static_cast<size_t>(line.hop - plan.hops.data())];
    if (load.mbps > 0) *out += Format("%7.4g", load.mbps) + " Mbit/s";
    *out += Marks(*line.hop) + "\n";
  }
}

std::string OfLimit(int used, int limit) {
  return std::to_string(used) + (limit > 0 ? " of " + std::to_string(limit) : "");
}

void DrawFigures(const Stream& stream, const Plan& plan, const Limits& limits, bool bound,
                 std::string* out) {
  *out += "cost      " + Usd(plan.usd_per_gb) + " USD/GB";
  if (stream.rate_mbps > 0) {
    *out += ", " + Format("%.2f", plan.usd_per_day) + " USD/day at " + Short(stream.rate_mbps) +
            " Mbit/s (" + std::to_string(kCopiesPerHop) + " copies per hop)";
  }
  if (bound) {
    *out += "\nbound     " + Usd(plan.lower_bound_usd_per_gb) + " USD/GB: " + HowGood(plan);
  }
  if (plan.work > 0) {
    *out += "\neffort    " + std::to_string(plan.work) + " steps";
  }
  *out += "\ndepth     " + OfLimit(plan.depth, limits.max_depth);
  *out += "\nfan-out   " + OfLimit(plan.fanout, limits.max_fanout);
  *out += "\ndelay     worst " + Ms(plan.worst_delay_ms) + " ms";
  if (limits.max_delay_ms > 0) *out += " of " + Short(limits.max_delay_ms);
  *out += ", mean " + Ms(plan.mean_delay_ms) + " ms\n";
  const LinkLoad* fullest = nullptr;
  for (const LinkLoad& load : plan.loads) {
    if (load.share > 0 && (fullest == nullptr || load.share > fullest->share)) fullest = &load;
  }
  if (fullest != nullptr) {
    *out += "load      at most " + Format("%.1f", fullest->share * 100) + " % (" + fullest->from +
            " -> " + fullest->to + ", " + Short(fullest->mbps) + " Mbit/s)\n";
  }
  if (plan.edges_added + plan.edges_removed > 0) {
    *out += "changes   " + std::to_string(plan.edges_added) +
            (plan.edges_added == 1 ? " edge added, " : " edges added, ") +
            std::to_string(plan.edges_removed) + " removed\n";
  }
  for (const Reroute& reroute : plan.reroutes) {
    *out += "re-route  consumers in " + reroute.from + " read from " + reroute.to + " (" +
            Ms(reroute.rtt_ms) + " ms round trip)\n";
  }
  for (const std::string& warning : plan.warnings) *out += "warning   " + warning + "\n";
}

void DrawPair(const PlanPair& pair, std::string* out) {
  *out += "\npair      " + Usd(pair.usd_per_gb) + " USD/GB together; bound " +
          Usd(pair.lower_bound_usd_per_gb) + ": " + HowGood(pair.optimal, pair.Gap()) +
          "\nalone     " + Usd(pair.alone_usd_per_gb) + " USD/GB for a tree without a standby\n";
  for (const SharedLink& link : pair.shared) {
    *out += "shared    " + link.edge.from + " -> " + link.edge.to +
            (link.only_way ? ": nothing else leads to " + link.edge.to
                           : ": no pair without it was found within this effort") +
            "\n";
  }
  for (const Edge& edge : pair.reversed) {
    *out +=
        "reversed  " + edge.from + " -> " + edge.to + ": the first tree uses the other direction\n";
  }
}

std::string What(const FailureCost& failure) {
  return failure.cluster.empty() ? failure.link.from + " -> " + failure.link.to : failure.cluster;
}

void DrawFailures(const RobustPlan& robust, std::string* out) {
  constexpr size_t kShown = 5;
  const auto percent = [](double part) { return Format("%.1f", 100 * part) + " %"; };
  *out += "\ncheapest  " + Usd(robust.alone_usd_per_gb) +
          " USD/GB if failures did not count: one " +
          (robust.alone_worst_extra
               ? "makes it " + percent(*robust.alone_worst_extra) + " dearer"
               : "leaves clusters that nothing was found to feed within the limits") +
          "\n";
  *out += "failures  at most " + percent(robust.worst_extra) + " above that:\n";
  size_t shown = 0;
  for (const FailureCost& failure : robust.failures) {
    if (shown == kShown) break;
    ++shown;
    *out +=
        "          " + What(failure) + ": " +
        (failure.hopeless
             ? std::string("nothing else leads to what hangs on it within the limits")
             : Usd(failure.usd_per_gb) + " USD/GB, " + Format("%+.1f %%", 100 * failure.extra)) +
        "\n";
  }
  if (robust.failures.size() > shown) {
    *out +=
        "          and " + std::to_string(robust.failures.size() - shown) + " that cost no more\n";
  }
}

Json FailuresJson(const RobustPlan& robust) {
  Json json = {{"worst_extra", Round(robust.worst_extra)},
               {"alone_usd_per_gb", Round(robust.alone_usd_per_gb)},
               {"alone_worst_extra",
                robust.alone_worst_extra ? Json(Round(*robust.alone_worst_extra)) : Json()},
               {"failures", Json::array()}};
  for (const FailureCost& failure : robust.failures) {
    Json entry;
    if (failure.cluster.empty()) {
      entry = {{"from", failure.link.from}, {"to", failure.link.to}};
    } else {
      entry = {{"cluster", failure.cluster}};
    }
    entry["mended"] = !failure.hopeless;
    if (!failure.hopeless) {
      entry["usd_per_gb"] = Round(failure.usd_per_gb);
      entry["extra"] = Round(failure.extra);
    }
    json["failures"].push_back(std::move(entry));
  }
  return json;
}

Json ToJson(const Stream& stream, const Plan& plan) {
  Json json;
  json["stream"] = stream.name;
  json["source"] = plan.tree.source;
  json["usd_per_gb"] = Round(plan.usd_per_gb);
  json["usd_per_day"] = Round(plan.usd_per_day);
  json["lower_bound_usd_per_gb"] = Round(plan.lower_bound_usd_per_gb);
  json["gap"] = Round(plan.Gap());
  json["work"] = plan.work;
  json["optimal"] = plan.optimal;
  json["depth"] = plan.depth;
  json["fanout"] = plan.fanout;
  json["worst_delay_ms"] = Round(plan.worst_delay_ms);
  json["mean_delay_ms"] = Round(plan.mean_delay_ms);
  json["edges_added"] = plan.edges_added;
  json["edges_removed"] = plan.edges_removed;
  json["hops"] = Json::array();
  for (size_t i = 0; i < plan.hops.size(); ++i) {
    const Hop& hop = plan.hops[i];
    json["hops"].push_back({{"from", hop.from},
                            {"to", hop.to},
                            {"depth", hop.depth},
                            {"fanout", hop.fanout},
                            {"usd_per_gb", Round(hop.usd_per_gb)},
                            {"rtt_ms", Round(hop.rtt_ms)},
                            {"hop_ms", Round(hop.hop_ms)},
                            {"arrival_ms", Round(hop.arrival_ms)},
                            {"destination", hop.destination},
                            {"health", HealthName(hop.health)},
                            {"rate_limited", hop.rate_limited},
                            {"kept", hop.kept},
                            {"load_mbps", Round(plan.loads[i].mbps)},
                            {"bandwidth_gbps", Round(plan.loads[i].bandwidth_gbps)},
                            {"load_share", Round(plan.loads[i].share)}});
  }
  json["reroutes"] = Json::array();
  for (const Reroute& reroute : plan.reroutes) {
    json["reroutes"].push_back(
        {{"from", reroute.from}, {"to", reroute.to}, {"rtt_ms", Round(reroute.rtt_ms)}});
  }
  json["warnings"] = plan.warnings;
  return json;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

std::string PlanText(const Stream& stream, const Plan& plan, const RenderOptions& options) {
  std::string out;
  DrawTree(plan, options.ascii, &out);
  out += "\n";
  DrawFigures(stream, plan, options.limits, true, &out);
  if (options.robust != nullptr) DrawFailures(*options.robust, &out);
  if (options.pair != nullptr) {
    out += "\nstandby tree" +
           std::string(options.pair->shared.empty() ? ", sharing no link with the first" : "") +
           "\n";
    DrawTree(options.pair->standby, options.ascii, &out);
    out += "\n";
    DrawFigures(stream, options.pair->standby, options.limits, false, &out);
    DrawPair(*options.pair, &out);
  }
  return out;
}

std::string PlanJson(const Stream& stream, const Plan& plan, const RenderOptions& options) {
  Json json = ToJson(stream, plan);
  if (options.robust != nullptr) json["robust"] = FailuresJson(*options.robust);
  if (options.pair != nullptr) {
    const PlanPair& pair = *options.pair;
    json["standby"] = ToJson(stream, pair.standby);
    Json both = {{"usd_per_gb", Round(pair.usd_per_gb)},
                 {"lower_bound_usd_per_gb", Round(pair.lower_bound_usd_per_gb)},
                 {"gap", Round(pair.Gap())},
                 {"alone_usd_per_gb", Round(pair.alone_usd_per_gb)},
                 {"shared", Json::array()},
                 {"reversed", Json::array()}};
    for (const SharedLink& link : pair.shared) {
      both["shared"].push_back(
          {{"from", link.edge.from}, {"to", link.edge.to}, {"only_way", link.only_way}});
    }
    for (const Edge& edge : pair.reversed) {
      both["reversed"].push_back({{"from", edge.from}, {"to", edge.to}});
    }
    json["pair"] = std::move(both);
  }
  return json.dump(2) + "\n";
}

std::string PlanDot(const Stream& stream, const Plan& plan, const RenderOptions& options) {
  std::string out = "digraph " + Quoted(stream.name.empty() ? "copytree" : stream.name) + " {\n";
  out += "  rankdir=LR;\n  fontname=\"sans-serif\";\n";
  out += "  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n";
  out += "  edge [fontname=\"sans-serif\", fontsize=10];\n";
  out += "  " + Quoted(plan.tree.source) + " [style=\"rounded,bold\"];\n";
  std::vector<const Plan*> plans{&plan};
  if (options.pair != nullptr) plans.push_back(&options.pair->standby);
  std::set<std::string> styled;
  bool relay = false, sick = false, fresh = false;
  for (const Plan* each : plans) {
    for (const Hop& hop : each->hops) {
      std::string style;
      if (!hop.destination) style = " [style=\"rounded,dashed\"]";
      if (hop.health == Health::kSick) style = " [color=red]";
      if (hop.health == Health::kNew) style = " [color=orange]";
      relay |= !hop.destination;
      sick |= hop.health == Health::kSick;
      fresh |= hop.health == Health::kNew;
      if (!style.empty() && styled.insert(hop.to).second) {
        out += "  " + Quoted(hop.to) + style + ";\n";
      }
    }
  }
  for (const Hop& hop : plan.hops) {
    out += "  " + Quoted(hop.from) + " -> " + Quoted(hop.to) + " [label=\"" + Usd(hop.usd_per_gb) +
           "\\n" + Ms(hop.arrival_ms) + " ms\"];\n";
  }
  if (options.pair != nullptr) {
    for (const Hop& hop : options.pair->standby.hops) {
      out += "  " + Quoted(hop.from) + " -> " + Quoted(hop.to) +
             " [style=dashed, color=gray, constraint=false];\n";
    }
  }
  out += "  labelloc=b;\n  label=\"USD per GB over the link, and when the data is there";
  if (relay) out += "; dashed box: relay only";
  if (sick) out += "; red: sick";
  if (fresh) out += "; orange: new";
  if (options.pair != nullptr) out += "; dashed edges: standby";
  return out + "\";\n}\n";
}

std::string ComparisonText(const Stream& stream, const std::vector<Contender>& contenders) {
  const Plan& planned = *contenders.back().plan;
  std::string out = stream.name.empty() ? "" : "stream " + stream.name + "\n";
  out += "                            USD/GB  to ours  depth  fan-out  worst ms  limits\n";
  std::string notes;
  for (const Contender& contender : contenders) {
    out += Pad(contender.what, 24);
    if (!contender.plan) {
      out += "         -        -      -        -         -  " + contender.missing + "\n";
      continue;
    }
    const Plan& plan = *contender.plan;
    const bool ours = &contender == &contenders.back();
    char figures[96];
    std::snprintf(figures, sizeof figures, "%10.4f %8s %6d %8d %9.1f  ", plan.usd_per_gb,
                  ours ? "" : Above(plan.usd_per_gb, planned.usd_per_gb).c_str(), plan.depth,
                  plan.fanout, plan.worst_delay_ms);
    out += figures;
    out += contender.broken.empty() ? "kept\n" : "broken\n";
    if (!contender.broken.empty()) {
      notes += contender.what + ": " + BrokenText(contender) + "\n";
    }
  }
  out += Pad("lower bound", 24) + Format("%10.4f ", planned.lower_bound_usd_per_gb) +
         (planned.optimal ? " met: the planned tree is optimal"
                          : "  " + Above(planned.lower_bound_usd_per_gb, planned.usd_per_gb)) +
         "\n";
  return out + (notes.empty() ? "" : "\n" + notes);
}

std::string ComparisonJson(const Stream& stream, const std::vector<Contender>& contenders) {
  const Plan& planned = *contenders.back().plan;
  Json json;
  json["stream"] = stream.name;
  json["source"] = planned.tree.source;
  json["lower_bound_usd_per_gb"] = Round(planned.lower_bound_usd_per_gb);
  json["optimal"] = planned.optimal;
  json["trees"] = Json::array();
  for (const Contender& contender : contenders) {
    Json entry = {{"name", contender.name}, {"what", contender.what}};
    if (contender.plan) {
      entry["usd_per_gb"] = Round(contender.plan->usd_per_gb);
      entry["depth"] = contender.plan->depth;
      entry["fanout"] = contender.plan->fanout;
      entry["worst_delay_ms"] = Round(contender.plan->worst_delay_ms);
      entry["broken"] = contender.broken;
    } else {
      entry["missing"] = contender.missing;
    }
    json["trees"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

std::string StepsText(const std::vector<Step>& steps) {
  if (steps.empty()) return "no changes\n";
  std::string out;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (i == 0 || step.wave != steps[i - 1].wave) {
      out += (i == 0 ? "wave " : "\nwave ") + std::to_string(step.wave) + "\n";
    }
    out +=
        "  " + Pad(std::string(StepKindName(step.kind)), 16) + "  " + step.from + " -> " + step.to;
    if (step.rate_limited) out += "  rate-limited";
    out += "\n";
  }
  return out;
}

std::string StepsJson(const std::vector<Step>& steps) {
  Json json = Json::array();
  for (const Step& step : steps) {
    json.push_back({{"step", StepKindName(step.kind)},
                    {"from", step.from},
                    {"to", step.to},
                    {"wave", step.wave},
                    {"after", step.after},
                    {"rate_limited", step.rate_limited}});
  }
  return json.dump(2) + "\n";
}

}  // namespace tailcast::copytree
