#include "tailcast/copytree/dual_ascent.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace tailcast::copytree {
namespace {

// Graphs with more nodes go on with a node while its part is not so many hundredths larger than the
// smallest one: that takes a third of the time, and the bound is hardly lower.
constexpr int kManyNodes = 100;
constexpr int kSlack = 25;

}  // namespace

DualAscent::DualAscent(const Problem& problem, const StateGraph& graph)
    : problem_(problem), graph_(graph), slack_(problem.n > kManyNodes ? kSlack : 0) {}

bool DualAscent::Grow(size_t next) {
  bool connected = false;
  for (; next < part_.size() && !connected; ++next) {
    const int64_t last = graph_.first_in[part_[next] + 1];
    for (int64_t link = graph_.first_in[part_[next]]; link < last; ++link) {
      if (rest_[link] != 0 || mark_[graph_.from[link]] == stamp_) continue;
      mark_[graph_.from[link]] = stamp_;
      part_.push_back(graph_.from[link]);
      connected |= graph_.from[link] == 0;
    }
    work_ += last - graph_.first_in[part_[next]];
  }
  return connected;
}

int64_t DualAscent::Raise() {
  int64_t raise = INT64_MAX;
  for (int to : part_) {
    const int64_t last = graph_.first_in[to + 1];
    for (int64_t link = graph_.first_in[to]; link < last; ++link) {
      if (rest_[link] < raise && mark_[graph_.from[link]] != stamp_) raise = rest_[link];
    }
  }
  if (raise == INT64_MAX) return raise;
  used_up_.clear();
  for (int to : part_) {
    const int64_t last = graph_.first_in[to + 1];
    for (int64_t link = graph_.first_in[to]; link < last; ++link) {
      if (mark_[graph_.from[link]] == stamp_) continue;
      rest_[link] -= raise;
      if (rest_[link] == 0) used_up_.push_back(graph_.from[link]);
    }
    work_ += 2 * (last - graph_.first_in[to]);
  }
  return raise;
}

int64_t DualAscent::Run(const std::vector<int64_t>& weight, int64_t work_max) {
  rest_ = weight;
  mark_.assign(graph_.size(), -1);
  stamp_ = 0;
  const int64_t end = work_ + work_max;
  int64_t bound = 0;
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
    auto [size_before, node] = cut_off.top();
    cut_off.pop();
    // The states from which the node can be met for free.
    ++stamp_;
    part_ = graph_.of_node[node];
    for (int state : part_) mark_[state] = stamp_;
    size_t grown = 0;
    while (!Grow(grown)) {
      const int size = static_cast<int>(part_.size());
      if (size > size_before && !cut_off.empty() &&
          size > cut_off.top().first + cut_off.top().first * slack_ / 100) {
        cut_off.emplace(size, node);
        break;
      }
      const int64_t raise = Raise();
      if (raise == INT64_MAX) {  // out of reach
        bound += kUnserved;
        break;
      }
      bound += raise;
      if (slack_ == 0 || work_ >= end) {
        cut_off.emplace(size, node);
        break;
      }
      // Go on with this node; its part grows by where the links come from.
      grown = part_.size();
      size_before = size;
      bool connected = false;
      for (int from : used_up_) {
        if (mark_[from] == stamp_) continue;
        mark_[from] = stamp_;
        part_.push_back(from);
        connected |= from == 0;
      }
      if (connected) break;
    }
  }
  return bound;
}

std::vector<int64_t> DualAscent::UsedUpTree(Rng* rng) const {
  std::vector<int> order;
  for (int v = 0; v < problem_.n; ++v) {
    if (v != problem_.root && problem_.required[v]) order.push_back(v);
  }
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng->Below(i)]);
  std::vector<int64_t> into(graph_.size(), -1), way(graph_.size(), INT64_MAX);
  std::vector<char> in_tree(graph_.size(), 0);
  in_tree[0] = 1;
  std::vector<int64_t> out(graph_.size(), -1);  // the link towards the node that is looked at
  std::vector<int> to(graph_.size(), 0), reached;
  using Entry = std::pair<int64_t, int>;
  std::vector<Entry> heap;
  const auto push = [&](int64_t weight, int state) {
    if (weight >= way[state]) return false;
    if (way[state] == INT64_MAX) reached.push_back(state);
    way[state] = weight;
    heap.emplace_back(weight, state);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
    return true;
  };
  for (int node : order) {
    for (int state : reached) way[state] = INT64_MAX;
    reached.clear();
    heap.clear();
    for (int state : graph_.of_node[node]) {
      push(0, state);
      out[state] = -1;
    }
    int met = -1;
    while (!heap.empty() && met < 0) {
      const auto [weight, state] = heap.front();
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      heap.pop_back();
      if (weight > way[state]) continue;
      if (in_tree[state]) met = state;
      for (int64_t link = graph_.first_in[state]; link < graph_.first_in[state + 1]; ++link) {
        if (rest_[link] != 0) continue;
        const int from = graph_.from[link];
        if (!push(weight + problem_.Weight(graph_.node[from], graph_.node[state]), from)) continue;
        out[from] = link;
        to[from] = state;
      }
    }
    for (int state = met; state >= 0 && out[state] >= 0; state = to[state]) {
      into[to[state]] = out[state];
      in_tree[to[state]] = 1;
    }
  }
  return into;
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
