#include "tailcast/copytree/facility_bound.h"

#include <algorithm>

#include "tailcast/base/check.h"

namespace tailcast::copytree {
namespace {

// A step is this part of the one that would close the gap if the bound were linear; it shrinks
// after so many rounds without a better value, and the rounds end when it is tiny.
constexpr double kFirstScale = 1.5, kShrink = 0.7, kScaleLeast = 1e-3;
constexpr int kPatience = 20;
// Prices stay below this by the number of nodes, so that sums fit an int64_t.
constexpr double kPricesMost = 1e15;
// What a link costs in a round, in elementary steps; measured.
constexpr int64_t kLinkWork = 2;

// Trees of depth two at given prices.
class Facilities {
 public:
  explicit Facilities(const Problem& problem);

  // The bound at these prices; fills `gain_` and `entered_`.
  int64_t Value(const std::vector<int64_t>& price);
  // How often the trees of the last Value enter each node.
  const std::vector<int>& entered() const { return entered_; }
  std::vector<int64_t> LinkBounds(const std::vector<int64_t>& price);
  int64_t round_work() const { return kLinkWork * static_cast<int64_t>(child_.size()); }

 private:
  struct Child {
    int node;
    int64_t weight;
  };

  // What the children of `v` that pay for themselves change; left in `chosen_`.
  int64_t ChooseChildren(int v, const std::vector<int64_t>& price);

  const Problem& problem_;
  std::vector<int> fed_;  // nodes that the root can feed
  // Of fed_[i] the children are child_[first_[i]] to child_[first_[i + 1]].
  std::vector<size_t> first_;
  std::vector<Child> child_;
  std::vector<int64_t> gain_;  // of feeding fed_[i]; below 0: it pays for itself
  std::vector<int> entered_;
  std::vector<std::pair<int64_t, int>> chosen_;  // (change, node)
  std::vector<int> order_;
};

Facilities::Facilities(const Problem& problem)
    : problem_(problem), first_{0}, entered_(problem.n, 0) {
  const int root = problem.root;
  for (int v = 0; v < problem.n; ++v) {
    if (v == root || !problem.HasLink(root, v) || problem.DepthMax(v) < 1) continue;
    if (problem.Delay(root, v) > problem.delay_max_us) continue;
    fed_.push_back(v);
    for (int to = 0; to < problem.n && problem.fanout_max[v] > 0; ++to) {
      if (to == v || to == root || !problem.HasLink(v, to) || problem.DepthMax(to) < 2) continue;
      if (problem.Delay(root, v) + problem.Delay(v, to) > problem.delay_max_us) continue;
      child_.push_back({to, problem.Weight(v, to)});
    }
    first_.push_back(child_.size());
  }
  gain_.resize(fed_.size());
}

int64_t Facilities::ChooseChildren(int i, const std::vector<int64_t>& price) {
  chosen_.clear();
  for (size_t c = first_[i]; c < first_[i + 1]; ++c) {
    const int64_t change = child_[c].weight - price[child_[c].node];
    if (change < 0) chosen_.emplace_back(change, child_[c].node);
  }
  const size_t most = static_cast<size_t>(std::max(0, problem_.fanout_max[fed_[i]]));
  if (chosen_.size() > most) {
    std::nth_element(chosen_.begin(), chosen_.begin() + static_cast<int64_t>(most), chosen_.end());
    chosen_.resize(most);
  }
  int64_t change = 0;
  for (const auto& [less, node] : chosen_) change += less;
  return change;
}

int64_t Facilities::Value(const std::vector<int64_t>& price) {
  int64_t value = 0;
  for (int v = 0; v < problem_.n; ++v) value += v == problem_.root ? 0 : price[v];
  std::fill(entered_.begin(), entered_.end(), 0);
  order_.clear();
  for (size_t i = 0; i < fed_.size(); ++i) {
    const int v = fed_[i];
    gain_[i] =
        problem_.Weight(problem_.root, v) - price[v] + ChooseChildren(static_cast<int>(i), price);
    if (gain_[i] < 0) order_.push_back(static_cast<int>(i));
  }
  const size_t most = static_cast<size_t>(std::max(0, problem_.fanout_max[problem_.root]));
  if (order_.size() > most) {
    std::stable_sort(order_.begin(), order_.end(),
                     [this](int a, int b) { return gain_[a] < gain_[b]; });
    order_.resize(most);
  }
  for (int i : order_) {
    value += gain_[i];
    ++entered_[fed_[i]];
    ChooseChildren(i, price);
    for (const auto& [less, node] : chosen_) ++entered_[node];
  }
  return value;
}

std::vector<int64_t> Facilities::LinkBounds(const std::vector<int64_t>& price) {
  const int64_t value = Value(price);
  const size_t n = static_cast<size_t>(problem_.n);
  std::vector<int64_t> bounds(n * n, INT64_MAX);
  for (size_t i = 0; i < fed_.size(); ++i) {
    // A node that is taken although it does not pay, and a child of it that does not either.
    const int64_t with = value + std::max<int64_t>(0, gain_[i]);
    bounds[static_cast<size_t>(problem_.root) * n + fed_[i]] = with;
    for (size_t c = first_[i]; c < first_[i + 1]; ++c) {
      const int64_t change = child_[c].weight - price[child_[c].node];
      bounds[static_cast<size_t>(fed_[i]) * n + child_[c].node] =
          with + std::max<int64_t>(0, change);
    }
  }
  return bounds;
}

}  // namespace

FacilityBound BoundFacilities(const Problem& problem, int64_t goal, int64_t work_max) {
  TAILCAST_CHECK(problem.depth_max == 2);
  const int n = problem.n;
  const double most = kPricesMost / n;
  Facilities facilities(problem);
  FacilityBound bound{.value = 0, .link_bounds = {}, .work = 4 * int64_t{n} * n};
  // The cheapest link into each node; nothing for being a relay.
  std::vector<int64_t> price(n, 0);
  for (int to = 0; to < n; ++to) {
    if (to == problem.root || !problem.required[to]) continue;
    int64_t least = kUnserved;
    for (int from = 0; from < n; ++from) {
      if (from != to) least = std::min(least, problem.Weight(from, to));
    }
    price[to] = std::min(least, static_cast<int64_t>(most));
  }
  std::vector<int64_t> best_price = price;
  int idle = 0;
  for (double scale = kFirstScale; scale > kScaleLeast && bound.work < work_max;) {
    const int64_t value = facilities.Value(price);
    bound.work += facilities.round_work();
    if (value > bound.value) {
      bound.value = value;
      best_price = price;
      idle = 0;
    } else if (++idle >= kPatience) {
      idle = 0;
      scale *= kShrink;
    }
    if (value >= goal) break;
    double norm = 0;
    for (int v = 0; v < n; ++v) {
      const double excess = v == problem.root ? 0 : 1 - facilities.entered()[v];
      norm += excess * excess;
    }
    if (norm == 0) break;
    const double step = scale * static_cast<double>(goal - value) / norm;
    for (int v = 0; v < n; ++v) {
      if (v == problem.root) continue;
      const double moved = static_cast<double>(price[v]) + step * (1 - facilities.entered()[v]);
      price[v] = static_cast<int64_t>(std::clamp(moved, -most, problem.required[v] ? most : 0.0));
    }
  }
  bound.link_bounds = facilities.LinkBounds(best_price);
  bound.work += facilities.round_work() + int64_t{n} * n;
  return bound;
}

}  // namespace tailcast::copytree
