#include "tailcast/copytree/outage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tailcast/copytree/plan.h"

namespace tailcast::copytree {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// s feeds a and b; a feeds c and d; c feeds e.
const Tree kTree{"s", {{"s", "a"}, {"s", "b"}, {"a", "c"}, {"a", "d"}, {"c", "e"}}};

Suspects Find(const std::vector<Observation>& observations) {
  Result<Suspects> suspects = FindSuspects(kTree, observations, 1000);
  EXPECT_TRUE(suspects.ok()) << suspects.status();
  return *suspects;
}

TEST(FindSuspectsTest, SuspectsNobodyWhenAllAreInTime) {
  const Suspects suspects = Find({{"a", 50}, {"b", 999}, {"c", 1000}});
  EXPECT_THAT(suspects.clusters, IsEmpty());
  EXPECT_THAT(suspects.links, IsEmpty());
}

TEST(FindSuspectsTest, BlamesTheFirstLateHopAndNotItsVictims) {
  const Suspects suspects = Find({{"a", 5000}, {"c", 5100}, {"d", 5100}, {"e", 5200}});
  EXPECT_THAT(suspects.links, ElementsAre(Edge{"s", "a"}));
  EXPECT_THAT(suspects.clusters, IsEmpty());
  EXPECT_THAT(suspects.victims, UnorderedElementsAre("c", "d", "e"));
}

TEST(FindSuspectsTest, BlamesTheParentWhenAllItsChildrenAreLate) {
  const Suspects suspects = Find({{"a", 10}, {"c", 5100}, {"d", 5100}, {"e", 5200}});
  EXPECT_THAT(suspects.clusters, ElementsAre("a"));
  EXPECT_THAT(suspects.links, IsEmpty());
  EXPECT_THAT(suspects.victims, UnorderedElementsAre("c", "d", "e"));
}

TEST(FindSuspectsTest, BlamesTheLinkWhenOnlyOneChildIsLate) {
  const Suspects suspects = Find({{"d", 5100}});
  EXPECT_THAT(suspects.links, ElementsAre(Edge{"a", "d"}));
  EXPECT_THAT(suspects.clusters, IsEmpty());
}

TEST(FindSuspectsTest, BelievesClustersThatSayTheyAreUnwellOrSayNothing) {
  const Suspects suspects =
      Find({{.cluster = "b", .unwell = true}, {.cluster = "c", .silent = true}, {"e", 9000}});
  EXPECT_THAT(suspects.clusters, UnorderedElementsAre("b", "c"));
  EXPECT_THAT(suspects.victims, ElementsAre("e"));
  EXPECT_THAT(suspects.links, IsEmpty());
}

TEST(FindSuspectsTest, DoesNotBlameTheParentForChildrenThatAreUnwellThemselves) {
  const Suspects suspects = Find({{.cluster = "c", .unwell = true}, {"d", 5000}});
  EXPECT_THAT(suspects.clusters, ElementsAre("c"));
  EXPECT_THAT(suspects.links, ElementsAre(Edge{"a", "d"}));
}

TEST(FindSuspectsTest, BlamesTheSourcesLinksBecauseNoTreeAvoidsTheSource) {
  const Suspects suspects = Find({{"a", 5000}, {"b", 5000}});
  EXPECT_THAT(suspects.clusters, IsEmpty());
  EXPECT_THAT(suspects.links, ElementsAre(Edge{"s", "a"}, Edge{"s", "b"}));
}

TEST(ApplySuspectsTest, LeadsToATreeAroundTheTrouble) {
  std::vector<Cluster> clusters;
  std::vector<Link> links;
  for (const char* name : {"s", "a", "b", "c", "d", "e"}) clusters.push_back({.name = name});
  for (const Cluster& from : clusters) {
    for (const Cluster& to : clusters) {
      if (from.name == to.name) continue;
      const bool running = kTree.HasEdge(from.name, to.name);
      links.push_back({.from = from.name, .to = to.name, .usd_per_gb = running ? 0.01 : 0.05});
    }
  }
  Graph graph = *Graph::Create(clusters, links);
  ASSERT_EQ(MakePlan(graph, {.source = "s"}, {})->tree.ParentOf("c"), "a");
  const Suspects suspects = Find({{"a", 10}, {"c", 5100}, {"d", 5100}});
  ASSERT_TRUE(ApplySuspects(suspects, &graph).ok());
  PlanOptions options;
  options.current = kTree;
  const Result<Plan> plan = MakePlan(graph, {.source = "s"}, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->tree.ChildrenOf("a"), IsEmpty());
  EXPECT_EQ(plan->reroutes.size(), 1u);
  // Only what hung on a moved.
  EXPECT_EQ(plan->tree.ParentOf("e"), "c");
  EXPECT_EQ(plan->edges_added, 2);
}

}  // namespace
}  // namespace tailcast::copytree
