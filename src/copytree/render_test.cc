#include "tailcast/copytree/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_THAT(svg, HasSubstr("copy tree of x&amp;y"));
  EXPECT_THAT(svg, HasSubstr("s&lt;1&gt;"));
  EXPECT_THAT(svg, HasSubstr("a&quot;b"));
  EXPECT_EQ(svg.find("<1>"), std::string::npos);
  const std::string dot = PlanDot(drawn.stream, drawn.plan);
  EXPECT_THAT(dot, HasSubstr("\"s<1>\" -> \"a\\\"b\""));
}

TEST(RenderTest, SvgPlacesEveryClusterOnceAndNoTwoOnTop) {
  const Graph graph = RandomGraph(25, 4);
  const Stream stream{.source = "c00"};
  const Plan plan = *MakePlan(graph, stream, {});
  const std::string svg = PlanSvg(stream, plan);
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

TEST(RenderTest, TextShowsWarningsRoutesAndSteps) {
  const Drawn drawn = Example();
  EXPECT_THAT(PlanText(drawn.stream, drawn.plan), HasSubstr("new, rate-limited"));
  EXPECT_THAT(PlanText(drawn.stream, drawn.plan, {.ascii = true}), HasSubstr("`- a\"b"));
  EXPECT_EQ(StepsText({}), "no changes\n");
  EXPECT_EQ(StepsJson({}), "[]\n");
}

}  // namespace
}  // namespace tailcast::copytree
