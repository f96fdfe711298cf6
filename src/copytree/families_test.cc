// The optimiser against optima that an integer program proved (bench/copytree/families.py), on
// a tenth of set 0, of which some problems were tuned to, and on some of sets 2 and 3, which nobody
// looked at before the optimiser was finished.
#include "tailcast/copytree/families_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

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

// The search, three times as long; the values that are named, and what the last try of one spends
// beyond, in efforts; and what making the graphs takes before each search.
constexpr double kRefusalEfforts = 3 + 1 + 1 + 0.2;

struct Stored {
  std::string crc, family, status;
  double usd = 0, bound_usd = 0;  // penalties included
};

std::map<int, Stored> ReadStored() {
  std::map<int, Stored> rows;
  std::ifstream file(FAMILIES_FILE);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    int number;
    Stored row;
    int64_t weight = 0, bound = 0;
    fields >> number >> row.crc >> row.family >> row.status >> weight >> bound;
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

// That of zlib, which families.py uses.
std::string Crc32(const std::string& text) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xedb88320 & (0 - (crc & 1)));
  }
  char hex[16];
  std::snprintf(hex, sizeof hex, "%08x", ~crc);
  return hex;
}

struct Tally {
  int proven = 0, optimal = 0;
  double worst = 0, sum = 0, worst_outage = 0;

  void Print() const {
    std::printf("%d of %d optimal, mean %.4f %%, worst %.2f %%\n", optimal, proven,
                100 * sum / proven, 100 * worst);
  }
};

void Compare(int number, Effort effort, const Stored& known, Tally* tally) {
  Instance instance = DrawInstance(number);
  SCOPED_TRACE("instance " + std::to_string(number) + ", " + known.family);
  ASSERT_EQ(instance.family, known.family);
  ASSERT_EQ(Crc32(InstanceJson(instance)), known.crc) << "not the problem that was solved exactly";
  const Result<Graph> graph = Graph::Create(instance.clusters, instance.links);
  ASSERT_TRUE(graph.ok());
  instance.options.work_max = WorkOf(effort, graph->size());
  const Result<Plan> plan = MakePlan(*graph, instance.stream, instance.options);
  if (!plan.ok()) {
    EXPECT_NE(known.status, "optimal") << plan.status().message();
    EXPECT_EQ(known.usd, 0) << plan.status().message();
    return;
  }
  ExpectConsistent(*graph, instance.stream, instance.options, *plan);
  EXPECT_NE(known.status, "infeasible");
  const double penalties = Penalties(*graph, instance.stream, *plan);
  const double usd = plan->usd_per_gb + penalties;
  EXPECT_GE(usd, known.bound_usd - kEqualUsd) << "below what the exact solver proved";
  if (known.status != "optimal") return;
  ++tally->proven;
  EXPECT_EQ(std::floor(usd / kPenaltyUsd), std::floor(known.usd / kPenaltyUsd))
      << "sick links or clusters in use";
  const double best = std::fmod(known.usd, kPenaltyUsd);
  EXPECT_LE(plan->lower_bound_usd_per_gb, best + kEqualUsd) << "a bound above the optimum";
  const double gap = std::max(0.0, plan->usd_per_gb / best - 1);
  const bool equal = plan->usd_per_gb <= best + kEqualUsd;
  if (plan->optimal) {
    EXPECT_TRUE(equal) << "said to be optimal";
  }
  tally->optimal += equal;
  tally->worst = std::max(tally->worst, gap);
  if (known.family == "outage") tally->worst_outage = std::max(tally->worst_outage, gap);
  tally->sum += gap;
}

// Every so many of those of sets 2 and 3 that are stored, from this one on: the exact solver did
// not get through all.
void CompareUnseen(Effort effort, int every, int first, const std::map<int, Stored>& stored,
                   Tally* tally) {
  int place = 0;
  for (auto row = stored.lower_bound(2 * kInstances); row != stored.end(); ++row, ++place) {
    if (place % every == first) Compare(row->first, effort, row->second, tally);
  }
}

TEST(FamiliesTest, QuickPlansAreNearTheProvenOptimaAndNothingIsRefusedWrongly) {
  const std::map<int, Stored> stored = ReadStored();
  ASSERT_GE(stored.size(), static_cast<size_t>(kInstances));
  if (kEvery > 10) std::printf("built with a sanitizer: 1 instance of %d\n", kEvery);
  Tally tally;
  for (int number = 1; number < kInstances; number += kEvery) {
    Compare(number, Effort::kQuick, stored.at(number), &tally);
  }
  CompareUnseen(Effort::kQuick, 2 * kEvery, 3, stored, &tally);
  tally.Print();
  EXPECT_GE(tally.proven, 550 / kEvery);
  EXPECT_GE(tally.optimal, tally.proven * 94 / 100);
  EXPECT_LE(tally.sum / tally.proven, 0.0015);
  EXPECT_LE(tally.worst, 0.05);
  EXPECT_LE(tally.worst_outage, 0.02);
}

TEST(FamiliesTest, NormalPlansOfProblemsThatNobodyLookedAtAreOptimal) {
  Tally tally;
  CompareUnseen(Effort::kNormal, 4 * kEvery, 5, ReadStored(), &tally);
  tally.Print();
  EXPECT_GE(tally.proven, 80 / kEvery);
  EXPECT_GE(tally.optimal, tally.proven * 97 / 100);
  EXPECT_LE(tally.sum / tally.proven, 0.0005);
  EXPECT_LE(tally.worst, 0.02);
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

// Steps of the refusal, as a part of the effort.
double RefusalSteps(const Graph& graph, const Stream& stream, PlanOptions options, Effort effort) {
  int64_t work = 0;
  options.work_max = WorkOf(effort, graph.size());
  const Result<Plan> plan = MakePlan(graph, stream, options, &work);
  EXPECT_FALSE(plan.ok());
  EXPECT_GT(work, 0) << plan.status();
  const double steps = static_cast<double>(work) / static_cast<double>(options.work_max);
  EXPECT_LE(steps, kRefusalEfforts) << plan.status();
  return steps;
}

// With quick effort all; more effort takes what it is given.
TEST(FamiliesTest, TheEffortBoundsTheStepsOfARefusal) {
  const std::pair<Effort, int> kMost[] = {
      {Effort::kQuick, 1000}, {Effort::kNormal, 4}, {Effort::kThorough, kEvery > 10 ? 0 : 1}};
  for (const auto& [effort, most] : kMost) {
    int refused = 0;
    double steps = 0;
    for (const auto& [number, known] : ReadStored()) {
      if (known.status != "infeasible" || refused >= most) continue;
      ++refused;
      SCOPED_TRACE("instance " + std::to_string(number) + ", " + known.family);
      const Instance instance = DrawInstance(number);
      const Graph graph = *Graph::Create(instance.clusters, instance.links);
      steps = std::max(steps, RefusalSteps(graph, instance.stream, instance.options, effort));
    }
    std::printf("%d refused, %.2f efforts at most\n", refused, steps);
  }
}

// Nearly full trees within a delay, and limits of single clusters: no proof, and many tries that
// each find nothing.
TEST(FamiliesTest, TheEffortBoundsTheStepsOfARefusalWithoutProof) {
  double steps = 0;
  for (uint64_t seed = 1; seed <= (kEvery > 10 ? 3 : 9); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph drawn = RandomGraph(seed % 3 == 2 ? 160 : 60, seed, 0.3);
    std::vector<Cluster> clusters = drawn.clusters();
    for (size_t i = 0; i < clusters.size() && seed % 3 != 1; ++i) {
      if (i % 3 == 1) clusters[i].max_fanout = 1;
      if (i % 3 == 2) clusters[i].max_egress_mbps = 90;
      if (i % 5 == 1) clusters[i].max_depth = 4;
    }
    const Graph graph = *Graph::Create(clusters, drawn.links());
    const Stream stream{.name = "s", .source = "c00", .rate_mbps = 20};
    PlanOptions options;
    options.limits = {.max_depth = 7, .max_fanout = 2};
    if (seed % 3 != 2) options.limits = {.max_depth = 6, .max_fanout = 2, .max_delay_ms = 160};
    steps = std::max(steps, RefusalSteps(graph, stream, options, Effort::kQuick));
  }
  std::printf("%.2f efforts at most\n", steps);
  EXPECT_GE(steps, 2) << "they try nothing";
}

// Of 31 clusters with five links each only full trees fit: annealing ended 9.5 % above the optimum,
// or found no tree. The exact solver left the other two open.
TEST(FamiliesTest, FullTreesOverFewLinksAreFoundQuicklyAndProvenWithNormalEffort) {
  struct Known {
    int number;
    double usd;
  };
  for (const Known& known : {Known{847, 1.09886}, Known{345, 1.255188}, Known{1244, 1.182999}}) {
    SCOPED_TRACE("instance " + std::to_string(known.number));
    Instance instance = DrawInstance(known.number);
    const Graph graph = *Graph::Create(instance.clusters, instance.links);
    for (const uint64_t seed : {1, 2, 3}) {
      instance.options.seed = seed;
      const Result<Plan> quick = MakePlan(graph, instance.stream, instance.options);
      ASSERT_TRUE(quick.ok()) << quick.status();
      EXPECT_LE(quick->usd_per_gb, 1.05 * known.usd) << "seed " << seed;
    }
    instance.options.work_max = WorkOf(Effort::kNormal, graph.size());
    const Result<Plan> normal = MakePlan(graph, instance.stream, instance.options);
    ASSERT_TRUE(normal.ok()) << normal.status();
    ExpectConsistent(graph, instance.stream, instance.options, *normal);
    EXPECT_NEAR(normal->usd_per_gb, known.usd, kEqualUsd);
    EXPECT_TRUE(normal->optimal);
  }
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
