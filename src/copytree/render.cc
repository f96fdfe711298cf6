#include "tailcast/copytree/render.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

namespace tailcast::copytree {
namespace {

using Json = nlohmann::ordered_json;

std::string Format(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}
std::string Usd(double value) { return Format("%.4f", value); }
std::string Ms(double value) { return Format("%.1f", value); }
std::string Short(double value) { return Format("%.6g", value); }
double Round(double value) { return std::round(value * 1e9) / 1e9; }

// Characters, not bytes, so that columns line up with names in UTF-8.
size_t Width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Pad(std::string text, size_t width) {
  const size_t now = Width(text);
  if (now < width) text.append(width - now, ' ');
  return text;
}

std::map<std::string, std::vector<const Hop*>> ByParent(const Plan& plan) {
  std::map<std::string, std::vector<const Hop*>> children;
  for (const Hop& hop : plan.hops) children[hop.from].push_back(&hop);
  return children;
}

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

void DrawFigures(const Stream& stream, const Plan& plan, const Limits& limits, std::string* out) {
  *out += "cost      " + Usd(plan.usd_per_gb) + " USD/GB";
  if (stream.rate_mbps > 0) {
    *out += ", " + Format("%.2f", plan.usd_per_day) + " USD/day at " + Short(stream.rate_mbps) +
            " Mbit/s (" + std::to_string(kCopiesPerHop) + " copies per hop)";
  }
  *out += "\nbound     " + Usd(plan.lower_bound_usd_per_gb) + " USD/GB: ";
  *out += plan.optimal ? "proven optimal"
                       : "at most " + Format("%.2f", plan.Gap() * 100) + " % above the optimum";
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

std::string Xml(const std::string& text) {
  std::string escaped;
  for (char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

// Prices from cheap (slate blue) over violet to dear (orange), as a share of the dearest.
std::string PriceColour(double share) {
  const int cheap[3] = {94, 129, 172}, middle[3] = {145, 96, 160}, dear[3] = {222, 108, 42};
  const double t = std::clamp(share, 0.0, 1.0) * 2;
  char text[8];
  int mixed[3];
  for (int i = 0; i < 3; ++i) {
    const double value =
        t < 1 ? cheap[i] + (middle[i] - cheap[i]) * t : middle[i] + (dear[i] - middle[i]) * (t - 1);
    mixed[i] = static_cast<int>(std::lround(value));
  }
  std::snprintf(text, sizeof text, "#%02x%02x%02x", static_cast<unsigned>(mixed[0]) & 255u,
                static_cast<unsigned>(mixed[1]) & 255u, static_cast<unsigned>(mixed[2]) & 255u);
  return text;
}

}  // namespace

std::string PlanText(const Stream& stream, const Plan& plan, const RenderOptions& options) {
  std::string out;
  DrawTree(plan, options.ascii, &out);
  out += "\n";
  DrawFigures(stream, plan, options.limits, &out);
  if (options.standby != nullptr) {
    out += "\nstandby tree, sharing no link with the first\n";
    DrawTree(*options.standby, options.ascii, &out);
    out += "\n";
    DrawFigures(stream, *options.standby, options.limits, &out);
  }
  return out;
}

std::string PlanJson(const Stream& stream, const Plan& plan, const RenderOptions& options) {
  Json json = ToJson(stream, plan);
  if (options.standby != nullptr) json["standby"] = ToJson(stream, *options.standby);
  return json.dump(2) + "\n";
}

std::string PlanDot(const Stream& stream, const Plan& plan, const RenderOptions& options) {
  std::string out = "digraph " + Quoted(stream.name.empty() ? "copytree" : stream.name) + " {\n";
  out += "  rankdir=LR;\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n";
  out += "  " + Quoted(plan.tree.source) + " [style=\"rounded,bold\"];\n";
  for (const Hop& hop : plan.hops) {
    std::string style;
    if (!hop.destination) style = " [style=\"rounded,dashed\"]";
    if (hop.health == Health::kSick) style = " [color=red]";
    if (hop.health == Health::kNew) style = " [color=orange]";
    if (!style.empty()) out += "  " + Quoted(hop.to) + style + ";\n";
  }
  for (const Hop& hop : plan.hops) {
    out += "  " + Quoted(hop.from) + " -> " + Quoted(hop.to) + " [label=\"" + Usd(hop.usd_per_gb) +
           "\\n" + Ms(hop.arrival_ms) + " ms\"];\n";
  }
  if (options.standby != nullptr) {
    for (const Hop& hop : options.standby->hops) {
      out += "  " + Quoted(hop.from) + " -> " + Quoted(hop.to) +
             " [style=dashed, color=gray, constraint=false];\n";
    }
  }
  return out + "}\n";
}

std::string PlanSvg(const Stream& stream, const Plan& plan, const RenderOptions& options) {
  constexpr double kRow = 26, kBoxHeight = 20, kChar = 7.3, kGap = 150, kMargin = 28, kTop = 84,
                   kStraight = 44;
  const auto children = ByParent(plan);
  // Rows: leaves below each other in drawing order, a parent in the middle of its children.
  std::map<std::string, double> row;
  std::map<std::string, int> depth{{plan.tree.source, 0}};
  double next_row = 0;
  const std::function<void(const std::string&)> place = [&](const std::string& at) {
    const auto found = children.find(at);
    if (found == children.end()) {
      row[at] = next_row++;
      return;
    }
    for (const Hop* hop : found->second) {
      depth[hop->to] = hop->depth;
      place(hop->to);
    }
    row[at] = (row[found->second.front()->to] + row[found->second.back()->to]) / 2;
  };
  place(plan.tree.source);
  std::vector<double> box(static_cast<size_t>(plan.depth) + 1, 0), left;
  for (const auto& [name, d] : depth) {
    box[static_cast<size_t>(d)] =
        std::max(box[static_cast<size_t>(d)], kChar * static_cast<double>(Width(name)) + 20);
  }
  double x = kMargin;
  for (double width : box) {
    left.push_back(x);
    x += width + kGap;
  }
  const double width = std::max(720.0, x - kGap + kMargin + 70);
  const double height = kTop + std::max(1.0, next_row) * kRow + kMargin;
  const auto middle = [&](const std::string& name) {
    return kTop + row.at(name) * kRow + kRow / 2;
  };
  const auto n = [](double value) { return Format("%.1f", value); };

  // Small text with a white rim, drawn in two layers because not every viewer knows paint-order.
  const auto label = [&](double at_x, double at_y, const char* anchor, const std::string& fill,
                         const std::string& text) {
    const std::string place = "<text x=\"" + n(at_x) + "\" y=\"" + n(at_y) + "\" text-anchor=\"" +
                              anchor + "\" font-size=\"10\"";
    return place + " stroke=\"#ffffff\" stroke-width=\"3\" fill=\"#ffffff\">" + text + "</text>\n" +
           place + " fill=\"" + fill + "\">" + text + "</text>\n";
  };

  double dearest = 0;
  for (const Hop& hop : plan.hops) dearest = std::max(dearest, hop.usd_per_gb);
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + n(width) +
                    "\" height=\"" + n(height) + "\" viewBox=\"0 0 " + n(width) + " " + n(height) +
                    "\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\">\n";
  out += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  const std::string title =
      stream.name.empty() ? "copy tree from " + plan.tree.source : "copy tree of " + stream.name;
  out += "<text x=\"" + n(kMargin) +
         "\" y=\"32\" font-size=\"17\" font-weight=\"bold\" fill=\"#22272e\">" + Xml(title) +
         "</text>\n";
  std::string facts =
      Usd(plan.usd_per_gb) + " USD/GB" +
      (plan.optimal ? " (proven optimal)"
                    : " (at most " + Format("%.2f", plan.Gap() * 100) + " % above the optimum)") +
      "  ·  depth " + std::to_string(plan.depth) + "  ·  fan-out " + std::to_string(plan.fanout) +
      "  ·  worst " + Ms(plan.worst_delay_ms) + " ms, mean " + Ms(plan.mean_delay_ms) + " ms";
  if (plan.usd_per_day > 0) facts += "  ·  " + Format("%.2f", plan.usd_per_day) + " USD/day";
  out += "<text x=\"" + n(kMargin) + "\" y=\"54\" fill=\"#57606a\">" + Xml(facts) + "</text>\n";

  const auto curve = [&](const std::string& from, const std::string& to, const std::string& style) {
    const auto d = static_cast<size_t>(depth.at(from));
    const double x1 = left[d] + kChar * static_cast<double>(Width(from)) + 20;
    const double x2 = left[static_cast<size_t>(depth.at(to))];
    // The last stretch is straight, so that the price above it stands free.
    const double x3 = x2 - kStraight;
    const double y1 = middle(from), y2 = middle(to), bend = std::max(20.0, (x3 - x1) / 2);
    return "<path d=\"M" + n(x1) + " " + n(y1) + " C" + n(x1 + bend) + " " + n(y1) + " " +
           n(x3 - bend) + " " + n(y2) + " " + n(x3) + " " + n(y2) + " L" + n(x2) + " " + n(y2) +
           "\" fill=\"none\" " + style + "/>\n";
  };
  if (options.standby != nullptr) {
    for (const Hop& hop : options.standby->hops) {
      if (!depth.contains(hop.from) || !depth.contains(hop.to)) continue;
      out +=
          curve(hop.from, hop.to, "stroke=\"#b8c0c8\" stroke-width=\"1\" stroke-dasharray=\"3 3\"");
    }
  }
  for (const Hop& hop : plan.hops) {
    const double share = dearest > 0 ? hop.usd_per_gb / dearest : 0;
    out +=
        curve(hop.from, hop.to,
              "stroke=\"" + PriceColour(share) + "\" stroke-width=\"" + n(1.2 + 2 * share) + "\"");
  }
  for (const Hop& hop : plan.hops) {
    const double share = dearest > 0 ? hop.usd_per_gb / dearest : 0;
    const double x2 = left[static_cast<size_t>(hop.depth)];
    out += label(x2 - 6, middle(hop.to) - 4, "end", PriceColour(share), Usd(hop.usd_per_gb));
  }
  const auto draw_box = [&](const std::string& name, const std::string& fill,
                            const std::string& stroke, const std::string& more,
                            const std::string& note) {
    const double x1 = left[static_cast<size_t>(depth.at(name))];
    const double box_width = kChar * static_cast<double>(Width(name)) + 20;
    out += "<rect x=\"" + n(x1) + "\" y=\"" + n(middle(name) - kBoxHeight / 2) + "\" width=\"" +
           n(box_width) + "\" height=\"" + n(kBoxHeight) + "\" rx=\"6\" fill=\"" + fill +
           "\" stroke=\"" + stroke + "\"" + more + "/>\n";
    out += "<text x=\"" + n(x1 + box_width / 2) + "\" y=\"" + n(middle(name) + 4) +
           "\" text-anchor=\"middle\" fill=\"" + (fill == "#2f4f78" ? "#ffffff" : "#22272e") +
           "\">" + Xml(name) + "</text>\n";
    if (!note.empty()) {
      out += label(x1 + box_width + 6, middle(name) + (children.contains(name) ? 14 : 4), "start",
                   "#7d8590", note);
    }
  };
  draw_box(plan.tree.source, "#2f4f78", "#2f4f78", "", "");
  for (const Hop& hop : plan.hops) {
    std::string fill = "#eef2f7", stroke = "#8fa3bb", more;
    if (!hop.destination) more = " stroke-dasharray=\"4 3\"";
    if (hop.health == Health::kSick) fill = "#fde3e1", stroke = "#c9372c";
    if (hop.health == Health::kNew) fill = "#fff3d6", stroke = "#c98a00";
    draw_box(hop.to, fill, stroke, more, Ms(hop.arrival_ms) + " ms");
  }
  return out + "</svg>\n";
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
