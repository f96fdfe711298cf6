#include "tailcast/copytree/dual_ascent.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace tailcast::copytree {

DualAscent::DualAscent(const Problem& problem, const StateGraph& graph)
    : problem_(problem), graph_(graph) {}

int64_t DualAscent::Run(const std::vector<int64_t>& weight, int64_t work_max) {
  rest_ = weight;
  mark_.assign(graph_.size(), -1);
  const int64_t end = work_ + work_max;
  int64_t bound = 0;
  int stamp = 0;
  // Nodes still cut off, the smallest part first: small sets are the strongest cuts.
  std::priority_queue<std::pair<int, int>, std::vector<std::pair<int, int>>, std::greater<>>
      cut_off;
  for (int v = 0; v < problem_.n; ++v) {
    if (v == problem_.root || !problem_.required[v]) continue;
    if (graph_.of_node[v].empty()) {
      bound += kUnserved;
    } else {
      cut_off.emplace(0, v);
    }
  }
  while (!cut_off.empty() && work_ < end) {
    const auto [size_before, node] = cut_off.top();
    cut_off.pop();
    // The states from which the node can be met for free.
    ++stamp;
    part_ = graph_.of_node[node];
    for (int state : part_) mark_[state] = stamp;
    bool connected = false;
    for (size_t next = 0; next < part_.size() && !connected; ++next) {
      const int64_t last = graph_.first_in[part_[next] + 1];
      for (int64_t link = graph_.first_in[part_[next]]; link < last; ++link) {
        if (rest_[link] != 0 || mark_[graph_.from[link]] == stamp) continue;
        mark_[graph_.from[link]] = stamp;
        part_.push_back(graph_.from[link]);
        connected |= graph_.from[link] == 0;
      }
      work_ += last - graph_.first_in[part_[next]];
    }
    if (connected) continue;
    const int size = static_cast<int>(part_.size());
    if (size > size_before && !cut_off.empty() && size > cut_off.top().first) {
      cut_off.emplace(size, node);
      continue;
    }
    int64_t raise = INT64_MAX;
    for (int to : part_) {
      const int64_t last = graph_.first_in[to + 1];
      for (int64_t link = graph_.first_in[to]; link < last; ++link) {
        if (rest_[link] < raise && mark_[graph_.from[link]] != stamp) raise = rest_[link];
      }
    }
    for (int to : part_) {
      const int64_t last = graph_.first_in[to + 1];
      for (int64_t link = graph_.first_in[to]; link < last; ++link) {
        if (mark_[graph_.from[link]] != stamp) rest_[link] -= raise;
      }
      work_ += 2 * (last - graph_.first_in[to]);
    }
    bound += raise;
    cut_off.emplace(size, node);
  }
  return bound;
}

std::vector<int64_t> DualAscent::LinkExcess() const {
  const size_t n = static_cast<size_t>(problem_.n);
  std::vector<int64_t> excess(n * n, INT64_MAX);
  // The lightest way to each state by what is left of the weights.
  std::vector<int64_t> way(graph_.size(), INT64_MAX);
  way[0] = 0;
  for (int to = 1; to < graph_.size(); ++to) {
    for (int64_t link = graph_.first_in[to]; link < graph_.first_in[to + 1]; ++link) {
      const int from = graph_.from[link];
      if (!graph_.layered) way[from] = 0;
      if (way[from] == INT64_MAX) continue;
      const int64_t here = way[from] + rest_[link];
      way[to] = std::min(way[to], here);
      int64_t& least = excess[static_cast<size_t>(graph_.node[from]) * n + graph_.node[to]];
      least = std::min(least, here);
    }
  }
  return excess;
}

}  // namespace tailcast::copytree
