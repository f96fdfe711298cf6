#include "tailcast/copytree/layer_search.h"

#include <algorithm>

namespace tailcast::copytree {
namespace {

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
