#include "tailcast/copytree/state_graph.h"

#include <algorithm>

namespace tailcast::copytree {
namespace {

// More classes of arrival times than this hardly raise a bound.
constexpr int64_t kClassesMax = 32;
// What an arrival time costs in elementary steps, sorted among others; and a link of the graph.
constexpr int64_t kTimeWork = 20, kLinkWork = 4;

// The least of the sorted times and others spread evenly, `most` in all.
void Thin(std::vector<int64_t>* times, size_t most) {
  std::sort(times->begin(), times->end());
  times->erase(std::unique(times->begin(), times->end()), times->end());
  if (times->size() <= most) return;
  std::vector<int64_t> kept;
  for (size_t i = 0; i < most; ++i) kept.push_back((*times)[i * times->size() / most]);
  *times = std::move(kept);
}

// For each node the times by which its states are told apart, ascending; empty = out of reach.
std::vector<std::vector<int64_t>> ArrivalTimes(const Problem& problem, size_t classes,
                                               int64_t* work) {
  const int n = problem.n;
  std::vector<std::vector<int64_t>> all(n), last(n);
  last[problem.root] = all[problem.root] = {0};
  for (int h = 1; h <= problem.depth_max; ++h) {
    std::vector<std::vector<int64_t>> now(n);
    bool any = false;
    for (int to = 0; to < n; ++to) {
      if (to == problem.root || h > problem.DepthMax(to)) continue;
      for (int from = 0; from < n; ++from) {
        if (from == to || !problem.HasLink(from, to)) continue;
        for (int64_t at : last[from]) {
          const int64_t then = at + problem.Delay(from, to);
          if (then <= problem.delay_max_us) now[to].push_back(then);
        }
      }
      any |= !now[to].empty();
      *work += n + kTimeWork * static_cast<int64_t>(now[to].size());
      Thin(&now[to], classes);
      all[to].insert(all[to].end(), now[to].begin(), now[to].end());
      Thin(&all[to], classes);
    }
    last = std::move(now);
    if (!any) break;
  }
  return all;
}

StateGraph OneStateForEachNode(const Problem& problem) {
  StateGraph graph;
  graph.layered = false;
  graph.first_in = {0, 0};
  std::vector<int> state(problem.n, 0);
  graph.of_node.resize(problem.n);
  for (int v = 0, next = 1; v < problem.n; ++v) {
    if (v != problem.root) state[v] = next++;
    graph.of_node[v] = {state[v]};
  }
  graph.node = {problem.root};
  graph.depth.assign(problem.n, 0);
  for (int to = 0; to < problem.n; ++to) {
    if (to == problem.root) continue;
    graph.node.push_back(to);
    for (int from = 0; from < problem.n; ++from) {
      if (from != to && problem.HasLink(from, to)) graph.from.push_back(state[from]);
    }
    graph.first_in.push_back(static_cast<int64_t>(graph.from.size()));
  }
  return graph;
}

}  // namespace

StateGraph MakeStateGraph(const Problem& problem, int64_t links_max) {
  const int n = problem.n;
  int64_t links = 0;
  for (int64_t weight : problem.weight) links += weight < kUnserved;
  if (links * problem.depth_max > kStateLinksMost) return OneStateForEachNode(problem);
  std::vector<std::vector<int64_t>> times(n, {0});
  int64_t work = 0;
  if (problem.DelayLimited()) {
    const int64_t classes = links_max / std::max<int64_t>(1, links * problem.depth_max);
    times = ArrivalTimes(problem, static_cast<size_t>(std::clamp<int64_t>(classes, 1, kClassesMax)),
                         &work);
  }
  std::vector<size_t> first(n + 1, 0);
  for (int v = 0; v < n; ++v) first[v + 1] = first[v] + times[v].size();

  StateGraph graph;
  graph.of_node.resize(n);
  graph.node = {problem.root};
  graph.depth = {0};
  graph.first_in = {0, 0};
  graph.of_node[problem.root] = {0};
  std::vector<int> state(first[n], -1), next(first[n], -1);  // of the depth before, of this depth
  state[first[problem.root]] = 0;
  // [class of `to`]: the states before it from which a link leads there.
  std::vector<std::vector<int>> into;
  for (int h = 1; h <= problem.depth_max; ++h) {
    std::fill(next.begin(), next.end(), -1);
    for (int to = 0; to < n; ++to) {
      if (to == problem.root || times[to].empty() || h > problem.DepthMax(to)) continue;
      into.assign(times[to].size(), {});
      for (int from = 0; from < n; ++from) {
        if (from == to || !problem.HasLink(from, to)) continue;
        for (size_t b = 0; b < times[from].size(); ++b) {
          const int before = state[first[from] + b];
          if (before < 0) continue;
          size_t at = 0;
          if (problem.DelayLimited()) {
            const int64_t then = times[from][b] + problem.Delay(from, to);
            if (then > problem.delay_max_us) continue;
            // Nobody arrives before the first time, though rounding down may say so.
            while (at + 1 < times[to].size() && times[to][at + 1] <= then) ++at;
          }
          into[at].push_back(before);
        }
      }
      for (size_t b = 0; b < into.size(); ++b) {
        if (into[b].empty()) continue;
        next[first[to] + b] = graph.size();
        graph.of_node[to].push_back(graph.size());
        graph.node.push_back(to);
        graph.depth.push_back(h);
        graph.from.insert(graph.from.end(), into[b].begin(), into[b].end());
        graph.first_in.push_back(static_cast<int64_t>(graph.from.size()));
      }
    }
    std::swap(state, next);
  }
  graph.work = work + int64_t{n} * n * problem.depth_max +
               kLinkWork * static_cast<int64_t>(graph.from.size());
  return graph;
}

}  // namespace tailcast::copytree
