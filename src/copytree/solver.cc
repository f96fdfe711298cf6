#include "tailcast/copytree/solver.h"

#include <algorithm>

#include "tailcast/copytree/arborescence.h"
#include "tailcast/copytree/bound.h"
#include "tailcast/copytree/exhaustive.h"
#include "tailcast/copytree/layer_search.h"

namespace tailcast::copytree {
namespace {

constexpr int64_t kExhaustiveSteps = 400'000;
// Graphs with more nodes start from the unlimited search's tree when fan-out is limited: the exact
// transportation problem of every step from the star would use up the work.
constexpr int kStarNodesMax = 100;

bool FanoutLimited(const Problem& problem) {
  for (int limit : problem.fanout_max) {
    if (limit < problem.n - 1) return true;
  }
  return false;
}

bool AllRequired(const Problem& problem) {
  for (int v = 0; v < problem.n; ++v) {
    if (v != problem.root && !problem.required[v]) return false;
  }
  return true;
}

// Fewest hops first, then least weight: meets the depth limit if anything does.
Parents FewestHops(const Problem& problem) {
  Parents parents(problem.n, kNoParent);
  std::vector<int> level{problem.root};
  std::vector<char> seen(problem.n, 0);
  seen[problem.root] = 1;
  while (!level.empty()) {
    std::vector<int> next;
    for (int to = 0; to < problem.n; ++to) {
      if (seen[to]) continue;
      for (int from : level) {
        if (!problem.HasLink(from, to)) continue;
        if (parents[to] == kNoParent || problem.Weight(from, to) < problem.Weight(parents[to], to)) {
          parents[to] = from;
        }
      }
      if (parents[to] != kNoParent) next.push_back(to);
    }
    for (int v : next) seen[v] = 1;
    level = std::move(next);
  }
  PruneRelays(problem, &parents);
  return parents;
}

// Shortest paths by delay, each with the fewest hops among equals: meets the delay limit if
// anything does.
Parents LeastDelay(const Problem& problem) {
  const int n = problem.n;
  Parents parents(n, kNoParent);
  std::vector<int64_t> arrival(n, kNoDelayLimit);
  std::vector<char> done(n, 0);
  arrival[problem.root] = 0;
  for (;;) {
    int at = -1;
    for (int v = 0; v < n; ++v) {
      if (!done[v] && arrival[v] < kNoDelayLimit && (at < 0 || arrival[v] < arrival[at])) at = v;
    }
    if (at < 0) break;
    done[at] = 1;
    for (int to = 0; to < n; ++to) {
      if (done[to] || !problem.HasLink(at, to)) continue;
      if (arrival[at] + problem.Delay(at, to) < arrival[to]) {
        arrival[to] = arrival[at] + problem.Delay(at, to);
        parents[to] = at;
      }
    }
  }
  PruneRelays(problem, &parents);
  return parents;
}

}  // namespace

int64_t DefaultWork(int nodes) {
  const int64_t n = nodes;
  return n <= 60 ? 700'000 * n : 42'000'000 + 1'050'000 * (n - 60);
}

Parents LimitedPrim(const Problem& problem) {
  const int n = problem.n;
  Parents parents(n, kNoParent);
  std::vector<char> in(n, 0);
  std::vector<int> depth(n, 0), fanout(n, 0);
  std::vector<int64_t> arrival(n, 0);
  in[problem.root] = 1;
  for (;;) {
    int best_from = -1, best_to = -1;
    int64_t least = kUnserved;
    for (int from = 0; from < n; ++from) {
      if (!in[from] || depth[from] >= problem.depth_max || fanout[from] >= problem.fanout_max[from]) {
        continue;
      }
      for (int to = 0; to < n; ++to) {
        if (in[to] || !problem.required[to] || problem.Weight(from, to) >= least) continue;
        if (arrival[from] + problem.Delay(from, to) > problem.delay_max_us) continue;
        best_from = from;
        best_to = to;
        least = problem.Weight(from, to);
      }
    }
    if (best_to < 0) return parents;
    in[best_to] = 1;
    parents[best_to] = best_from;
    depth[best_to] = depth[best_from] + 1;
    arrival[best_to] = arrival[best_from] + problem.Delay(best_from, best_to);
    ++fanout[best_from];
  }
}

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
      // v's subtree, its height and its slowest member relative to v.
      std::vector<char> below(n, 0);
      std::vector<int> fanout(n, 0);
      for (int u = 0; u < n; ++u) {
        if ((*parents)[u] != kNoParent) ++fanout[(*parents)[u]];
      }
      int height = 0;
      int64_t slowest = 0;
      for (int u = 0; u < n; ++u) {
        if (depths[u] < depths[v]) continue;
        int at = u;
        while (at != v && at != kNoParent && depths[at] > depths[v]) at = (*parents)[at];
        if (at != v) continue;
        below[u] = 1;
        height = std::max(height, depths[u] - depths[v]);
        slowest = std::max(slowest, arrivals[u] - arrivals[v]);
      }
      int best = parent;
      int64_t earliest = arrivals[v];
      for (int u = 0; u < n; ++u) {
        if (u == parent || below[u] || depths[u] < 0) continue;
        if (problem.Weight(u, v) != problem.Weight(parent, v)) continue;
        if (depths[u] + 1 + height > problem.depth_max) continue;
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

int64_t BestBound(const Problem& problem, int64_t weight, int64_t work_max) {
  int64_t bound = ArborescenceBound(problem);
  bound = std::max(bound, DualAscentBound(problem, work_max / 2));
  if (FanoutLimited(problem) && bound < weight && weight < kUnserved) {
    bound = std::max(bound, LagrangianBound(problem, weight, bound, work_max));
  }
  return std::min(bound, weight);
}

SolveResult Solve(const Problem& problem, const std::vector<Parents>& starts, uint64_t seed,
                  int64_t work_max) {
  SolveResult result;
  const bool fanout_limited = FanoutLimited(problem);
  Parents cheapest = MinArborescence(problem);
  PruneRelays(problem, &cheapest);
  if (AllRequired(problem) && IsFeasible(problem, cheapest)) {
    result.parents = std::move(cheapest);
    result.bound = TotalWeight(problem, result.parents);
    result.proven = true;
  } else {
    result.bound =
        std::max(ArborescenceBound(problem), DualAscentBound(problem, work_max / 2));
    LayerSearch search(problem,
                       {.seed = seed, .work_max = work_max, .stop_at_weight = result.bound});
    for (const Parents& start : starts) search.StartFrom(start);
    if (fanout_limited && problem.n > kStarNodesMax) {
      Problem unlimited = problem;
      unlimited.fanout_max.assign(problem.n, problem.n);
      LayerSearch wide(unlimited, {.seed = seed, .work_max = work_max / 10});
      wide.StartFrom(cheapest);
      search.StartFrom(wide.best());
      if (search.best_weight() >= kUnserved) search.StartFrom(LimitedPrim(problem));
    } else {
      const auto start = [&](const Parents& parents) {
        if (search.best_weight() > result.bound) search.StartFrom(parents);
      };
      start(cheapest);
      start(FewestHops(problem));
      start(LimitedPrim(problem));
      if (problem.DelayLimited()) start(LeastDelay(problem));
      if (problem.n <= kStarNodesMax && search.best_weight() > result.bound) {
        search.StartFromStar();
      }
    }
    bool exhausted = false;
    Parents best = search.best();
    if (problem.n <= kExhaustiveNodesMax && search.best_weight() > result.bound) {
      const ExhaustiveResult all = SearchAllTrees(problem, search.best_weight(), kExhaustiveSteps);
      if (all.weight < search.best_weight()) best = all.parents;
      exhausted = all.complete;
    }
    if (!exhausted) {
      search.StartFrom(best);
      search.Improve();
      best = search.best();
    }
    result.parents = std::move(best);
    result.work = search.work();
    const int64_t weight = TotalWeight(problem, result.parents);
    if (exhausted) {
      result.proven = true;
      if (weight < kUnserved) result.bound = weight;
    } else {
      if (fanout_limited && result.bound < weight && weight < kUnserved) {
        result.bound = std::max(
            result.bound, LagrangianBound(problem, weight, result.bound, work_max));
      }
      result.bound = std::min(result.bound, weight);
      result.proven = result.bound == weight;
    }
  }
  PruneRelays(problem, &result.parents);
  result.feasible = IsFeasible(problem, result.parents);
  if (result.feasible) ShortenDelays(problem, &result.parents);
  result.weight = TotalWeight(problem, result.parents);
  return result;
}

}  // namespace tailcast::copytree
