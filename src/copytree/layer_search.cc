#include "tailcast/copytree/layer_search.h"

#include <algorithm>

namespace tailcast::copytree {
namespace {

// The layer of a relay that the tree does not use. Later than any real layer, so that it feeds
// none.
constexpr int kAbsent = INT32_MAX;
// Budgets tried per node and layer under a delay limit; more add time and hardly ever weight.
constexpr size_t kBudgetsMax = 6;
// Kicks without a better tree after which the search returns to the best one.
constexpr int kPatience = 40;

}  // namespace

LayerSearch::LayerSearch(const Problem& problem, SearchOptions options)
    : problem_(problem),
      options_(options),
      delay_limited_(problem.DelayLimited()),
      rng_(options.seed),
      work_end_(options.work_max) {
  const size_t n = problem.n;
  for (int v = 0; v < problem.n; ++v) capped_ |= problem.fanout_max[v] < problem.n - 1;
  entering_.resize(n * n);
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) entering_[to * n + from] = problem.weight[from * n + to];
  }
  state_.layer.assign(n, problem.depth_max);
  state_.layer[problem.root] = 0;
  state_.budget.assign(n, LeafBudget());
  state_.budget[problem.root] = 0;
  state_.assigned.assign(n, kNoParent);
  state_.price.assign(n, 0);
  first_.assign(n, kNoParent);
  second_.assign(n, kNoParent);
  first_weight_.assign(n, 0);
  second_weight_.assign(n, 0);
  best_parents_.assign(n, kNoParent);
}

void LayerSearch::StartFromStar() {
  Parents star(problem_.n, problem_.root);
  star[problem_.root] = kNoParent;
  for (int v = 0; v < problem_.n; ++v) {
    if (!problem_.required[v]) star[v] = kNoParent;
  }
  StartFrom(star);
}

void LayerSearch::StartFrom(const Parents& parents) {
  const std::vector<int> depths = Depths(problem_, parents);
  const std::vector<int64_t> arrivals = Arrivals(problem_, parents);
  std::vector<char> feeds(problem_.n, 0);
  for (int v = 0; v < problem_.n; ++v) {
    if (v != problem_.root && parents[v] != kNoParent && depths[v] > 0) feeds[parents[v]] = 1;
  }
  for (int v = 0; v < problem_.n; ++v) {
    if (v == problem_.root) continue;
    int layer = problem_.depth_max;
    int64_t budget = LeafBudget();
    if (depths[v] > 0 && depths[v] < problem_.depth_max && feeds[v] &&
        arrivals[v] < problem_.delay_max_us) {
      layer = depths[v];
      budget = arrivals[v];
    } else if (!problem_.required[v] && !feeds[v]) {
      layer = kAbsent;
    }
    SetLayer(v, layer, budget);
    state_.assigned[v] = layer == kAbsent ? kNoParent : parents[v];
  }
  Resettle();
  Descend();
  KeepIfBest();
}

void LayerSearch::SetLayer(int v, int layer, int64_t budget) {
  state_.layer[v] = layer;
  state_.budget[v] = layer < problem_.depth_max ? budget : LeafBudget();
}

void LayerSearch::ListInner() {
  inner_.clear();
  inner_.push_back(problem_.root);
  for (int v = 0; v < problem_.n; ++v) {
    if (v != problem_.root && IsInner(state_, v)) inner_.push_back(v);
  }
}

void LayerSearch::Settle() {
  for (;;) {
    ListInner();
    if (capped_) {
      AssignCapped();
    } else {
      RankParents();
      AssignUncapped();
    }
    if (!delay_limited_) return;
    const std::vector<int64_t> before = state_.budget;
    TightenBudgets();
    if (before == state_.budget) return;
  }
}

void LayerSearch::Resettle() {
  Settle();
  if (capped_) RankParents();
}

void LayerSearch::RankParents() {
  const int n = problem_.n;
  std::fill(first_.begin(), first_.end(), kNoParent);
  std::fill(second_.begin(), second_.end(), kNoParent);
  for (int v = 0; v < n; ++v) {
    const int64_t none = v == problem_.root || state_.layer[v] == kAbsent ? 0 : kUnserved;
    first_weight_[v] = second_weight_[v] = none;
  }
  for (int from : inner_) {
    const int64_t price = state_.price[from];
    const int layer = state_.layer[from];
    const int64_t* weight = &problem_.weight[static_cast<size_t>(from) * n];
    for (int v = 0; v < n; ++v) {
      if (state_.layer[v] <= layer || state_.layer[v] == kAbsent) continue;
      const int64_t priced = weight[v] + price;
      if (priced >= second_weight_[v]) continue;
      if (delay_limited_ && state_.budget[from] + problem_.Delay(from, v) > state_.budget[v]) {
        continue;
      }
      if (priced < first_weight_[v]) {
        second_[v] = first_[v];
        second_weight_[v] = first_weight_[v];
        first_[v] = from;
        first_weight_[v] = priced;
      } else {
        second_[v] = from;
        second_weight_[v] = priced;
      }
    }
  }
  work_ += static_cast<int64_t>(inner_.size()) * n;
}

void LayerSearch::AssignUncapped() {
  state_.assigned = first_;
  state_.weight = 0;
  for (int v = 0; v < problem_.n; ++v) state_.weight += first_weight_[v];
}

void LayerSearch::AssignCapped() {
  const int n = problem_.n;
  const int slots = static_cast<int>(inner_.size());
  // Slot `slots` holds the unserved; node `slack` of the cycle graph stands for free fan-out.
  const int unserved = slots;
  const int slack = slots + 1;
  const int stride = slots + 1;
  slot_of_.assign(n, -1);
  slot_layer_.resize(slots);
  for (int s = 0; s < slots; ++s) {
    slot_of_[inner_[s]] = s;
    slot_layer_[s] = state_.layer[inner_[s]];
  }
  if (members_.size() < static_cast<size_t>(stride)) members_.resize(stride);
  for (int s = 0; s < stride; ++s) members_[s].clear();
  auto room = [&](int s) {
    return s == unserved || static_cast<int>(members_[s].size()) < problem_.fanout_max[inner_[s]];
  };
  auto admits = [&](int s, int v) {
    const int from = inner_[s];
    return problem_.HasLink(from, v) && Admits(state_, from, state_.layer[v], state_.budget[v], v);
  };
  auto cost = [&](int s, int v) {
    return s == unserved ? kUnserved : problem_.Weight(inner_[s], v);
  };

  // Keep what still holds, place the rest where it is cheapest among those with room.
  order_.clear();
  int64_t total = 0;
  for (int v = 0; v < n; ++v) {
    if (v == problem_.root) continue;
    if (state_.layer[v] == kAbsent) {
      state_.assigned[v] = kNoParent;
      continue;
    }
    const int parent = state_.assigned[v];
    const int s = parent == kNoParent ? -1 : slot_of_[parent];
    if (s >= 0 && room(s) && admits(s, v)) {
      members_[s].push_back(v);
      total += cost(s, v);
    } else {
      order_.push_back(v);
    }
  }
  for (int v : order_) {
    int where = unserved;
    int64_t least = kUnserved;
    for (int s = 0; s < slots; ++s) {
      if (room(s) && cost(s, v) < least && admits(s, v)) {
        where = s;
        least = cost(s, v);
      }
    }
    members_[where].push_back(v);
    total += least;
  }
  work_ += static_cast<int64_t>(order_.size()) * slots;

  // shift[f][g]: the least change of weight by which one member of f can move to g.
  shift_.resize(static_cast<size_t>(stride) * stride);
  shift_node_.resize(static_cast<size_t>(stride) * stride);
  auto fill_row = [&](int f) {
    int64_t* row = &shift_[static_cast<size_t>(f) * stride];
    int* node = &shift_node_[static_cast<size_t>(f) * stride];
    std::fill(row, row + stride, kUnserved * 4);
    for (int v : members_[f]) {
      const int64_t now = cost(f, v);
      const int layer = state_.layer[v];
      const int64_t* entering = &entering_[static_cast<size_t>(v) * n];
      for (int g = 0; g < slots; ++g) {
        const int64_t change = entering[inner_[g]] - now;
        if (change < row[g] && slot_layer_[g] < layer && g != f && admits(g, v)) {
          row[g] = change;
          node[g] = v;
        }
      }
      if (f != unserved && kUnserved - now < row[unserved]) {
        row[unserved] = kUnserved - now;
        node[unserved] = v;
      }
    }
    work_ += static_cast<int64_t>(members_[f].size()) * slots;
  };
  for (int f = 0; f < stride; ++f) fill_row(f);

  // Cancel negative cycles until none is left; the distances of the last round, in which nothing
  // moved, are the dual prices.
  distance_.resize(slots + 2);
  for (int s = 0; s < slots; ++s) distance_[s] = -state_.price[inner_[s]];
  distance_[unserved] = distance_[slack] = 0;
  previous_.resize(slots + 2);
  std::vector<int> mark(slots + 2);
  for (;;) {
    std::fill(previous_.begin(), previous_.end(), -1);
    int on_cycle = -1;
    bool changed = true;
    while (changed && on_cycle < 0) {
      changed = false;
      for (int f = 0; f < stride; ++f) {
        const int64_t base = distance_[f];
        const int64_t* row = &shift_[static_cast<size_t>(f) * stride];
        for (int g = 0; g < stride; ++g) {
          if (base + row[g] < distance_[g] && row[g] < kUnserved * 4) {
            distance_[g] = base + row[g];
            previous_[g] = f;
            changed = true;
          }
        }
        if (room(f) && base < distance_[slack]) {
          distance_[slack] = base;
          previous_[slack] = f;
          changed = true;
        }
      }
      for (int g = 0; g < stride; ++g) {
        if (distance_[slack] < distance_[g]) {
          distance_[g] = distance_[slack];
          previous_[g] = slack;
          changed = true;
        }
      }
      work_ += static_cast<int64_t>(stride) * stride;
      if (!changed) break;
      // A cycle among the predecessors is a negative cycle.
      std::fill(mark.begin(), mark.end(), 0);
      for (int start = 0; start < slots + 2 && on_cycle < 0; ++start) {
        int at = start;
        while (at >= 0 && mark[at] == 0) {
          mark[at] = start + 1;
          at = previous_[at];
        }
        if (at >= 0 && mark[at] == start + 1) on_cycle = at;
      }
    }
    if (on_cycle < 0) break;
    order_.clear();  // the cycle, against its direction
    for (int at = on_cycle;;) {
      order_.push_back(at);
      at = previous_[at];
      if (at == on_cycle) break;
    }
    for (size_t i = 0; i < order_.size(); ++i) {
      const int g = order_[i];
      const int f = order_[(i + 1) % order_.size()];
      if (f == slack || g == slack) continue;
      const size_t entry = static_cast<size_t>(f) * stride + g;
      const int v = shift_node_[entry];
      total += shift_[entry];
      members_[f].erase(std::find(members_[f].begin(), members_[f].end(), v));
      members_[g].push_back(v);
    }
    for (int at : order_) {
      if (at != slack) fill_row(at);
    }
  }

  std::fill(state_.price.begin(), state_.price.end(), 0);
  for (int s = 0; s < slots; ++s) {
    state_.price[inner_[s]] = distance_[slack] - distance_[s];
    for (int v : members_[s]) state_.assigned[v] = inner_[s];
  }
  for (int v : members_[unserved]) state_.assigned[v] = kNoParent;
  state_.weight = total;
}

void LayerSearch::TightenBudgets() {
  order_ = inner_;
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int a, int b) { return state_.layer[a] < state_.layer[b]; });
  for (int v : order_) {
    const int parent = state_.assigned[v];
    if (parent != kNoParent) state_.budget[v] = state_.budget[parent] + problem_.Delay(parent, v);
  }
}

int64_t LayerSearch::EstimateMove(int v, int layer, int64_t budget) {
  const int n = problem_.n;
  const bool was_inner = IsInner(state_, v);
  const bool is_inner = layer < problem_.depth_max;
  if (!is_inner) budget = LeafBudget();
  int64_t own = 0;
  if (layer != kAbsent) {
    own = kUnserved;
    for (int from : inner_) {
      const int64_t priced = entering_[static_cast<size_t>(v) * n + from] + state_.price[from];
      if (priced < own && from != v && Admits(state_, from, layer, budget, v)) own = priced;
    }
  }
  int64_t change = own - first_weight_[v];
  work_ += static_cast<int64_t>(inner_.size());
  if (!was_inner && !is_inner) return change;

  const int64_t price = was_inner ? state_.price[v] : 0;
  const int64_t* weight = &problem_.weight[static_cast<size_t>(v) * n];
  const bool limited = capped_ && !was_inner && problem_.fanout_max[v] < n - 1;
  gains_.clear();
  for (int to = 0; to < n; ++to) {
    if (to == v) continue;
    const bool fed = first_[to] == v;
    const int64_t gain = first_weight_[to] - weight[to] - price;
    if (!fed && gain <= 0) continue;
    const bool admitted = is_inner && state_.layer[to] != kAbsent && layer < state_.layer[to] &&
                          (!delay_limited_ || budget + problem_.Delay(v, to) <= state_.budget[to]);
    if (fed) {
      if (!admitted) change += second_weight_[to] - first_weight_[to];
    } else if (admitted) {
      if (limited) {
        gains_.push_back(gain);
      } else {
        change -= gain;
      }
    }
  }
  work_ += n;
  if (limited) {
    const size_t most = static_cast<size_t>(std::max(problem_.fanout_max[v], 0));
    if (gains_.size() > most) {
      std::nth_element(gains_.begin(), gains_.begin() + static_cast<int64_t>(most), gains_.end(),
                       std::greater<>());
      gains_.resize(most);
    }
    for (int64_t gain : gains_) change -= gain;
  }
  // A node that stops feeding takes its fan-out's price out of the dual.
  if (capped_ && was_inner && !is_inner) change += price * problem_.fanout_max[v];
  return change;
}

int64_t LayerSearch::EstimateSwap(int out, int in) {
  const int n = problem_.n;
  const int layer = state_.layer[out];
  const int64_t budget = state_.budget[out];
  const int64_t price_out = state_.price[out];
  // `in` takes the place of `out`, `out` becomes a leaf: their own new parents.
  int64_t own_in = kUnserved;
  int64_t own_out = std::min(kUnserved, problem_.Weight(in, out));
  if (delay_limited_ && budget + problem_.Delay(in, out) > LeafBudget()) own_out = kUnserved;
  for (int from : inner_) {
    if (from == out) continue;
    const int64_t price = state_.price[from];
    if (problem_.Weight(from, in) + price < own_in && Admits(state_, from, layer, budget, in)) {
      own_in = problem_.Weight(from, in) + price;
    }
    if (problem_.Weight(from, out) + price < own_out &&
        Admits(state_, from, problem_.depth_max, LeafBudget(), out)) {
      own_out = problem_.Weight(from, out) + price;
    }
  }
  int64_t change = own_in - first_weight_[in] + own_out - first_weight_[out];
  const int64_t* weight = &problem_.weight[static_cast<size_t>(in) * n];
  for (int to = 0; to < n; ++to) {
    if (to == in || to == out) continue;
    const bool fed = first_[to] == out;
    const int64_t rest = fed ? second_weight_[to] : first_weight_[to];
    int64_t after = rest;
    if (weight[to] < rest && layer < state_.layer[to] && state_.layer[to] != kAbsent &&
        (!delay_limited_ || budget + problem_.Delay(in, to) <= state_.budget[to])) {
      after = weight[to];
    }
    change += after - first_weight_[to];
  }
  work_ += n + static_cast<int64_t>(inner_.size());
  if (capped_) change += price_out * problem_.fanout_max[out];
  return change;
}

void LayerSearch::Save() {
  saved_ = Saved{state_, inner_, first_, second_, first_weight_, second_weight_};
}

void LayerSearch::Restore() {
  std::swap(state_, saved_.state);
  std::swap(inner_, saved_.inner);
  std::swap(first_, saved_.first);
  std::swap(second_, saved_.second);
  std::swap(first_weight_, saved_.first_weight);
  std::swap(second_weight_, saved_.second_weight);
}

bool LayerSearch::TryMove(int v, int layer, int64_t budget) {
  Save();
  SetLayer(v, layer, budget);
  Settle();
  if (state_.weight < saved_.state.weight) {
    if (capped_) RankParents();
    return true;
  }
  Restore();
  return false;
}

bool LayerSearch::TrySwap(int out, int in) {
  Save();
  const int layer = state_.layer[out];
  const int64_t budget = state_.budget[out];
  SetLayer(out, problem_.depth_max, LeafBudget());
  SetLayer(in, layer, budget);
  if (capped_) {
    // What `out` fed goes to `in` first, so that the transportation problem starts near its end.
    for (int v = 0; v < problem_.n; ++v) {
      if (state_.assigned[v] == out && v != in) state_.assigned[v] = in;
    }
    state_.price[in] = state_.price[out];
  }
  Settle();
  if (state_.weight < saved_.state.weight) {
    if (capped_) RankParents();
    return true;
  }
  Restore();
  return false;
}

void LayerSearch::CandidateBudgets(int v, int layer, std::vector<int64_t>* budgets) {
  budgets->clear();
  if (!delay_limited_ || layer >= problem_.depth_max) {
    budgets->push_back(LeafBudget());
    return;
  }
  std::vector<std::pair<int64_t, int64_t>> choices;  // arrival, weight
  for (int from : inner_) {
    if (from == v || state_.layer[from] >= layer || !problem_.HasLink(from, v)) continue;
    const int64_t arrival = state_.budget[from] + problem_.Delay(from, v);
    if (arrival < problem_.delay_max_us) {
      choices.emplace_back(arrival, problem_.Weight(from, v) + state_.price[from]);
    }
  }
  work_ += static_cast<int64_t>(inner_.size());
  std::sort(choices.begin(), choices.end());
  int64_t least = INT64_MAX;
  for (const auto& [arrival, weight] : choices) {
    if (weight >= least) continue;
    least = weight;
    budgets->push_back(arrival);
    if (budgets->size() == kBudgetsMax) break;
  }
}

bool LayerSearch::ImproveNode(int v) {
  const int deepest = std::min(layer_limit_, problem_.depth_max - 1);
  const auto consider = [&](int layer, int64_t budget) {
    if (layer == state_.layer[v] && (!delay_limited_ || budget == state_.budget[v])) return false;
    return EstimateMove(v, layer, budget) < 0 && TryMove(v, layer, budget);
  };
  bool improved = false;
  for (int layer = 1; layer <= deepest; ++layer) {
    CandidateBudgets(v, layer, &budgets_);
    const std::vector<int64_t> budgets = budgets_;
    for (int64_t budget : budgets) improved |= consider(layer, budget);
  }
  improved |= consider(problem_.depth_max, LeafBudget());
  if (!problem_.required[v]) improved |= consider(kAbsent, LeafBudget());
  return improved;
}

bool LayerSearch::ImproveBySwaps() {
  // Only leaves near the inner node can take its place with profit: those that it feeds, or that
  // would be fed by it second.
  const std::vector<int> inner = inner_;
  for (int out : inner) {
    if (out == problem_.root) continue;
    for (int in = 0; in < problem_.n; ++in) {
      if (in == problem_.root || IsInner(state_, in)) continue;
      if (first_[in] != out && second_[in] != out) continue;
      if (EstimateSwap(out, in) < 0 && TrySwap(out, in)) return true;
    }
    if (OutOfWork()) return false;
  }
  return false;
}

void LayerSearch::Descend() {
  const int n = problem_.n;
  if (problem_.depth_max <= 1) return;
  do {
    int layers = 0;
    for (int v : inner_) layers = std::max(layers, state_.layer[v]);
    layer_limit_ = layers + 1;
    int since = 0;
    int v = static_cast<int>(rng_.Below(static_cast<uint64_t>(n)));
    while (since < n && !OutOfWork()) {
      v = v + 1 == n ? 0 : v + 1;
      ++since;
      if (v == problem_.root) continue;
      if (ImproveNode(v)) {
        since = 0;
        layers = std::max(layers, state_.layer[v] == kAbsent ? 0 : state_.layer[v]);
        layer_limit_ = layers + 1;
      }
    }
  } while (!OutOfWork() && ImproveBySwaps());
}

void LayerSearch::Kick() {
  const int n = problem_.n;
  const int kicks = 1 + static_cast<int>(rng_.Below(3));
  for (int i = 0; i < kicks; ++i) {
    const int deepest = std::max(1, std::min(layer_limit_, problem_.depth_max - 1));
    const auto kind = rng_.Below(3);
    if (kind == 0 && inner_.size() > 1) {
      // An inner node becomes a leaf.
      const int v = inner_[1 + rng_.Below(inner_.size() - 1)];
      SetLayer(v, problem_.depth_max, LeafBudget());
    } else {
      // Any node becomes inner, or changes its layer.
      int v = static_cast<int>(rng_.Below(static_cast<uint64_t>(n)));
      if (v == problem_.root) continue;
      const int layer = 1 + static_cast<int>(rng_.Below(static_cast<uint64_t>(deepest)));
      CandidateBudgets(v, layer, &budgets_);
      if (budgets_.empty()) continue;
      SetLayer(v, layer, budgets_[rng_.Below(budgets_.size())]);
    }
    ListInner();
  }
  Resettle();
}

void LayerSearch::KeepIfBest() {
  if (state_.weight >= best_weight_) return;
  best_weight_ = state_.weight;
  best_parents_ = state_.assigned;
  best_parents_[problem_.root] = kNoParent;
  best_state_ = state_;
}

void LayerSearch::Improve() {
  if (problem_.depth_max <= 1 || problem_.n <= 2) return;
  State current = best_state_;
  int idle = 0;
  while (!OutOfWork() && best_weight_ > options_.stop_at_weight) {
    state_ = current;
    ListInner();
    Kick();
    Descend();
    const int64_t before = best_weight_;
    KeepIfBest();
    if (best_weight_ < before) idle = 0;
    if (state_.weight <= current.weight) {
      current = state_;
    } else if (++idle >= kPatience) {
      idle = 0;
      current = best_state_;
    } else if (state_.weight - current.weight < current.weight / 200) {
      current = state_;
    }
  }
}

}  // namespace tailcast::copytree
