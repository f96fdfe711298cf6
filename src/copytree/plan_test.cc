#include "tailcast/copytree/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/copytree/import.h"
#include "tailcast/copytree/test_graphs.h"

namespace tailcast::copytree {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// s feeds a and b for 1 cent, a feeds c for 1 cent, b feeds c for 2, s feeds c for 10.
Graph Diamond() {
  return MakeGraph({{.name = "s"}, {.name = "a"}, {.name = "b"}, {.name = "c"}},
                   {{.from = "s", .to = "a", .usd_per_gb = 0.01, .rtt_ms = 10},
                    {.from = "s", .to = "b", .usd_per_gb = 0.01, .rtt_ms = 20},
                    {.from = "a", .to = "c", .usd_per_gb = 0.01, .rtt_ms = 30},
                    {.from = "b", .to = "c", .usd_per_gb = 0.02, .rtt_ms = 10},
                    {.from = "s", .to = "c", .usd_per_gb = 0.10, .rtt_ms = 10}});
}

TEST(GraphTest, RefusesBadInputByName) {
  const auto error = [](std::vector<Cluster> clusters, std::vector<Link> links) {
    return Graph::Create(std::move(clusters), std::move(links)).status().message();
  };
  EXPECT_THAT(error({}, {}), HasSubstr("no clusters"));
  EXPECT_THAT(error({{.name = "a"}, {.name = "a"}}, {}), HasSubstr("'a' is given twice"));
  EXPECT_THAT(error({{.name = ""}}, {}), HasSubstr("empty name"));
  EXPECT_THAT(error({{.name = "us-east"}}, {{.from = "us-eats", .to = "us-east"}}),
              HasSubstr("did you mean 'us-east'?"));
  EXPECT_THAT(error({{.name = "a"}}, {{.from = "a", .to = "a"}}), HasSubstr("to itself"));
  const std::vector<Cluster> two{{.name = "a"}, {.name = "b"}};
  EXPECT_THAT(error(two, {{.from = "a", .to = "b", .usd_per_gb = -1}}),
              HasSubstr("price is negative"));
  EXPECT_THAT(error(two, {{.from = "a", .to = "b", .usd_per_gb = NAN}}),
              HasSubstr("price is missing"));
  EXPECT_THAT(error(two, {{.from = "a", .to = "b", .usd_per_gb = 101}}), HasSubstr("per TB"));
  EXPECT_THAT(error(two, {{.from = "a", .to = "b", .rtt_ms = NAN}}),
              HasSubstr("round-trip time is missing"));
  EXPECT_THAT(error(two, {{.from = "a", .to = "b", .rtt_ms = -1}}),
              HasSubstr("round-trip time must be"));
  EXPECT_THAT(error(two, {{.from = "a", .to = "b"}, {.from = "a", .to = "b"}}),
              HasSubstr("given twice"));
  EXPECT_THAT(error(std::vector<Cluster>(kClustersMax + 1), {}), HasSubstr("at most 1000"));
}

TEST(PlanTest, KeepsToTheLimitsOfSingleClusters) {
  const Stream stream{.name = "x", .source = "s", .rate_mbps = 100};
  const auto with = [&](const Cluster& limited) {
    std::vector<Cluster> clusters = Diamond().clusters();
    for (Cluster& cluster : clusters) {
      if (cluster.name == limited.name) cluster = limited;
    }
    return MakeGraph(clusters, Diamond().links());
  };
  EXPECT_EQ(MustPlan(Diamond(), stream).tree.ParentOf("c"), "a");
  EXPECT_EQ(MustPlan(with({.name = "c", .max_depth = 1}), stream).tree.ParentOf("c"), "s");
  EXPECT_EQ(MustPlan(with({.name = "a", .max_egress_mbps = 199}), stream).tree.ParentOf("c"), "b");
  EXPECT_EQ(MustPlan(with({.name = "a", .max_egress_mbps = 200}), stream).tree.ParentOf("c"), "a");
  // What other streams send counts.
  PlanOptions loaded;
  loaded.reserved = {{.from = "a", .to = "c", .mbps = 50}};
  EXPECT_EQ(
      MustPlan(with({.name = "a", .max_egress_mbps = 200}), stream, loaded).tree.ParentOf("c"),
      "b");
  // Two children of the source leave c to a or b; its own limit holds instead of the plan's.
  PlanOptions narrow;
  narrow.limits = {.max_depth = 3, .max_fanout = 1};
  EXPECT_FALSE(MakePlan(Diamond(), stream, narrow).ok());
  const Result<Plan> wide = MakePlan(with({.name = "s", .max_fanout = 2}), stream, narrow);
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(wide->fanout, 2);
  EXPECT_TRUE(wide->optimal);
  const Result<Plan> blocked =
      MakePlan(MakeGraph({{.name = "s"}, {.name = "a"}, {.name = "b", .max_depth = 1}},
                         {{.from = "s", .to = "a"}, {.from = "a", .to = "b"}}),
               {.name = "x", .source = "s"}, {});
  EXPECT_THAT(blocked.status().message(), HasSubstr("its own max_depth 1 blocks cluster 'b'"));
  // A tree fixed by hand is measured against the same limits.
  const Result<Plan> described =
      DescribeTree(with({.name = "a", .max_egress_mbps = 100}), stream, {},
                   {.source = "s", .edges = {{"s", "a"}, {"s", "b"}, {"a", "c"}}});
  ASSERT_TRUE(described.ok());
  EXPECT_THAT(described->warnings, ElementsAre(HasSubstr("'a' feeds 1 clusters, its limit is 0")));
}

TEST(PlanTest, TakesTheCheapestTreeAndItsFiguresAddUp) {
  const Plan plan = MustPlan(Diamond(), {.name = "x", .source = "s", .rate_mbps = 100});
  EXPECT_TRUE(plan.tree.HasEdge("a", "c"));
  EXPECT_NEAR(plan.usd_per_gb, 0.03, 1e-12);
  // 100 Mbit/s are 1080 GB a day, copied to two layers.
  EXPECT_NEAR(plan.usd_per_day, 0.03 * 1080 * 2, 1e-9);
  EXPECT_TRUE(plan.optimal);
  EXPECT_EQ(plan.depth, 2);
  EXPECT_EQ(plan.fanout, 2);
  EXPECT_NEAR(plan.worst_delay_ms, (5 + 25) + (15 + 25), 1e-9);
  ASSERT_EQ(plan.loads.size(), 3u);
  EXPECT_NEAR(plan.loads[0].mbps, 200, 1e-9);
}

TEST(PlanTest, KeepsToTheDepthLimit) {
  PlanOptions options;
  options.limits.max_depth = 1;
  EXPECT_NEAR(MustPlan(Diamond(), {.source = "s"}, options).usd_per_gb, 0.12, 1e-12);
}

TEST(PlanTest, KeepsToTheDelayLimit) {
  PlanOptions options;
  options.limits.max_delay_ms = 69;  // over a it takes 70, over b 65
  const Plan plan = MustPlan(Diamond(), {.source = "s"}, options);
  EXPECT_TRUE(plan.tree.HasEdge("b", "c"));
}

TEST(PlanTest, UsesRelaysOnlyWhereTheyPay) {
  const Graph graph = MakeGraph(
      {{.name = "s"}, {.name = "x"}, {.name = "y"}, {.name = "relay", .relay_only = true}},
      {{.from = "s", .to = "x", .usd_per_gb = 0.10},
       {.from = "s", .to = "y", .usd_per_gb = 0.10},
       {.from = "s", .to = "relay", .usd_per_gb = 0.095},
       {.from = "relay", .to = "x", .usd_per_gb = 0.01},
       {.from = "relay", .to = "y", .usd_per_gb = 0.01}});
  EXPECT_TRUE(MustPlan(graph, {.source = "s"}).tree.Contains("relay")) << "0.115 against 0.20";
  EXPECT_FALSE(MustPlan(graph, {.source = "s", .destinations = {"x"}}).tree.Contains("relay"))
      << "0.105 against 0.10";
}

TEST(PlanTest, MakesSickClustersLeavesAndSendsTheirConsumersToTheNearestHealthyOne) {
  Graph graph = Diamond();
  ASSERT_TRUE(graph.SetHealth("a", Health::kSick).ok());
  const Plan plan = MustPlan(graph, {.source = "s"});
  EXPECT_TRUE(plan.tree.ChildrenOf("a").empty());
  EXPECT_TRUE(plan.tree.HasEdge("b", "c"));
  ASSERT_EQ(plan.reroutes.size(), 1u);
  EXPECT_EQ(plan.reroutes[0].from, "a");
  EXPECT_EQ(plan.reroutes[0].to, "s") << "10 ms away, c is 30";
  EXPECT_TRUE(plan.warnings.empty());
}

TEST(PlanTest, FeedsThroughSickClustersOnlyWithAWarning) {
  Graph graph = MakeGraph({{.name = "s"}, {.name = "a"}, {.name = "b"}},
                          {{.from = "s", .to = "a"}, {.from = "a", .to = "b"}});
  ASSERT_TRUE(graph.SetHealth("a", Health::kSick).ok());
  const Plan plan = MustPlan(graph, {.source = "s"});
  ASSERT_EQ(plan.warnings.size(), 1u);
  EXPECT_THAT(plan.warnings[0], HasSubstr("sick cluster 'a' must feed 'b'"));
}

TEST(PlanTest, AvoidsSickLinks) {
  Graph graph = Diamond();
  ASSERT_TRUE(graph.SetLinkSick("s", "b", true).ok());
  ASSERT_TRUE(graph.SetLinkSick("a", "c", true).ok());
  const Plan plan = MustPlan(graph, {.source = "s"});
  EXPECT_FALSE(plan.tree.HasEdge("a", "c"));
  EXPECT_TRUE(plan.tree.HasEdge("s", "b")) << "the only link into b";
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("sick link s -> b stays in use")));
  EXPECT_FALSE(graph.SetLinkSick("b", "s", true).ok()) << "there is no such link";
}

TEST(PlanTest, StartsNewClustersAsRateLimitedLeavesUntilTheyArePromoted) {
  Graph graph = Diamond();
  ASSERT_TRUE(graph.SetHealth("a", Health::kNew).ok());
  const Plan joining = MustPlan(graph, {.source = "s"});
  EXPECT_TRUE(joining.tree.ChildrenOf("a").empty());
  for (const Hop& hop : joining.hops) EXPECT_EQ(hop.rate_limited, hop.to == "a");
  EXPECT_TRUE(joining.reroutes.empty());
  ASSERT_TRUE(graph.SetHealth("a", Health::kHealthy).ok());
  EXPECT_TRUE(MustPlan(graph, {.source = "s"}).tree.HasEdge("a", "c"));
}

TEST(PlanTest, ChangesOnlyWhatIsWorthTheChurnPrice) {
  PlanOptions options;
  options.current = Tree{"s", {{"s", "a"}, {"s", "b"}, {"b", "c"}}};
  options.churn_usd_per_gb = 0.02;  // a -> c would save 0.01
  const Plan kept = MustPlan(Diamond(), {.source = "s"}, options);
  EXPECT_TRUE(kept.tree.HasEdge("b", "c"));
  EXPECT_EQ(kept.edges_added, 0);
  EXPECT_TRUE(kept.optimal);
  options.churn_usd_per_gb = 0.005;
  const Plan changed = MustPlan(Diamond(), {.source = "s"}, options);
  EXPECT_TRUE(changed.tree.HasEdge("a", "c"));
  EXPECT_EQ(changed.edges_added, 1);
  EXPECT_EQ(changed.edges_removed, 1);
}

TEST(PlanTest, KeepsTheRunningTreeAmongEquallyCheapOnes) {
  std::vector<Link> links;
  for (const char* from : {"s", "a", "b", "c"}) {
    for (const char* to : {"a", "b", "c"}) {
      if (std::string(from) != to) links.push_back({.from = from, .to = to, .usd_per_gb = 0.01});
    }
  }
  const Graph graph =
      MakeGraph({{.name = "s"}, {.name = "a"}, {.name = "b"}, {.name = "c"}}, std::move(links));
  PlanOptions options;
  options.current = Tree{"s", {{"s", "c"}, {"c", "b"}, {"b", "a"}}};
  EXPECT_EQ(MustPlan(graph, {.source = "s"}, options).edges_added, 0);
}

TEST(PlanTest, LeavesOutLinksThatAreFullOrTooSlow) {
  const Graph graph =
      MakeGraph({{.name = "s"}, {.name = "a"}},
                {{.from = "s", .to = "a", .usd_per_gb = 0.01, .bandwidth_gbps = 1}});
  EXPECT_TRUE(MakePlan(graph, {.source = "s", .rate_mbps = 400}, {}).ok());
  const Result<Plan> slow = MakePlan(graph, {.source = "s", .rate_mbps = 600}, {});
  ASSERT_FALSE(slow.ok());
  EXPECT_THAT(slow.status().message(), HasSubstr("needs 1.2 Gbit/s"));
  PlanOptions options;
  options.reserved.push_back({.from = "s", .to = "a", .mbps = 500});
  EXPECT_FALSE(MakePlan(graph, {.source = "s", .rate_mbps = 400}, options).ok());
}

TEST(PlanTest, DoesNotDependOnTheOrderOfTheInput) {
  const Graph graph = RandomGraph(30, 3);
  std::vector<Cluster> clusters = graph.clusters();
  std::vector<Link> links = graph.links();
  std::reverse(clusters.begin(), clusters.end());
  std::reverse(links.begin(), links.end());
  const Graph reversed = MakeGraph(std::move(clusters), std::move(links));
  PlanOptions options;
  options.limits = {.max_depth = 3, .max_fanout = 4};
  const Plan a = MustPlan(graph, {.source = "c07"}, options);
  const Plan b = MustPlan(reversed, {.source = "c07"}, options);
  EXPECT_EQ(a.tree, b.tree);
  EXPECT_EQ(a.work, b.work);
}

TEST(PlanTest, HoldsEveryLimitOnRandomGraphs) {
  Rng rng(23);
  for (int round = 0; round < 60; ++round) {
    const int n = static_cast<int>(rng.Between(3, 40));
    const Graph graph = RandomGraph(n, rng.Next(), rng.Chance(0.5) ? 1.0 : 0.5);
    PlanOptions options;
    options.limits.max_depth = static_cast<int>(rng.Between(2, 6));
    options.limits.max_fanout = rng.Chance(0.5) ? static_cast<int>(rng.Between(3, 9)) : 0;
    options.limits.max_delay_ms = rng.Chance(0.4) ? static_cast<double>(rng.Between(120, 300)) : 0;
    options.work_max = 3'000'000;
    const Stream stream{
        .source = graph.cluster(static_cast<int>(rng.Below(static_cast<uint64_t>(n)))).name,
        .rate_mbps = rng.Chance(0.5) ? static_cast<double>(rng.Between(1, 500)) : 0};
    const Link& busy = graph.links()[rng.Below(graph.links().size())];
    options.reserved.push_back({busy.from, busy.to, 7.5, busy.bandwidth_gbps, 0});
    const Result<Plan> plan = MakePlan(graph, stream, options);
    if (plan.ok()) {
      ExpectConsistent(graph, stream, options, *plan);
    } else {
      EXPECT_TRUE(IsFailedPrecondition(plan.status())) << plan.status();
    }
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(DescribeTreeTest, ListsWhatBreaksTheLimits) {
  PlanOptions options;
  options.limits = {.max_depth = 1, .max_fanout = 1, .max_delay_ms = 50};
  const Tree tree{"s", {{"s", "a"}, {"s", "b"}, {"a", "c"}}};
  PlanOptions free = options;
  free.limits = {.max_depth = 2};
  const Result<Plan> plan = DescribeTree(Diamond(), {.source = "s"}, free, tree);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->warnings.empty());
  EXPECT_TRUE(plan->optimal);
  const Result<Plan> over = DescribeTree(Diamond(), {.source = "s"}, options, tree);
  ASSERT_TRUE(over.ok()) << over.status();
  EXPECT_THAT(over->warnings,
              ElementsAre(HasSubstr("'c' is at depth 2"), HasSubstr("'c' is reached after 70 ms"),
                          HasSubstr("'s' feeds 2 clusters")));
  EXPECT_FALSE(over->optimal) << "no tree at all meets these limits";
  // It costs 0.03 where the cheapest tree within the limits costs 0.12.
  PlanOptions flat;
  flat.limits = {.max_depth = 1};
  const Result<Plan> deep = DescribeTree(Diamond(), {.source = "s"}, flat, tree);
  ASSERT_TRUE(deep.ok()) << deep.status();
  EXPECT_FALSE(deep->optimal);
  EXPECT_TRUE(deep->breaks_limits);

  EXPECT_NEAR(deep->lower_bound_usd_per_gb, 0.12, 1e-12);
  EXPECT_EQ(deep->Gap(), 0);
}

TEST(PlanTest, TheGapIsAPartOfTheBound) {
  Plan plan;
  plan.usd_per_gb = 0.49;
  plan.lower_bound_usd_per_gb = 0.46;
  EXPECT_NEAR(plan.Gap(), 0.0652174, 1e-6);
  plan.lower_bound_usd_per_gb = 0;
  EXPECT_EQ(plan.Gap(), std::numeric_limits<double>::infinity()) << "no bound";
  plan.usd_per_gb = 0;
  plan.optimal = true;
  EXPECT_EQ(plan.Gap(), 0);
}

TEST(DescribeTreeTest, RefusesWhatIsNoTreeOfTheGraph) {
  const auto error = [](const Tree& tree) {
    return DescribeTree(Diamond(), {.source = "s"}, {}, tree).status().message();
  };
  EXPECT_THAT(error({"s", {{"s", "a"}, {"s", "b"}}}), HasSubstr("leaves out destination 'c'"));
  EXPECT_THAT(error({"s", {{"s", "a"}, {"s", "b"}, {"c", "b"}}}), HasSubstr("fed twice"));
  EXPECT_THAT(error({"s", {{"s", "a"}, {"a", "b"}, {"a", "c"}}}), HasSubstr("no such link"));
  EXPECT_THAT(error({"a", {{"a", "c"}}}), HasSubstr("source is 'a'"));
  EXPECT_THAT(error({"s", {{"s", "a"}, {"s", "b"}, {"a", "C"}}}), HasSubstr("did you mean 'c'?"));
}

TEST(PlanTest, SaysWhichOptionMakesNoSense) {
  const auto error = [](const PlanOptions& options) {
    return MakePlan(Diamond(), {.source = "s"}, options).status().message();
  };
  PlanOptions options;
  options.limits.max_depth = 0;
  EXPECT_THAT(error(options), HasSubstr("max_depth is 0"));
  options = {};
  options.limits.max_fanout = -1;
  EXPECT_THAT(error(options), HasSubstr("max_fanout is -1"));
  options = {};
  options.limits.max_delay_ms = -5;
  EXPECT_THAT(error(options), HasSubstr("max_delay_ms is -5"));
  options = {};
  options.churn_usd_per_gb = NAN;
  EXPECT_THAT(error(options), HasSubstr("churn_usd_per_gb"));
  options = {};
  options.hop_delay_ms = -1;
  EXPECT_THAT(error(options), HasSubstr("hop_delay_ms"));
  EXPECT_THAT(MakePlan(Diamond(), {.source = "s", .rate_mbps = -1}, {}).status().message(),
              HasSubstr("rate_mbps"));
}

// Costs proven by an integer program over the real prices of 60 cloud regions (USD per GB); the
// tables are not part of the repository.
struct Proven {
  const char* source;
  int max_depth, max_fanout;
  double usd_per_gb;
};

TEST(SkyplaneTest, PlansOnRealPricesCostWhatAnIntegerProgramProved) {
  const char* given = std::getenv("TAILCAST_SKYPLANE");
  const std::string folder = given != nullptr ? given : SKYPLANE_FOLDER;
  if (!std::ifstream(folder + "/cost.csv")) {
    GTEST_SKIP() << "no cost.csv in " << folder
                 << ": set TAILCAST_SKYPLANE to the folder of cost.csv, latency.csv and "
                    "throughput.csv to compare with proven optima on real prices";
  }
  std::vector<CsvTable> tables;
  for (const char* name : {"cost.csv", "latency.csv", "throughput.csv"}) {
    std::ifstream in(folder + "/" + name);
    std::stringstream text;
    text << in.rdbuf();
    ASSERT_TRUE(in.good()) << "cannot read " << folder << "/" << name;
    tables.push_back({name, text.str()});
  }
  const Result<Imported> imported = ImportTables(tables, {.complete = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->clusters.size(), 60u);
  const Graph graph = MakeGraph(imported->clusters, imported->links);
  for (const Proven& proven :
       {Proven{"aws:us-east-1", 2, 0, 2.12}, Proven{"aws:us-east-1", 3, 0, 2.0475},
        Proven{"aws:us-east-1", 2, 8, 2.185}, Proven{"aws:us-east-1", 3, 8, 2.0475},
        Proven{"aws:af-south-1", 2, 0, 2.632}, Proven{"aws:af-south-1", 3, 0, 2.199},
        Proven{"aws:af-south-1", 2, 8, 2.8265}, Proven{"aws:af-south-1", 3, 8, 2.252},
        Proven{"aws:ap-south-1", 2, 0, 2.3068}, Proven{"aws:ap-south-1", 3, 0, 2.1521},
        Proven{"aws:ap-south-1", 2, 8, 2.4403}, Proven{"azure:germanywestcentral", 3, 8, 2.0425}}) {
    PlanOptions options;
    options.limits = {.max_depth = proven.max_depth, .max_fanout = proven.max_fanout};
    const Plan plan = MustPlan(graph, {.source = proven.source}, options);
    EXPECT_GE(plan.usd_per_gb, proven.usd_per_gb - 1e-6) << "below a proven optimum?";
    EXPECT_LE(plan.usd_per_gb, proven.usd_per_gb * 1.005)
        << proven.source << " depth " << proven.max_depth << " fan-out " << proven.max_fanout;
    EXPECT_LE(plan.lower_bound_usd_per_gb, proven.usd_per_gb + 1e-6);
    if (proven.max_fanout == 0) {
      EXPECT_TRUE(plan.optimal);
    }
  }
}

TEST(PlanTest, EveryValueThatARefusalNamesSuffices) {
  int refused = 0, tried = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const Graph graph = RandomGraph(12, seed, 0.4);
    PlanOptions options;
    options.work_max = 3'000'000;
    options.limits.max_depth = 2 + static_cast<int>(seed % 2);
    options.limits.max_fanout = 2 + static_cast<int>(seed % 3);
    if (seed % 4 != 0) options.limits.max_delay_ms = 60 + 10 * static_cast<double>(seed);
    const Stream stream{.name = "s", .source = "c00"};
    if (seed % 3 == 0) {
      const Result<Plan> running = MakePlan(graph, stream, {.limits = {.max_depth = 8}});
      if (running.ok()) options.current = running->tree;
    }
    const Result<Plan> plan = MakePlan(graph, stream, options);
    if (plan.ok()) continue;
    ++refused;
    for (const Limits& limits : Advised(options.limits, std::string(plan.status().message()))) {
      ++tried;
      PlanOptions relaxed = options;
      relaxed.limits = limits;
      const Result<Plan> again = MakePlan(graph, stream, relaxed);
      EXPECT_TRUE(again.ok()) << "seed " << seed << ": " << plan.status().message()
                              << "\nthen: " << again.status().message();
    }
  }
  EXPECT_GE(refused, 6);
  EXPECT_GE(tried, 6);
}

// "max_fanout 3 of 'c01'", "max_fanout 3 and max_egress_mbps 70 of 'c01'", or "max_egress_mbps 70
// of each cluster that has less".
struct Advice {
  std::string limit;
  int value = 0;
  std::string cluster;  // empty: each
  int mbps = 0;         // besides, if not 0
};

// What a refusal says of single clusters.
std::vector<Advice> AdviceIn(const std::string& message) {
  std::vector<Advice> advice;
  const size_t begin = message.find("it works with ");
  if (begin == std::string::npos) return advice;
  for (const std::string limit : {"max_depth", "max_fanout", "max_egress_mbps"}) {
    for (size_t at = message.find(limit, begin); at != std::string::npos;
         at = message.find(limit, at + 1)) {
      if (message.compare(at - 4, 4, "and ") == 0) continue;  // read already
      char name[64] = "";
      int value = 0, mbps = 0;
      const char* rest = message.c_str() + at + limit.size();
      if (std::sscanf(rest, " %d and max_egress_mbps %d of '%63[^']'", &value, &mbps, name) == 3) {
        advice.push_back({limit, value, name, mbps});
      } else if (std::sscanf(rest, " %d of '%63[^']'", &value, name) == 2 ||
                 (std::sscanf(rest, " %d of %63[a-z]", &value, name) == 2 &&
                  name == std::string("each"))) {
        advice.push_back({limit, value, name == std::string("each") ? "" : name});
      }
    }
  }
  return advice;
}

// The graph in which that is done.
Graph Advised(const Graph& graph, const Advice& advice) {
  std::vector<Cluster> clusters = graph.clusters();
  for (Cluster& cluster : clusters) {
    const bool each = advice.cluster.empty() && cluster.max_egress_mbps > 0;
    if (!each && cluster.name != advice.cluster) continue;
    if (advice.limit == "max_depth") cluster.max_depth = advice.value;
    if (advice.limit == "max_fanout") cluster.max_fanout = advice.value;
    if (advice.mbps > 0) cluster.max_egress_mbps = advice.mbps;
    if (advice.limit == "max_egress_mbps" && cluster.max_egress_mbps < advice.value) {
      cluster.max_egress_mbps = advice.value;
    }
  }
  return *Graph::Create(clusters, graph.links());
}

// What one cluster may feed and what it may send bind together.
TEST(PlanTest, AdviceForAClusterWithTwoLimitsNamesWhatSuffices) {
  const auto star = [](int max_fanout, double max_egress_mbps) {
    std::vector<Cluster> clusters{
        {.name = "s", .max_fanout = max_fanout, .max_egress_mbps = max_egress_mbps}};
    std::vector<Link> links;
    for (const char* name : {"a", "b", "c", "d", "e"}) {
      clusters.push_back({.name = name});
      links.push_back({.from = "s", .to = name, .usd_per_gb = 0.01});
    }
    return *Graph::Create(clusters, links);
  };
  struct Case {
    int max_fanout;
    double mbps;
    const char* advice;
  };
  const Stream stream{.name = "x", .source = "s", .rate_mbps = 33};  // 66 Mbit/s for each child
  for (const Case& what :
       {Case{2, 200, "with max_fanout 5 and max_egress_mbps 330 of 's'"},
        Case{2, 340, "with max_fanout 5 of 's'"}, Case{5, 200, "with max_egress_mbps 330 of 's'"},
        Case{3, 200, "with max_fanout 5 and max_egress_mbps 330 of 's'"},
        Case{7, 0.5, "with max_egress_mbps 330 of 's'"}}) {
    const Graph graph = star(what.max_fanout, what.mbps);
    const Status refused = MakePlan(graph, stream, {}).status();
    EXPECT_THAT(refused.message(), HasSubstr(what.advice));
    for (const Advice& advice : AdviceIn(std::string(refused.message()))) {
      EXPECT_TRUE(MakePlan(Advised(graph, advice), stream, {}).ok()) << refused.message();
    }
  }
}

TEST(PlanTest, EveryValueForASingleClusterThatARefusalNamesSuffices) {
  int refused = 0, tried = 0, each = 0;
  std::map<std::string, int> named;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Graph free = RandomGraph(9, seed, 0.35);
    std::vector<Cluster> clusters = free.clusters();
    Rng rng(seed);
    for (Cluster& cluster : clusters) {
      if (seed % 3 == 0 && rng.Chance(0.6)) {
        cluster.max_fanout = 1;
        if (rng.Chance(0.5)) cluster.max_egress_mbps = static_cast<double>(rng.Between(30, 70));
      }
      if (seed % 3 == 1 && rng.Chance(0.4)) cluster.max_depth = 1;
      if (seed % 3 == 2) cluster.max_egress_mbps = static_cast<double>(rng.Between(1, 70));
    }
    const Graph graph = *Graph::Create(clusters, free.links());
    const Stream stream{.name = "s", .source = "c00", .rate_mbps = 16.3};
    PlanOptions options;
    options.work_max = 3'000'000;
    options.limits.max_depth = 3;
    const Result<Plan> plan = MakePlan(graph, stream, options);
    if (plan.ok()) continue;
    ++refused;
    const std::string message(plan.status().message());
    for (const Advice& advice : AdviceIn(message)) {
      ++tried;
      ++named[advice.limit];
      each += advice.cluster.empty();
      const Result<Plan> again = MakePlan(Advised(graph, advice), stream, options);
      EXPECT_TRUE(again.ok()) << "seed " << seed << ": " << message
                              << "\nthen: " << again.status().message();
    }
  }
  std::printf("%d refused, %d values tried, %d for all\n", refused, tried, each);
  EXPECT_GE(tried, 20);
  EXPECT_GE(each, 2);
  for (const char* limit : {"max_depth", "max_fanout", "max_egress_mbps"}) {
    EXPECT_GE(named[limit], 2) << limit;
  }
}

}  // namespace
}  // namespace tailcast::copytree
