#include "tailcast/copytree/facility_bound.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/copytree/problem.h"
#include "tailcast/copytree/solver.h"
#include "tailcast/copytree/test_graphs.h"

namespace tailcast::copytree {
namespace {

constexpr int64_t kWork = 1'000'000;

// Depth two, with relays and limits of every kind.
Problem Draw(Rng& rng) {
  const int n = static_cast<int>(rng.Between(4, 6));
  Problem p = EmptyProblem(n, 2);
  p.root = static_cast<int>(rng.Below(static_cast<uint64_t>(n)));
  p.node_depth_max.assign(n, n);
  for (int v = 0; v < n; ++v) {
    p.required[v] = rng.Chance(0.8);
    if (rng.Chance(0.3)) p.fanout_max[v] = static_cast<int>(rng.Between(0, 2));
    if (rng.Chance(0.2)) p.node_depth_max[v] = static_cast<int>(rng.Between(1, 2));
    for (int to = 0; to < n; ++to) {
      if (to != v && rng.Chance(0.75)) {
        SetLink(&p, v, to, rng.Between(10, 90), rng.Between(1, 9) * 1000);
      }
    }
  }
  if (rng.Chance(0.3)) p.delay_max_us = rng.Between(8, 16) * 1000;
  return p;
}

TEST(FacilityBoundTest, NeitherItNorThatOfALinkExceedsTheOptimum) {
  Rng rng(29);
  int feasible = 0, tight = 0;
  for (int round = 0; round < 600; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const Problem p = Draw(rng);
    const int64_t brute = BruteForceWeight(p);
    if (brute == INT64_MAX) continue;
    ++feasible;
    const FacilityBound bound = BoundFacilities(p, brute + brute / 10, kWork);
    ASSERT_LE(bound.value, brute);
    tight += bound.value >= brute * 95 / 100;
    for (int from = 0; from < p.n; ++from) {
      for (int to = 0; to < p.n; ++to) {
        if (to == p.root || !p.HasLink(from, to)) continue;
        // Whoever takes the link has no other one into `to`, and `to` is in the tree.
        Problem with = p;
        with.required[to] = 1;
        for (int other = 0; other < p.n; ++other) {
          if (other != from) SetLink(&with, other, to, kUnserved);
        }
        ASSERT_LE(bound.link_bounds[static_cast<size_t>(from) * p.n + to], BruteForceWeight(with))
            << from << " -> " << to;
      }
    }
  }
  std::printf("%d of %d within 5 %%\n", tight, feasible);
  EXPECT_GT(feasible, 250);
  EXPECT_GT(tight, feasible * 3 / 4);
}

// All links out of the root, and all others.
Problem TwoPrices(int64_t out_of_root, int64_t others) {
  Problem p = EmptyProblem(6, 2);
  for (int from = 0; from < p.n; ++from) {
    for (int to = 1; to < p.n; ++to) {
      if (from != to) SetLink(&p, from, to, from == 0 ? out_of_root : others);
    }
  }
  return p;
}

TEST(FacilityBoundTest, KnowsTheFanoutOfTheRootAndOfWhatItFeeds) {
  Problem cheap_root = TwoPrices(1'000, 10'000);
  EXPECT_LE(BoundFacilities(cheap_root, 5'000, kWork).value, 5'000);
  cheap_root.fanout_max[0] = 1;
  EXPECT_GE(BoundFacilities(cheap_root, 41'000, kWork).value, 40'500);
  Problem dear_root = TwoPrices(10'000, 1'000);
  EXPECT_LE(BoundFacilities(dear_root, 14'000, kWork).value, 14'000);
  for (int v = 1; v < dear_root.n; ++v) dear_root.fanout_max[v] = 1;
  // Two and a half that feed one each, if they could be divided.
  EXPECT_GE(BoundFacilities(dear_root, 32'000, kWork).value, 27'000);
}

// Regions of a few nodes each, where dual ascent leaves 0.9 %.
TEST(FacilityBoundTest, IsNearTheTreeAmongManyNodes) {
  constexpr int kNodes = 200, kRegions = 60;
  Rng rng(31);
  Problem p = EmptyProblem(kNodes, 2);
  std::vector<int64_t> between(kRegions * kRegions);
  for (int64_t& price : between) price = rng.Between(20'000, 90'000);
  for (int from = 0; from < kNodes; ++from) {
    for (int to = 0; to < kNodes; ++to) {
      const int64_t across = between[from % kRegions * kRegions + to % kRegions];
      const int64_t base = from % kRegions == to % kRegions ? 10'000 : across;
      if (from != to) SetLink(&p, from, to, base * rng.Between(800, 1200));
    }
  }
  const SolveResult solved = Solve(p, {}, {.work_max = 300'000'000});
  ASSERT_TRUE(solved.feasible);
  std::printf("%.3f %% above the bound\n",
              100.0 * static_cast<double>(solved.weight - solved.bound) / solved.bound);
  EXPECT_LE(solved.weight - solved.bound, solved.bound / 500);
  const FacilityBound bound = BoundFacilities(p, solved.weight, 50'000'000);
  EXPECT_LE(bound.value, solved.weight);
  EXPECT_LE(bound.work, 51'000'000);
  int64_t likely = 0;
  for (const int64_t link : bound.link_bounds) likely += link <= solved.weight;
  EXPECT_LE(likely, kNodes * 10) << "leaves too many links to look at";
}

}  // namespace
}  // namespace tailcast::copytree
