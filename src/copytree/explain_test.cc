#include "tailcast/copytree/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tailcast/copytree/test_graphs.h"

namespace tailcast::copytree {
namespace {

using ::testing::HasSubstr;

// The cheap parent of `far` would be too deep; the next is full; the third is taken.
TEST(ExplainTest, SaysWhichLimitBlocksEachCheaperParent) {
  const Graph graph =
      *Graph::Create({{.name = "s"}, {.name = "a"}, {.name = "b"}, {.name = "far"}},
                     {{.from = "s", .to = "a", .usd_per_gb = 0.01, .rtt_ms = 10},
                      {.from = "a", .to = "b", .usd_per_gb = 0.01, .rtt_ms = 10},
                      {.from = "s", .to = "b", .usd_per_gb = 0.09, .rtt_ms = 10},
                      {.from = "a", .to = "far", .usd_per_gb = 0.02, .rtt_ms = 10},
                      {.from = "b", .to = "far", .usd_per_gb = 0.01, .rtt_ms = 10},
                      {.from = "s", .to = "far", .usd_per_gb = 0.03, .rtt_ms = 10}});
  PlanOptions options;
  options.limits = {.max_depth = 2, .max_fanout = 2};
  const Stream stream{.source = "s"};
  Result<Plan> plan = MakePlan(graph, stream, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->tree.ParentOf("far"), "a");
  const Result<Explanation> far = Explain(graph, stream, options, *plan, "far");
  ASSERT_TRUE(far.ok()) << far.status();
  ASSERT_EQ(far->alternatives.size(), 2u);
  EXPECT_EQ(far->alternatives[0].from, "b");
  EXPECT_THAT(far->alternatives[0].blocked, HasSubstr("max_depth 2"));
  EXPECT_EQ(far->alternatives[1].from, "s");
  EXPECT_EQ(far->alternatives[1].blocked, "");
  EXPECT_NEAR(far->alternatives[1].extra_usd_per_gb, 0.01, 1e-12);
  ASSERT_TRUE(far->next_best);
  EXPECT_NEAR(far->next_best->usd_per_gb, plan->usd_per_gb + 0.01, 1e-9);
  EXPECT_THAT(far->reason, HasSubstr("1 cheaper link into far is blocked"));
  const Result<Explanation> a = Explain(graph, stream, options, *plan, "a");
  ASSERT_TRUE(a.ok());
  EXPECT_FALSE(a->next_best);
  EXPECT_THAT(a->reason, HasSubstr("only link into a"));
  EXPECT_THAT(a->reason, HasSubstr("Without it: cluster 'a' cannot be reached"));
}

TEST(ExplainTest, RefusesWhatIsNotInTheTree) {
  const Graph graph = RandomGraph(4, 1);
  const Plan plan = *MakePlan(graph, {.source = "c00"}, {});
  EXPECT_THAT(Explain(graph, {.source = "c00"}, {}, plan, "c00").status().message(),
              HasSubstr("source"));
  EXPECT_THAT(Explain(graph, {.source = "c00"}, {}, plan, "c1").status().message(),
              HasSubstr("did you mean 'c01'"));
}

// The next best is never better than the plan where the plan is proven.
TEST(ExplainTest, TheNextBestIsNoCheaperThanAProvenPlan) {
  const Graph graph = RandomGraph(14, 9);
  PlanOptions options;
  options.limits.max_depth = 3;
  const Stream stream{.source = "c03"};
  const Plan plan = *MakePlan(graph, stream, options);
  ASSERT_TRUE(plan.optimal);
  for (const Hop& hop : plan.hops) {
    const Result<Explanation> why = Explain(graph, stream, options, plan, hop.to);
    ASSERT_TRUE(why.ok());
    ASSERT_TRUE(why->next_best) << why->irreplaceable;
    EXPECT_GE(why->next_best->usd_per_gb, plan.usd_per_gb - 1e-9);
    EXPECT_FALSE(why->next_best->tree.HasEdge(hop.from, hop.to));
  }
}

}  // namespace
}  // namespace tailcast::copytree
