#include "tailcast/copytree/full_trees.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

#include "tailcast/base/rng.h"
#include "tailcast/copytree/bound.h"
#include "tailcast/copytree/problem.h"
#include "tailcast/copytree/test_graphs.h"

namespace tailcast::copytree {
namespace {

constexpr int64_t kWork = 10'000'000;

// Full, or with room for one more, over some of the links; with delays and depths of single nodes.
Problem Draw(Rng& rng) {
  constexpr int kSizes[][3] = {{7, 2, 2}, {4, 3, 1}, {7, 6, 1}, {5, 1, 4}, {6, 5, 1}, {4, 1, 3}};
  const auto& [n, depth, fanout] =
      rng.Chance(0.6) ? kSizes[0] : kSizes[1 + rng.Below(std::size(kSizes) - 1)];
  Problem p = EmptyProblem(n, depth);
  p.root = static_cast<int>(rng.Below(static_cast<uint64_t>(n)));
  p.fanout_max.assign(n, fanout);
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      if (from != to && rng.Chance(0.75)) {
        SetLink(&p, from, to, rng.Between(1, 30), rng.Between(1, 9) * 1000);
      }
    }
  }
  if (rng.Chance(0.3)) p.delay_max_us = rng.Between(6, 30) * 1000;
  if (rng.Chance(0.3)) {
    p.node_depth_max.assign(n, n);
    p.node_depth_max[rng.Below(static_cast<uint64_t>(n))] = 1;
  }
  return p;
}

TEST(FullTreesTest, FindTheOptimumOrThatThereIsNone) {
  Rng rng(37);
  int looked = 0, feasible = 0, sooner = 0;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const Problem p = Draw(rng);
    if (!NearlyFull(p)) continue;
    ++looked;
    const int64_t brute = BruteForceWeight(p);
    const FullTreesResult found = SearchFullTrees(p, {}, kUnserved, 0, kWork);
    ASSERT_TRUE(found.complete);
    ASSERT_EQ(found.weight, brute);
    if (brute == INT64_MAX) continue;
    ++feasible;
    ASSERT_TRUE(IsFeasible(p, found.parents));
    ASSERT_EQ(TotalWeight(p, found.parents), brute);
    // With what an ascent left, too.
    Bound bound(p, 1'000'000);
    bound.Raise(brute + brute / 10, 1'000'000);
    const FullTreesResult cut = SearchFullTrees(p, bound.Rests(), brute + 1, 0, kWork);
    EXPECT_TRUE(cut.complete);
    ASSERT_EQ(cut.weight, brute);
    sooner += cut.work < found.work;
    // None is lighter, and one that is light enough ends the search.
    const FullTreesResult lighter = SearchFullTrees(p, {}, brute, 0, kWork);
    EXPECT_TRUE(lighter.complete);
    EXPECT_EQ(lighter.weight, INT64_MAX);
    const FullTreesResult any = SearchFullTrees(p, {}, kUnserved, kUnserved - 1, kWork);
    EXPECT_FALSE(any.complete);
    EXPECT_TRUE(IsFeasible(p, any.parents));
  }
  std::printf("%d looked at, %d with a tree\n", looked, feasible);
  EXPECT_GT(looked, 300);
  EXPECT_GT(sooner, feasible / 2);
  EXPECT_GT(feasible, 100);
  EXPECT_LT(feasible, looked);
}

TEST(FullTreesTest, EndAfterTheirSteps) {
  Rng rng(41);
  Problem p = EmptyProblem(31, 4);
  p.fanout_max.assign(p.n, 2);
  for (int v = 0; v < p.n; ++v) {
    for (int link = 0; link < 6; ++link) {
      const int to = static_cast<int>(rng.Below(static_cast<uint64_t>(p.n)));
      if (to != v) SetLink(&p, v, to, rng.Between(1'000, 9'000));
    }
  }
  ASSERT_TRUE(NearlyFull(p));
  constexpr int64_t kFew = 100'000;
  const FullTreesResult cut = SearchFullTrees(p, {}, kUnserved, 0, kFew);
  EXPECT_FALSE(cut.complete);
  EXPECT_GE(cut.work, kFew);
  EXPECT_LE(cut.work, kFew + kFew / 5);
}

TEST(FullTreesTest, AreNotLookedAtWhereThereIsRoomOrChoice) {
  Problem p = EmptyProblem(7, 2);
  p.fanout_max.assign(7, 2);
  for (int from = 0; from < 7; ++from) {
    for (int to = 0; to < 7; ++to) {
      if (from != to) SetLink(&p, from, to, 1);
    }
  }
  EXPECT_TRUE(NearlyFull(p));
  Problem deeper = p;
  deeper.depth_max = 3;
  EXPECT_FALSE(NearlyFull(deeper));
  Problem shallower = p;
  shallower.depth_max = 1;
  EXPECT_FALSE(NearlyFull(shallower)) << "six don't fit below one that feeds two";
  Problem relay = p;
  relay.required[3] = 0;
  EXPECT_FALSE(NearlyFull(relay));
  Problem uneven = p;
  uneven.fanout_max[3] = 1;
  EXPECT_FALSE(NearlyFull(uneven));
  Problem dense = EmptyProblem(15, 3);
  dense.fanout_max.assign(15, 2);
  for (int from = 0; from < 15; ++from) {
    for (int to = 0; to < 15; ++to) {
      if (from != to) SetLink(&dense, from, to, 1);
    }
  }
  EXPECT_FALSE(NearlyFull(dense));
}

}  // namespace
}  // namespace tailcast::copytree
