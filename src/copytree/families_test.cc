// The optimiser against optima that an integer program proved (bench/copytree/families.py), on
// problems that nobody tuned to.
#include "tailcast/copytree/families_testing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tailcast/copytree/graph.h"
#include "tailcast/copytree/plan.h"
#include "tailcast/copytree/test_graphs.h"

namespace tailcast::copytree {
namespace {

// What families.py adds for each sick link and each link out of a sick cluster, USD per GB.
constexpr double kPenaltyUsd = 10;
// Below half of a price's last digit in the tables.
constexpr double kEqualUsd = 1e-7;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kEvery = 25;
#else
constexpr int kEvery = 10;
#endif

struct Stored {
  std::string family, status;
  double usd = 0, bound_usd = 0;  // penalties included
};

std::map<int, Stored> ReadStored() {
  std::map<int, Stored> rows;
  std::ifstream file(FAMILIES_FILE);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    int number;
    std::string checksum;
    Stored row;
    int64_t weight = 0, bound = 0;
    fields >> number >> checksum >> row.family >> row.status >> weight >> bound;
    row.usd = static_cast<double>(weight) / 1e9;
    row.bound_usd = static_cast<double>(bound) / 1e9;
    rows[number] = row;
  }
  return rows;
}

double Penalties(const Graph& graph, const Stream& stream, const Plan& plan) {
  double sum = 0;
  for (const Hop& hop : plan.hops) {
    if (graph.FindLink(hop.from, hop.to)->sick) sum += kPenaltyUsd;
    const bool sick = graph.cluster(*graph.Find(hop.from)).health == Health::kSick;
    if (sick && hop.from != stream.source) sum += kPenaltyUsd;
  }
  return sum;
}

TEST(FamiliesTest, QuickPlansAreNearTheProvenOptimaAndNothingIsRefusedWrongly) {
  const std::map<int, Stored> stored = ReadStored();
  ASSERT_GE(stored.size(), static_cast<size_t>(kInstances));
  if (kEvery > 10) std::printf("built with a sanitizer: 1 instance of %d\n", kEvery);
  int proven = 0, optimal = 0;
  double worst = 0, sum = 0;
  for (int number = 1; number < kInstances; number += kEvery) {
    const Instance instance = DrawInstance(number);
    const Stored& known = stored.at(number);
    ASSERT_EQ(instance.family, known.family);
    SCOPED_TRACE("instance " + std::to_string(number) + ", " + known.family);
    const Result<Graph> graph = Graph::Create(instance.clusters, instance.links);
    ASSERT_TRUE(graph.ok());
    const Result<Plan> plan = MakePlan(*graph, instance.stream, instance.options);
    if (!plan.ok()) {
      EXPECT_NE(known.status, "optimal") << plan.status().message();
      EXPECT_EQ(known.usd, 0) << plan.status().message();
      continue;
    }
    ExpectConsistent(*graph, instance.stream, instance.options, *plan);
    EXPECT_NE(known.status, "infeasible");
    const double penalties = Penalties(*graph, instance.stream, *plan);
    const double usd = plan->usd_per_gb + penalties;
    EXPECT_GE(usd, known.bound_usd - kEqualUsd) << "below what the exact solver proved";
    if (known.status != "optimal") continue;
    ++proven;
    EXPECT_EQ(std::floor(usd / kPenaltyUsd), std::floor(known.usd / kPenaltyUsd))
        << "sick links or clusters in use";
    const double best = std::fmod(known.usd, kPenaltyUsd);
    EXPECT_LE(plan->lower_bound_usd_per_gb, best + kEqualUsd) << "a bound above the optimum";
    const double gap = std::max(0.0, plan->usd_per_gb / best - 1);
    const bool equal = plan->usd_per_gb <= best + kEqualUsd;
    if (plan->optimal) {
      EXPECT_TRUE(equal) << "said to be optimal";
    }
    optimal += equal;
    worst = std::max(worst, gap);
    sum += gap;
  }
  std::printf("%d of %d optimal, mean %.4f %%, worst %.2f %%\n", optimal, proven,
              100 * sum / proven, 100 * worst);
  EXPECT_GE(proven, 400 / kEvery);
  EXPECT_GE(optimal, proven * 94 / 100);
  EXPECT_LE(sum / proven, 0.0015);
  EXPECT_LE(worst, 0.05);
}

TEST(FamiliesTest, NearlyAllThatNoTreeMeetsIsProvenAtOnce) {
  int infeasible = 0, proven = 0;
  for (const auto& [number, known] : ReadStored()) {
    if (known.status != "infeasible" || (kEvery > 10 && infeasible >= 12)) continue;
    ++infeasible;
    SCOPED_TRACE("instance " + std::to_string(number) + ", " + known.family);
    const Instance instance = DrawInstance(number);
    const Graph graph = *Graph::Create(instance.clusters, instance.links);
    const Result<Plan> plan = MakePlan(graph, instance.stream, instance.options);
    ASSERT_FALSE(plan.ok());
    const std::string message(plan.status().message());
    const bool said = message.find("was found within this effort") != std::string::npos;
    EXPECT_NE(said, message.find("no tree meets all limits") != std::string::npos) << message;
    proven += !said;
  }
  std::printf("%d of %d proven\n", proven, infeasible);
  EXPECT_GE(infeasible, 12);
  EXPECT_GE(proven, infeasible * 3 / 4);
}

// Found in the second set: the layers held a part below a relay that nobody fed, which weighed less
// than any tree; everything else was dropped for it and "no tree meets all limits" was said.
TEST(FamiliesTest, APartBelowARelayThatNobodyFedIsNoTree) {
  constexpr double kOptimumUsd = 0.73024;
  const Instance instance = DrawInstance(845);
  const Graph graph = *Graph::Create(instance.clusters, instance.links);
  const Result<Plan> plan = MakePlan(graph, instance.stream, instance.options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ExpectConsistent(graph, instance.stream, instance.options, *plan);
  EXPECT_LE(plan->usd_per_gb, 1.05 * kOptimumUsd);
  EXPECT_GE(plan->usd_per_gb, kOptimumUsd - kEqualUsd);
}

}  // namespace
}  // namespace tailcast::copytree
