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
constexpr int kDelayAttempts = 6;
// Prices on delay for starts under a delay limit, in 1e-9 USD per GB and microsecond.
constexpr int64_t kDelayPrices[] = {1, 10, 100, 1000};

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
        if (parents[to] == kNoParent ||
            problem.Weight(from, to) < problem.Weight(parents[to], to)) {
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

// Among equally cheap trees, one whose slowest node is fast: a binary search for the tightest delay
// limit under which the search still finds a tree of this weight.
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
  for (int attempt = 0; attempt < kDelayAttempts && low + 1000 < high; ++attempt) {
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
    LayerSearch search(
        faster, {.seed = seed, .work_max = work_max / kDelayAttempts, .stop_at_weight = weight});
    search.StartFrom(*parents);
    for (int64_t price : kDelayPrices) {
      if (search.best_weight() > weight) search.StartFrom(LimitedPrim(faster, price));
    }
    search.Improve();
    if (search.best_weight() <= weight) {
      *parents = search.best();
      PruneRelays(problem, parents);
      ShortenDelays(problem, parents);
      high = worst_of(*parents);
    } else {
      low = faster.delay_max_us;
    }
  }
}

}  // namespace

int64_t DefaultWork(int nodes) {
  const int64_t n = nodes;
  return n <= 60 ? 400'000 * n : 24'000'000 + 700'000 * (n - 60);
}

Parents LimitedPrim(const Problem& problem, int64_t delay_price) {
  const int n = problem.n;
  Parents parents(n, kNoParent);
  std::vector<char> in(n, 0);
  std::vector<int> depth(n, 0), fanout(n, 0);
  std::vector<int64_t> arrival(n, 0);
  // For each node outside the best node inside to hang it on, what that scores and when the stream
  // would arrive.
  std::vector<int> best(n, kNoParent);
  std::vector<int64_t> score(n, kUnserved);
  const auto offer = [&](int from, int to) {
    if (in[to] || !problem.required[to] || !problem.HasLink(from, to)) return;
    const int64_t at = arrival[from] + problem.Delay(from, to);
    const int64_t value = problem.Weight(from, to) + delay_price * at;
    if (at > problem.delay_max_us || value > score[to]) return;
    if (value == score[to] && at >= arrival[to]) return;
    best[to] = from;
    score[to] = value;
    arrival[to] = at;
  };
  const auto open = [&](int v) {
    return in[v] && depth[v] < problem.depth_max && fanout[v] < problem.fanout_max[v];
  };
  in[problem.root] = 1;
  if (open(problem.root)) {
    for (int to = 0; to < n; ++to) offer(problem.root, to);
  }
  for (;;) {
    int to = -1;
    for (int v = 0; v < n; ++v) {
      if (in[v] || best[v] == kNoParent) continue;
      if (to < 0 || score[v] < score[to] || (score[v] == score[to] && arrival[v] < arrival[to])) {
        to = v;
      }
    }
    if (to < 0) return parents;
    const int from = best[to];
    in[to] = 1;
    parents[to] = from;
    depth[to] = depth[from] + 1;
    ++fanout[from];
    if (!open(from)) {
      // Full: those who counted on it look again.
      for (int v = 0; v < n; ++v) {
        if (in[v] || best[v] != from) continue;
        best[v] = kNoParent;
        score[v] = kUnserved;
        for (int u = 0; u < n; ++u) {
          if (open(u)) offer(u, v);
        }
      }
    }
    if (open(to)) {
      for (int v = 0; v < n; ++v) offer(to, v);
    }
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
  bound = std::max(bound, DualAscentBound(problem, 2 * work_max));
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
    result.bound = std::max(ArborescenceBound(problem), DualAscentBound(problem, 2 * work_max));
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
      if (problem.DelayLimited()) {
        for (int64_t price : kDelayPrices) start(LimitedPrim(problem, price));
        start(LeastDelay(problem));
      }
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
        result.bound =
            std::max(result.bound, LagrangianBound(problem, weight, result.bound, work_max));
      }
      result.bound = std::min(result.bound, weight);
      result.proven = result.bound == weight;
    }
  }
  PruneRelays(problem, &result.parents);
  result.feasible = IsFeasible(problem, result.parents);
  if (result.feasible) {
    ShortenDelays(problem, &result.parents);
    LowerWorstDelay(problem, seed, work_max / 4, &result.parents);
  }
  result.weight = TotalWeight(problem, result.parents);
  return result;
}

}  // namespace tailcast::copytree
