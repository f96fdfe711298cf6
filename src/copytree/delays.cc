#include "tailcast/copytree/delays.h"

#include <algorithm>

#include "tailcast/copytree/arborescence.h"
#include "tailcast/copytree/exhaustive.h"
#include "tailcast/copytree/layer_search.h"
#include "tailcast/copytree/starts.h"

namespace tailcast::copytree {
namespace {

constexpr int kAttempts = 6;
constexpr int64_t kExhaustiveSteps = 400'000;
// Prices on delay for starts under a delay limit, in 1e-9 USD per GB and microsecond.
constexpr int64_t kDelayPrices[] = {1, 10, 100, 1000};

}  // namespace

void ShortenDelays(const Problem& problem, Parents* parents) {
  const int n = problem.n;
  for (bool changed = true; changed;) {
    changed = false;
    for (int v = 0; v < n; ++v) {
      const int parent = (*parents)[v];
      if (v == problem.root || parent == kNoParent) continue;
      const std::vector<int> depths = Depths(problem, *parents);
      const std::vector<int64_t> arrivals = Arrivals(problem, *parents);
      if (depths[v] < 0) continue;
      // v's subtree, how far it may sink and its slowest member relative to v.
      std::vector<char> below(n, 0);
      std::vector<int> fanout(n, 0);
      for (int u = 0; u < n; ++u) {
        if ((*parents)[u] != kNoParent) ++fanout[(*parents)[u]];
      }
      // By how many hops it may sink.
      int sink = problem.depth_max;
      int64_t slowest = 0;
      for (int u = 0; u < n; ++u) {
        if (depths[u] < depths[v]) continue;
        int at = u;
        while (at != v && at != kNoParent && depths[at] > depths[v]) at = (*parents)[at];
        if (at != v) continue;
        below[u] = 1;
        sink = std::min(sink, problem.DepthMax(u) - depths[u]);
        slowest = std::max(slowest, arrivals[u] - arrivals[v]);
      }
      int best = parent;
      int64_t earliest = arrivals[v];
      for (int u = 0; u < n; ++u) {
        if (u == parent || below[u] || depths[u] < 0) continue;
        if (problem.Weight(u, v) != problem.Weight(parent, v)) continue;
        if (depths[u] + 1 - depths[v] > sink) continue;
        if (fanout[u] >= problem.fanout_max[u]) continue;
        const int64_t arrival = arrivals[u] + problem.Delay(u, v);
        if (arrival + slowest > problem.delay_max_us) continue;
        if (arrival < earliest) {
          earliest = arrival;
          best = u;
        }
      }
      if (best != parent) {
        (*parents)[v] = best;
        changed = true;
      }
    }
  }
}

void LowerWorstDelay(const Problem& problem, uint64_t seed, int64_t work_max, Parents* parents) {
  const int64_t weight = TotalWeight(problem, *parents);
  const auto worst_of = [&](const Parents& tree) {
    const std::vector<int64_t> arrivals = Arrivals(problem, tree);
    return *std::max_element(arrivals.begin(), arrivals.end());
  };
  const std::vector<int64_t> fastest = Arrivals(problem, LeastDelay(problem));
  int64_t low = 0;  // nothing below this is possible
  for (int v = 0; v < problem.n; ++v) {
    if (problem.required[v]) low = std::max(low, fastest[v]);
  }
  int64_t high = worst_of(*parents);
  for (int attempt = 0; attempt < kAttempts && low + 1000 < high; ++attempt) {
    Problem faster = problem;
    faster.delay_max_us = low + (high - low) / 2;
    if (problem.n <= kExhaustiveNodesMax) {
      const ExhaustiveResult all = SearchAllTrees(faster, weight + 1, kExhaustiveSteps);
      if (all.weight <= weight) {
        *parents = all.parents;
        ShortenDelays(problem, parents);
        high = worst_of(*parents);
      } else {
        low = faster.delay_max_us;
      }
      continue;
    }
    LayerSearch search(faster,
                       {.seed = seed, .work_max = work_max / kAttempts, .stop_at_weight = weight});
    search.StartFrom(*parents);
    for (int64_t price : kDelayPrices) {
      if (search.best_weight() > weight) search.StartFrom(LimitedPrim(faster, price));
    }
    search.Improve();
    if (search.best_weight() <= weight && IsFeasible(problem, search.best())) {
      *parents = search.best();
      PruneRelays(problem, parents);
      ShortenDelays(problem, parents);
      high = worst_of(*parents);
    } else {
      low = faster.delay_max_us;
    }
  }
}

}  // namespace tailcast::copytree
