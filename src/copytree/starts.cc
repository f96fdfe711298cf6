#include "tailcast/copytree/starts.h"

#include <algorithm>
#include <utility>

#include "tailcast/copytree/arborescence.h"

namespace tailcast::copytree {

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

std::vector<int64_t> LeastDelays(const Problem& problem) {
  std::vector<int64_t> least(problem.n, kNoDelayLimit);
  least[problem.root] = 0;
  bool changed = true;
  for (int depth = 1; depth <= problem.depth_max && changed; ++depth) {
    std::vector<int64_t> next = least;
    for (int from = 0; from < problem.n; ++from) {
      if (least[from] >= kNoDelayLimit || problem.fanout_max[from] == 0) continue;
      for (int to = 0; to < problem.n; ++to) {
        if (!problem.HasLink(from, to) || depth > problem.DepthMax(to)) continue;
        next[to] = std::min(next[to], least[from] + problem.Delay(from, to));
      }
    }
    changed = next != least;
    least = std::move(next);
  }
  return least;
}

Parents LimitedPrim(const Problem& problem, int64_t delay_price, int64_t* work) {
  const int n = problem.n;
  Parents parents(n, kNoParent);
  std::vector<char> in(n, 0);
  std::vector<int> depth(n, 0), fanout(n, 0);
  std::vector<int64_t> arrival(n, 0);
  // For each node outside the best node inside to hang it on, what that scores and when the stream
  // would arrive.
  std::vector<int> best(n, kNoParent);
  std::vector<int64_t> score(n, kUnserved);
  int64_t looks = 0;
  const auto offer = [&](int from, int to) {
    if (in[to] || !problem.required[to] || !problem.HasLink(from, to)) return;
    if (depth[from] >= problem.DepthMax(to)) return;
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
    looks += 2 * n;
    if (to < 0) {
      if (work != nullptr) *work += looks;
      return parents;
    }
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
        looks += 2 * n;
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

}  // namespace tailcast::copytree
