#include "tailcast/copytree/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tailcast/copytree/test_graphs.h"

namespace tailcast::copytree {
namespace {

using ::testing::HasSubstr;

struct Drawn {
  Stream stream;
  Plan plan;
};

Drawn Example() {
  Graph graph =
      *Graph::Create({{.name = "s<1>"}, {.name = "a\"b"}, {.name = "new", .health = Health::kNew}},
                     {{.from = "s<1>", .to = "a\"b", .usd_per_gb = 0.5, .rtt_ms = 4},
                      {.from = "a\"b", .to = "new", .usd_per_gb = 0.25, .rtt_ms = 4}});
  Drawn drawn{{.name = "x&y", .source = "s<1>", .rate_mbps = 8}, {}};
  drawn.plan = *MakePlan(graph, drawn.stream, {});
  return drawn;
}

TEST(RenderTest, JsonHoldsThePlan) {
  const Drawn drawn = Example();
  const nlohmann::json json = nlohmann::json::parse(PlanJson(drawn.stream, drawn.plan));
  EXPECT_EQ(json["stream"], "x&y");
  EXPECT_EQ(json["usd_per_gb"], 0.75);
  EXPECT_EQ(json["optimal"], true);
  ASSERT_EQ(json["hops"].size(), 2u);
  EXPECT_EQ(json["hops"][1]["from"], "a\"b");
  EXPECT_EQ(json["hops"][1]["rate_limited"], true);
  EXPECT_EQ(json["hops"][0]["load_mbps"], 16);
}

TEST(RenderTest, SvgAndDotEscapeNames) {
  const Drawn drawn = Example();
  const std::string svg = PlanSvg(drawn.stream, drawn.plan);
  EXPECT_THAT(svg, HasSubstr("Copy tree of x&amp;y"));
  EXPECT_THAT(svg, HasSubstr("s&lt;1&gt;"));
  EXPECT_THAT(svg, HasSubstr("a&quot;b"));
  EXPECT_EQ(svg.find("<1>"), std::string::npos);
  const std::string dot = PlanDot(drawn.stream, drawn.plan);
  EXPECT_THAT(dot, HasSubstr("\"s<1>\" -> \"a\\\"b\""));
}

TEST(RenderTest, DotSaysWhatItsSignsMeanAndDrawsRelaysOfBothTrees) {
  Drawn drawn = Example();
  EXPECT_THAT(
      PlanDot(drawn.stream, drawn.plan),
      HasSubstr("label=\"USD per GB over the link, and when the data is there; orange: new\""));
  PlanPair pair{.primary = drawn.plan, .standby = drawn.plan, .usd_per_gb = 1.5};
  pair.standby.hops[0].to = "only here";
  pair.standby.hops[0].destination = false;
  const std::string dot = PlanDot(drawn.stream, drawn.plan, {.pair = &pair});
  EXPECT_THAT(dot, HasSubstr("\"only here\" [style=\"rounded,dashed\"]"));
  EXPECT_THAT(dot, HasSubstr("dashed box: relay only; orange: new; dashed edges: standby"));
  // Of each cluster once.
  const size_t first = dot.find(" [color=orange]");
  EXPECT_EQ(dot.find(" [color=orange]", first + 1), std::string::npos);
}

TEST(RenderTest, SvgPlacesEveryClusterOnceAndNoTwoOnTop) {
  const Graph graph = RandomGraph(25, 4);
  const Stream stream{.source = "c00"};
  const Plan plan = *MakePlan(graph, stream, {});
  const std::string drawn = PlanSvg(stream, plan);
  ASSERT_THAT(drawn, HasSubstr("<g id=\"legend\">"));
  const std::string svg = drawn.substr(0, drawn.find("<g id=\"legend\">"));
  std::set<std::string> places;
  size_t boxes = 0;
  for (size_t at = svg.find("<rect x="); at != std::string::npos;
       at = svg.find("<rect x=", at + 1)) {
    places.insert(svg.substr(at, svg.find(" width", at) - at));
    ++boxes;
  }
  EXPECT_EQ(boxes, 25u);
  EXPECT_EQ(places.size(), 25u);
}

TEST(RenderTest, SaysHowFarAboveTheOptimumATreeCanBe) {
  Drawn drawn = Example();
  const auto both = [&](const std::string& words) {
    EXPECT_THAT(PlanText(drawn.stream, drawn.plan, {}), HasSubstr(words));
    EXPECT_THAT(PlanSvg(drawn.stream, drawn.plan), HasSubstr(words));
  };
  both("proven optimal");
  drawn.plan.optimal = false;
  drawn.plan.lower_bound_usd_per_gb = 0.5;
  both("at most 50.00 % above the optimum");
  drawn.plan.lower_bound_usd_per_gb = 0;
  both("no bound");
  EXPECT_THAT(PlanJson(drawn.stream, drawn.plan, {}), HasSubstr("\"gap\": null"));
  drawn.plan.breaks_limits = true;
  both("breaks the limits");
}

TEST(RenderTest, SvgSaysWhatPairsAndFailuresCost) {
  const Drawn drawn = Example();
  EXPECT_THAT(PlanSvg(drawn.stream, drawn.plan), HasSubstr("0.7500 USD/GB (proven optimal)"));
  PlanPair pair{.primary = drawn.plan, .standby = drawn.plan, .usd_per_gb = 1.5};
  EXPECT_THAT(PlanSvg(drawn.stream, drawn.plan, {.pair = &pair}),
              HasSubstr("0.7500 USD/GB (1.5000 with the standby)"));
  const RobustPlan robust{.plan = drawn.plan, .worst_extra = 0.125, .alone_usd_per_gb = 0.7};
  EXPECT_THAT(PlanSvg(drawn.stream, drawn.plan, {.robust = &robust}),
              HasSubstr("any one failure: at most 12.5 % above the cheapest tree's 0.7000"));
}

struct Point {
  double x, y;
};
struct Label {
  double left, right, top, bottom;
};

double Attribute(const std::string& element, const std::string& name) {
  const size_t at = element.find(" " + name + "=\"");
  return at == std::string::npos ? -1 : std::atof(element.c_str() + at + name.size() + 3);
}

// Points along every path of the picture: a cubic curve from M, then a straight line to L.
std::vector<Point> Inked(const std::string& svg) {
  std::vector<Point> points;
  for (size_t at = svg.find("<path d=\"M"); at != std::string::npos;
       at = svg.find("<path d=\"M", at + 1)) {
    Point p[5] = {};
    const int read = std::sscanf(
        svg.c_str() + at, "<path d=\"M%lf %lf C%lf %lf %lf %lf %lf %lf L%lf %lf", &p[0].x, &p[0].y,
        &p[1].x, &p[1].y, &p[2].x, &p[2].y, &p[3].x, &p[3].y, &p[4].x, &p[4].y);
    EXPECT_EQ(read, 10);
    for (int i = 0; i <= 400; ++i) {
      const double t = i / 400.0, u = 1 - t;
      const double a = u * u * u, b = 3 * u * u * t, c = 3 * u * t * t, d = t * t * t;
      points.push_back({a * p[0].x + b * p[1].x + c * p[2].x + d * p[3].x,
                        a * p[0].y + b * p[1].y + c * p[2].y + d * p[3].y});
      points.push_back({p[3].x + t * (p[4].x - p[3].x), p[4].y});
    }
  }
  return points;
}

// Everything written below the head, as boxes of about the text's size. The characters are wider
// here than the drawing takes them to be.
std::vector<Label> Labels(const std::string& svg) {
  std::vector<Label> labels;
  for (size_t at = svg.find("<text "); at != std::string::npos; at = svg.find("<text ", at + 1)) {
    const size_t open = svg.find('>', at), close = svg.find("</text>", at);
    const std::string element = svg.substr(at, open - at);
    const double size = Attribute(element, "font-size") > 0 ? Attribute(element, "font-size") : 12;
    const double width = 0.64 * size * static_cast<double>(close - open - 1);
    const double x = Attribute(element, "x"), y = Attribute(element, "y");
    if (y < 60) continue;
    const bool end = element.find("text-anchor=\"end\"") != std::string::npos;
    labels.push_back({end ? x - width : x, end ? x : x + width, y - 0.75 * size, y});
  }
  return labels;
}

TEST(RenderTest, SvgStrikesNoLabelThrough) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Graph graph = RandomGraph(40, seed);
    const Stream stream{.source = "c00"};
    PlanOptions options;
    options.limits = {.max_depth = 5, .max_fanout = 5};
    const Plan plan = MustPlan(graph, stream, options);
    const std::string svg = PlanSvg(stream, plan);
    const std::vector<Point> inked = Inked(svg);
    const std::vector<Label> labels = Labels(svg);
    ASSERT_EQ(inked.size(), 39u * 802);
    ASSERT_GE(labels.size(), 40u + 39 + 39);
    const double half_stroke = 1.6;
    for (const Label& label : labels) {
      for (const Point& point : inked) {
        const bool struck = point.x > label.left && point.x < label.right &&
                            point.y + half_stroke > label.top &&
                            point.y - half_stroke < label.bottom;
        ASSERT_FALSE(struck) << "at " << point.x << ", " << point.y;
      }
    }
  }
}

std::vector<Contender> Contenders(const PlanOptions& options) {
  const Graph graph = *Graph::Create({{.name = "s"}, {.name = "a"}, {.name = "b"}, {.name = "c"}},
                                     {{.from = "s", .to = "a", .usd_per_gb = 0.10},
                                      {.from = "s", .to = "b", .usd_per_gb = 0.10},
                                      {.from = "a", .to = "b", .usd_per_gb = 0.02},
                                      {.from = "b", .to = "c", .usd_per_gb = 0.02},
                                      {.from = "a", .to = "c", .usd_per_gb = 0.08}});
  return *Compare(graph, {.name = "x", .source = "s"}, options);
}

TEST(RenderTest, ComparesWithSimplerTrees) {
  PlanOptions options;
  options.limits = {.max_depth = 2};
  const std::vector<Contender> contenders = Contenders(options);
  ASSERT_EQ(contenders.size(), 4u);
  EXPECT_EQ(contenders[0].missing, "no way to c");
  EXPECT_NEAR(contenders[1].plan->usd_per_gb, 0.14, 1e-9);  // the chain s a b c
  ASSERT_EQ(contenders[1].broken.size(), 1u);
  EXPECT_THAT(contenders[1].broken[0], HasSubstr("'c' is at depth 3"));
  EXPECT_NEAR(contenders[2].plan->usd_per_gb, 0.20, 1e-9);  // s a, a b, a c
  EXPECT_NEAR(contenders[3].plan->usd_per_gb, 0.20, 1e-9);
  EXPECT_TRUE(contenders[3].plan->optimal);
  const Stream stream{.name = "x", .source = "s"};
  const std::string text = ComparisonText(stream, contenders);
  EXPECT_THAT(text, HasSubstr("Prim without limits: cluster 'c' is at depth 3"));
  EXPECT_THAT(text, HasSubstr("-30.0 %"));
  EXPECT_THAT(text, HasSubstr("met: the planned tree is optimal"));
  const nlohmann::json json = nlohmann::json::parse(ComparisonJson(stream, contenders));
  ASSERT_EQ(json["trees"].size(), 4u);
  EXPECT_EQ(json["trees"][0]["missing"], "no way to c");
  EXPECT_EQ(json["trees"][3]["usd_per_gb"], 0.2);
  EXPECT_EQ(json["lower_bound_usd_per_gb"], 0.2);
  EXPECT_THAT(ComparisonSvg(stream, contenders), HasSubstr("lower bound 0.2000: proven optimal"));
  EXPECT_THAT(ComparisonSvg(stream, contenders), HasSubstr("dashed: breaks the limits"));
  const std::vector<Contender> free = Contenders({});
  EXPECT_THAT(ComparisonSvg(stream, free), Not(HasSubstr("dashed: breaks the limits")));
}

TEST(RenderTest, TextShowsWarningsRoutesAndSteps) {
  const Drawn drawn = Example();
  EXPECT_THAT(PlanText(drawn.stream, drawn.plan), HasSubstr("new, rate-limited"));
  EXPECT_THAT(PlanText(drawn.stream, drawn.plan, {.ascii = true}), HasSubstr("`- a\"b"));
  EXPECT_EQ(StepsText({}), "no changes\n");
  EXPECT_EQ(StepsJson({}), "[]\n");
}

}  // namespace
}  // namespace tailcast::copytree
