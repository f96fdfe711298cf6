// Pictures of their own, without any other program.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tailcast/copytree/render.h"
#include "tailcast/copytree/text_format.h"

namespace tailcast::copytree {
namespace {

constexpr double kMargin = 28;
constexpr double kChar = 7.3;  // width of a character of 12 pixels, about
constexpr const char* kInk = "#22272e";
constexpr const char* kQuiet = "#57606a";
constexpr const char* kFaint = "#7d8590";

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

std::string Pixels(double value) { return Format("%.1f", value); }

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

// Grows to the right and downwards with what is drawn.
class Canvas {
 public:
  // `more`: further attributes.
  void Text(double x, double y, const std::string& fill, const std::string& text,
            const std::string& more = "") {
    body_ += "<text x=\"" + Pixels(x) + "\" y=\"" + Pixels(y) + "\" fill=\"" + fill + "\"" +
             (more.empty() ? "" : " " + more) + ">" + Xml(text) + "</text>\n";
    if (more.find("text-anchor") == std::string::npos) Reach(x + TextWidth(text), y);
  }
  void Box(double x, double y, double width, double height, const std::string& style) {
    body_ += "<rect x=\"" + Pixels(x) + "\" y=\"" + Pixels(y) + "\" width=\"" + Pixels(width) +
             "\" height=\"" + Pixels(height) + "\" " + style + "/>\n";
    Reach(x + width, y + height);
  }
  void Path(const std::string& d, const std::string& style) {
    body_ += "<path d=\"" + d + "\" fill=\"none\" " + style + "/>\n";
  }
  void Reach(double x, double y) {
    width_ = std::max(width_, x + kMargin);
    height_ = std::max(height_, y + kMargin);
  }
  static double TextWidth(const std::string& text) {
    return kChar * static_cast<double>(Width(text));
  }
  double bottom() const { return height_ - kMargin; }
  // What follows stands in a group of this name.
  void Group(const std::string& id) {
    body_ += std::string(in_group_ ? "</g>\n" : "") + "<g id=\"" + id + "\">\n";
    in_group_ = true;
  }
  std::string Finish() const {
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + Pixels(width_) + "\" height=\"" +
           Pixels(height_) + "\" viewBox=\"0 0 " + Pixels(width_) + " " + Pixels(height_) +
           "\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\">\n" +
           "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" + body_ +
           (in_group_ ? "</g>\n" : "") + "</svg>\n";
  }

 private:
  std::string body_;
  bool in_group_ = false;
  double width_ = 640, height_ = 0;
};

std::string BoxStyle(bool is_source, bool destination, Health health) {
  std::string fill = "#eef2f7", stroke = "#8fa3bb", more;
  if (is_source) fill = stroke = "#2f4f78";
  if (!destination) more = " stroke-dasharray=\"4 3\"";
  if (!is_source && health == Health::kSick) fill = "#fde3e1", stroke = "#c9372c";
  if (!is_source && health == Health::kNew) fill = "#fff3d6", stroke = "#c98a00";
  return "rx=\"6\" fill=\"" + fill + "\" stroke=\"" + stroke + "\"" + more;
}

// A tree from the source on the left to the leaves on the right. Everything that is written stands
// where no edge can pass: arrivals in the boxes, prices above the last, straight stretch of an
// edge.
class TreePicture {
 public:
  TreePicture(const Plan& plan, double top) : plan_(plan), top_(top), children_(ByParent(plan)) {
    for (const Hop& hop : plan.hops) {
      hop_into_[hop.to] = &hop;
      dearest_ = std::max(dearest_, hop.usd_per_gb);
    }
    Place(plan.tree.source);
    std::vector<double> widest(static_cast<size_t>(plan.depth) + 1, 0);
    for (const auto& [name, row] : row_) {
      double& column = widest[Column(name)];
      column = std::max(column, BoxWidth(name));
    }
    double x = kMargin;
    for (double width : widest) {
      left_.push_back(x);
      x += width + kBetween;
    }
  }

  void Draw(Canvas* canvas) const {
    for (const Hop& hop : plan_.hops) DrawEdge(hop, canvas);
    DrawBox(plan_.tree.source, nullptr, canvas);
    for (const Hop& hop : plan_.hops) DrawBox(hop.to, &hop, canvas);
  }

 private:
  static constexpr double kRow = 28, kBoxHeight = 20, kBetween = 130, kStraight = 52, kPad = 20,
                          kSmall = 10.0 / 12;

  // Leaves below each other in drawing order, a parent in the middle of its children.
  void Place(const std::string& at) {
    const auto found = children_.find(at);
    if (found == children_.end()) {
      row_[at] = rows_++;
      return;
    }
    for (const Hop* hop : found->second) Place(hop->to);
    row_[at] = (row_[found->second.front()->to] + row_[found->second.back()->to]) / 2;
  }
  size_t Column(const std::string& name) const {
    const auto hop = hop_into_.find(name);
    return hop == hop_into_.end() ? 0 : static_cast<size_t>(hop->second->depth);
  }
  double Middle(const std::string& name) const { return top_ + row_.at(name) * kRow + kRow / 2; }
  std::string Arrival(const std::string& name) const {
    const auto hop = hop_into_.find(name);
    return hop == hop_into_.end() ? "" : Ms(hop->second->arrival_ms) + " ms";
  }
  double BoxWidth(const std::string& name) const {
    const std::string arrival = Arrival(name);
    return Canvas::TextWidth(name) + kPad +
           (arrival.empty() ? 0 : kSmall * Canvas::TextWidth(arrival) + 8);
  }

  void DrawEdge(const Hop& hop, Canvas* canvas) const {
    const double share = dearest_ > 0 ? hop.usd_per_gb / dearest_ : 0;
    const double x1 = left_[Column(hop.from)] + BoxWidth(hop.from), x2 = left_[Column(hop.to)];
    const double y1 = Middle(hop.from), y2 = Middle(hop.to), x3 = x2 - kStraight;
    const double bend = std::max(20.0, (x3 - x1) / 2);
    canvas->Path(
        "M" + Pixels(x1) + " " + Pixels(y1) + " C" + Pixels(x1 + bend) + " " + Pixels(y1) + " " +
            Pixels(x3 - bend) + " " + Pixels(y2) + " " + Pixels(x3) + " " + Pixels(y2) + " L" +
            Pixels(x2) + " " + Pixels(y2),
        "stroke=\"" + PriceColour(share) + "\" stroke-width=\"" + Pixels(1.2 + 2 * share) + "\"");
    canvas->Text(x2 - 5, y2 - 4, PriceColour(share), Usd(hop.usd_per_gb),
                 "font-size=\"10\" text-anchor=\"end\"");
  }

  void DrawBox(const std::string& name, const Hop* hop, Canvas* canvas) const {
    const double x = left_[Column(name)], y = Middle(name);
    const bool is_source = hop == nullptr;
    canvas->Box(x, y - kBoxHeight / 2, BoxWidth(name), kBoxHeight,
                BoxStyle(is_source, is_source || hop->destination,
                         is_source ? Health::kHealthy : hop->health));
    canvas->Text(x + kPad / 2, y + 4, is_source ? "#ffffff" : kInk, name);
    if (is_source) return;
    canvas->Text(x + BoxWidth(name) - kPad / 2, y + 4, kFaint, Arrival(name),
                 "font-size=\"10\" text-anchor=\"end\"");
  }

  const Plan& plan_;
  const double top_;
  const std::map<std::string, std::vector<const Hop*>> children_;
  std::map<std::string, const Hop*> hop_into_;
  std::map<std::string, double> row_;
  double rows_ = 0;
  double dearest_ = 0;
  std::vector<double> left_;  // of the column of each depth
};

// What colours, dashes and numbers mean, as far as they occur.
void DrawLegend(const std::vector<const Plan*>& plans, Canvas* canvas) {
  double dearest = 0;
  bool relay = false, sick = false, fresh = false;
  for (const Plan* plan : plans) {
    for (const Hop& hop : plan->hops) {
      dearest = std::max(dearest, hop.usd_per_gb);
      relay |= !hop.destination;
      sick |= hop.health == Health::kSick;
      fresh |= hop.health == Health::kNew;
    }
  }
  canvas->Group("legend");
  const double y = canvas->bottom() + 34;
  double x = kMargin;
  const auto text = [&](const std::string& words) {
    canvas->Text(x, y + 4, kQuiet, words, "font-size=\"11\"");
    x += Canvas::TextWidth(words) * 11 / 12 + 26;
  };
  const auto box = [&](const std::string& words, const std::string& style) {
    canvas->Box(x, y - 7, 22, 14, style);
    x += 28;
    text(words);
  };
  box("source", BoxStyle(true, true, Health::kHealthy));
  box("cluster, when it has the data", BoxStyle(false, true, Health::kHealthy));
  if (relay) box("relay only", BoxStyle(false, false, Health::kHealthy));
  if (sick) box("sick", BoxStyle(false, true, Health::kSick));
  if (fresh) box("new", BoxStyle(false, true, Health::kNew));
  constexpr int kShades = 12;
  constexpr double kShade = 6;
  if (dearest > 0) {
    text("0");
    x -= 20;
    for (int i = 0; i < kShades; ++i, x += kShade) {
      canvas->Box(x, y - 3, kShade + 0.5, 6, "fill=\"" + PriceColour((i + 0.5) / kShades) + "\"");
    }
    x += 6;
  }
  text((dearest > 0 ? Usd(dearest) + " " : "") + "USD per GB over the link");
}

// "of flights"; of a stream without a name, "from us-central".
std::string OfStream(const Stream& stream, const std::string& source) {
  return stream.name.empty() ? "from " + source : "of " + stream.name;
}

// `price`: what is to be said of it.
std::string Facts(const Plan& plan, const std::string& price) {
  std::string facts = Usd(plan.usd_per_gb) + " USD/GB" + (price.empty() ? "" : " (" + price + ")");
  facts += "  ·  depth " + std::to_string(plan.depth) + "  ·  fan-out " +
           std::to_string(plan.fanout) + "  ·  worst " + Ms(plan.worst_delay_ms) + " ms, mean " +
           Ms(plan.mean_delay_ms) + " ms";
  if (plan.usd_per_day > 0) facts += "  ·  " + Format("%.2f", plan.usd_per_day) + " USD/day";
  return facts;
}

std::string OfThePrice(const Plan& plan, const RenderOptions& options) {
  if (options.pair != nullptr) {
    return Usd(options.pair->usd_per_gb) + " with the standby";
  }
  if (options.robust != nullptr) {
    return "any one failure: at most " + Format("%.1f", 100 * options.robust->worst_extra) +
           " % above the cheapest tree's " + Usd(options.robust->alone_usd_per_gb);
  }
  return HowGood(plan);
}

void DrawHead(const std::string& title, const std::string& facts, double y, Canvas* canvas) {
  canvas->Text(kMargin, y, kInk, title, "font-size=\"17\" font-weight=\"bold\"");
  canvas->Reach(kMargin + Canvas::TextWidth(title) * 17 / 12, y);
  canvas->Text(kMargin, y + 22, kQuiet, facts);
}

}  // namespace

std::string PlanSvg(const Stream& stream, const Plan& plan, const RenderOptions& options) {
  Canvas canvas;
  DrawHead("Copy tree " + OfStream(stream, plan.tree.source),
           Facts(plan, OfThePrice(plan, options)), 32, &canvas);
  TreePicture(plan, 74).Draw(&canvas);
  std::vector<const Plan*> plans{&plan};
  if (options.pair != nullptr) {
    const double top = canvas.bottom() + 48;
    DrawHead("Standby tree " + OfStream(stream, plan.tree.source), Facts(options.pair->standby, ""),
             top, &canvas);
    TreePicture(options.pair->standby, top + 42).Draw(&canvas);
    plans.push_back(&options.pair->standby);
  }
  DrawLegend(plans, &canvas);
  return canvas.Finish();
}

std::string ComparisonSvg(const Stream& stream, const std::vector<Contender>& contenders) {
  constexpr double kLeft = 190, kBar = 420, kRow = 40, kBarHeight = 22, kTop = 104;
  const Plan& planned = *contenders.back().plan;
  const double bound = planned.lower_bound_usd_per_gb;
  double dearest = bound;
  for (const Contender& contender : contenders) {
    if (contender.plan) dearest = std::max(dearest, contender.plan->usd_per_gb);
  }
  const double scale = dearest > 0 ? kBar / dearest : 0;
  Canvas canvas;
  const int clusters = static_cast<int>(planned.hops.size());
  DrawHead("What copy trees " + OfStream(stream, planned.tree.source) + " cost",
           "USD per GB of the stream, to " + std::to_string(clusters) +
               (clusters == 1 ? " cluster" : " clusters") + "; percent: beside the planned tree",
           32, &canvas);
  const double end = kTop + kRow * static_cast<double>(contenders.size());
  double y = kTop;
  bool dashed = false;
  for (const Contender& contender : contenders) {
    const double middle = y + kRow / 2;
    const bool ours = &contender == &contenders.back();
    canvas.Text(kLeft - 12, middle + 4, kInk, contender.what,
                ours ? "text-anchor=\"end\" font-weight=\"bold\"" : "text-anchor=\"end\"");
    if (contender.plan) {
      const double width = contender.plan->usd_per_gb * scale;
      const bool usable = contender.broken.empty();
      dashed = dashed || !usable;
      canvas.Box(kLeft, middle - kBarHeight / 2, width, kBarHeight,
                 ours     ? "fill=\"#2f4f78\""
                 : usable ? "fill=\"#9db2cc\""
                          : "fill=\"#ffffff\" stroke=\"#9db2cc\" stroke-dasharray=\"4 3\"");
      std::string figures = Usd(contender.plan->usd_per_gb);
      if (!ours) figures += "  " + Above(contender.plan->usd_per_gb, planned.usd_per_gb);
      // To the right of the bound's line too.
      const double right = kLeft + std::max(width, bound * scale) + 10;
      canvas.Text(right, middle + (usable ? 4 : -2), kInk, figures);
      if (!usable) {
        canvas.Text(right, middle + 12, kFaint, BrokenText(contender), "font-size=\"10\"");
      }
    } else {
      canvas.Text(kLeft + 10, middle + 4, kFaint, contender.missing);
    }
    y += kRow;
  }
  canvas.Path("M" + Pixels(kLeft) + " " + Pixels(kTop - 4) + " V" + Pixels(end + 4),
              "stroke=\"#8fa3bb\" stroke-width=\"1\"");
  const double at = kLeft + bound * scale;
  canvas.Path("M" + Pixels(at) + " " + Pixels(kTop - 4) + " V" + Pixels(end + 4),
              "stroke=\"#c9372c\" stroke-width=\"1.2\" stroke-dasharray=\"5 3\"");
  canvas.Text(at, kTop - 12, "#c9372c",
              "lower bound " + Usd(bound) + (planned.optimal ? ": proven optimal" : ""),
              "font-size=\"11\" text-anchor=\"middle\"");
  if (dashed) {
    canvas.Text(kLeft, end + 24, kFaint, "dashed: breaks the limits, as said beside it",
                "font-size=\"11\"");
  }
  canvas.Reach(at + 120, end + (dashed ? 28 : 4));
  return canvas.Finish();
}

}  // namespace tailcast::copytree
