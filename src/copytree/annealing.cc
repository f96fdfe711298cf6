#include "tailcast/copytree/annealing.h"

#include <algorithm>

#include "tailcast/base/check.h"

namespace tailcast::copytree {
namespace {

// What a node of a moved subtree costs in elementary steps; measured.
constexpr int64_t kNodeWork = 8;
// Most proposals look among so many of the cheapest links into a node.
constexpr int kNearLeast = 7, kNearMost = 32, kNodesPerNear = 25;
// With more nodes than this two random ones hardly ever make a good move together.
constexpr int kManyNodes = 100;
// A neighbourhood takes in so many of the few best links into each of its nodes.
constexpr int kNearAround = 2, kFewBest = 6;
// The last temperature as a part of a typical weight; of many nodes each matters less.
constexpr int64_t kColdPart = 100, kManyColdPart = 600;
// In each round the temperature falls by this part.
constexpr int64_t kCooling = 64;
// The price of a broken unit, in typical weights: how far it goes, and where any tree will do.
constexpr int64_t kPriceMost = 64;
constexpr int64_t kLimitsFirst = 32;
// A node that stays crowded pays so many times the price for each child too many.
constexpr int kCrowdedMost = 64;
// While it is hot, one in so many nodes may break a limit before the price of that rises.
constexpr int64_t kNodesPerUnit = 64;
// Weights above this hold a penalty (plan.cc) and say nothing about what links usually weigh.
constexpr int64_t kPriceWeightMax = 200'000'000'000;

}  // namespace

Annealing::Annealing(const Problem& problem, const std::vector<int64_t>& rank, uint64_t seed)
    : problem_(problem),
      n_(problem.n),
      many_nodes_(problem.n > kManyNodes),
      near_(static_cast<size_t>(std::clamp(problem.n / kNodesPerNear, kNearLeast, kNearMost))),
      rng_(seed),
      nearest_(static_cast<size_t>(problem.n) * near_) {
  candidates_.resize(n_);
  std::vector<int64_t> cheapest;
  for (int v = 0; v < n_; ++v) {
    if (v == problem.root) continue;
    if (!problem.required[v]) relays_.push_back(v);
    for (int from = 0; from < n_; ++from) {
      if (from != v && problem.HasLink(from, v)) candidates_[v].push_back(from);
    }
    std::stable_sort(candidates_[v].begin(), candidates_[v].end(), [&](int a, int b) {
      const int64_t first = rank[static_cast<size_t>(a) * n_ + v],
                    second = rank[static_cast<size_t>(b) * n_ + v];
      return first != second ? first < second : problem.Weight(a, v) < problem.Weight(b, v);
    });
    for (size_t i = 0; i < std::min(near_, candidates_[v].size()); ++i) {
      nearest_[static_cast<size_t>(v) * near_ + i] = candidates_[v][i];
    }
    if (candidates_[v].empty()) continue;
    // A link that trees use: the fourth cheapest into a node.
    std::vector<int64_t> weights;
    for (int from : candidates_[v]) weights.push_back(problem.Weight(from, v));
    const auto fourth =
        weights.begin() + static_cast<int64_t>(std::min<size_t>(3, weights.size() - 1));
    std::nth_element(weights.begin(), fourth, weights.end());
    if (*fourth < kPriceWeightMax) cheapest.push_back(*fourth);
  }
  if (!cheapest.empty()) {
    std::sort(cheapest.begin(), cheapest.end());
    typical_ = std::max<int64_t>(1, cheapest[cheapest.size() / 2]);
  }
  if (problem.DelayLimited()) late_unit_us_ = std::max<int64_t>(1, problem.delay_max_us / 32);
  work_ += static_cast<int64_t>(n_) * n_ * 8;
}

void Annealing::Load(const Parents& start) {
  parent_.assign(n_, kNoParent);
  first_.assign(n_, -1);
  next_.assign(n_, -1);
  before_.assign(n_, -1);
  depth_.assign(n_, 0);
  children_.assign(n_, 0);
  crowded_.assign(n_, 1);
  arrival_.assign(n_, 0);
  cost_.assign(n_, 0);
  nodes_.clear();
  place_.assign(n_, -1);
  weight_ = 0;
  excess_ = {};
  const std::vector<int> depths = Depths(problem_, start);
  std::vector<int> order;
  for (int v = 0; v < n_; ++v) {
    if (v == problem_.root) continue;
    TAILCAST_CHECK(depths[v] > 0 || !problem_.required[v]);
    if (depths[v] > 0) order.push_back(v);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return depths[a] < depths[b]; });
  for (int v : order) MoveUnlogged(v, start[v]);
}

void Annealing::ChooseAround(size_t count) {
  around_.clear();
  std::vector<char> seen(n_, 0);
  seen[problem_.root] = 1;
  const auto add = [&](int v) {
    if (seen[v] || parent_[v] == kNoParent || around_.size() >= count) return;
    seen[v] = 1;
    around_.push_back(v);
  };
  // From a required node, which never leaves the tree, or from one that feeds it.
  int first = nodes_[rng_.Below(nodes_.size())];
  while (!problem_.required[first]) first = nodes_[rng_.Below(nodes_.size())];
  add(first);
  add(parent_[first]);
  for (size_t i = 0; i < around_.size() && around_.size() < count; ++i) {
    const int v = around_[i];
    add(parent_[v]);
    if (rng_.Below(2) == 0) {
      for (int child = first_[v]; child >= 0; child = next_[child]) add(child);
    }
    const uint64_t few = std::min<size_t>(kFewBest, candidates_[v].size());
    for (int near = 0; near < kNearAround; ++near) add(candidates_[v][rng_.Below(few)]);
    for (int child = first_[parent_[v]]; child >= 0 && rng_.Below(4) == 0; child = next_[child]) {
      add(child);
    }
  }
  work_ += n_ + kNodeWork * static_cast<int64_t>(around_.size());
}

void Annealing::Unlink(int v) {
  const int parent = parent_[v];
  if (before_[v] >= 0) {
    next_[before_[v]] = next_[v];
  } else {
    first_[parent] = next_[v];
  }
  if (next_[v] >= 0) before_[next_[v]] = before_[v];
  if (children_[parent]-- > problem_.fanout_max[parent]) {
    --excess_.children;
    excess_.children_priced -= crowded_[parent];
  }
  weight_ -= cost_[v];
}

void Annealing::Link(int v, int parent) {
  before_[v] = -1;
  next_[v] = first_[parent];
  if (first_[parent] >= 0) before_[first_[parent]] = v;
  first_[parent] = v;
  if (++children_[parent] > problem_.fanout_max[parent]) {
    ++excess_.children;
    excess_.children_priced += crowded_[parent];
  }
  cost_[v] = problem_.Weight(parent, v);
  weight_ += cost_[v];
}

void Annealing::CountNode(int v, int sign) {
  const int deepest = problem_.DepthMax(v);
  if (depth_[v] > deepest) excess_.hops += sign * (depth_[v] - deepest);
  if (arrival_[v] > problem_.delay_max_us) {
    excess_.late += sign;
    excess_.late_us += sign * (arrival_[v] - problem_.delay_max_us);
  }
}

void Annealing::Place(int v) {
  stack_.assign(1, v);
  while (!stack_.empty()) {
    const int at = stack_.back();
    stack_.pop_back();
    const int from = parent_[at];
    CountNode(at, -1);
    depth_[at] = depth_[from] + 1;
    arrival_[at] = arrival_[from] + problem_.Delay(from, at);
    CountNode(at, 1);
    work_ += kNodeWork;
    for (int child = first_[at]; child >= 0; child = next_[child]) stack_.push_back(child);
  }
}

void Annealing::MoveUnlogged(int v, int parent) {
  if (parent_[v] != kNoParent) {
    Unlink(v);
  } else {
    place_[v] = static_cast<int>(nodes_.size());
    nodes_.push_back(v);
  }
  parent_[v] = parent;
  if (parent != kNoParent) {
    Link(v, parent);
    Place(v);
    return;
  }
  CountNode(v, -1);
  depth_[v] = 0;
  arrival_[v] = 0;
  nodes_[place_[v]] = nodes_.back();
  place_[nodes_.back()] = place_[v];
  nodes_.pop_back();
  place_[v] = -1;
}

void Annealing::Move(int v, int parent) {
  log_.emplace_back(v, parent_[v]);
  MoveUnlogged(v, parent);
}

void Annealing::Undo() {
  for (size_t i = log_.size(); i-- > 0;) MoveUnlogged(log_[i].first, log_[i].second);
  log_.clear();
}

int64_t Annealing::Energy() const {
  return weight_ + price_ * (excess_.hops + excess_.children_priced) + (price_ * excess_.late) / 4 +
         price_ / 64 * (excess_.late_us * 64 / late_unit_us_);
}

void Annealing::PriceCrowds() {
  excess_.children_priced = 0;
  for (int v = 0; v < n_; ++v) {
    const int more = children_[v] - problem_.fanout_max[v];
    if (more > 0) {
      crowded_[v] = std::min(kCrowdedMost, crowded_[v] + 1);
      excess_.children_priced += int64_t{crowded_[v]} * more;
    } else if (crowded_[v] > 1) {
      --crowded_[v];
    }
  }
  work_ += n_;
}

void Annealing::KeepIfBest() {
  if (!excess_.none()) return;
  run_weight_ = std::min(run_weight_, weight_);
  if (weight_ >= best_weight_) return;
  best_weight_ = weight_;
  best_ = parent_;
  work_ += n_;
}

void Annealing::Run(const Parents& start, const AnnealingRun& run) {
  Load(start);
  run_weight_ = INT64_MAX;
  KeepIfBest();
  if (n_ < 2 || nodes_.empty()) return;
  around_.clear();
  if (run.around > 0) ChooseAround(static_cast<size_t>(run.around));
  const int proposals = around_.empty() ? n_ : static_cast<int>(around_.size());
  const int64_t began = work_;
  int64_t first = std::max<int64_t>(1, typical_ * run.hot / 100);
  int64_t last = std::max<int64_t>(1, typical_ / (many_nodes_ ? kManyColdPart : kColdPart));
  int64_t price_least = std::max<int64_t>(1, typical_ / 8);
  price_ = typical_;
  if (run.limits_first) {
    // At temperatures at which only broken limits count.
    price_ = price_least = kLimitsFirst * typical_;
    first = price_ / 2;
    last = price_ / 12;
  }
  // From `first` to `last` by equal factors: in each of the rounds a part of what is left.
  int64_t rounds = 1;
  for (int64_t t = first; t > last; t -= std::max<int64_t>(1, t / kCooling)) ++rounds;
  int64_t temperature = first;
  for (int64_t round = 1; round <= rounds; ++round) {
    const int64_t end = began + run.work / rounds * round;
    // Among many nodes some break a limit whenever it is hot, whatever that costs.
    const int64_t tolerated = n_ * temperature / first / kNodesPerUnit;
    while (work_ < end) {
      for (int i = 0; i < proposals && work_ < end; ++i) {
        Propose(temperature);
        if (!excess_.none() || weight_ >= run_weight_) continue;
        KeepIfBest();
        if (best_weight_ <= run.goal || run.limits_first) return;
      }
      PriceCrowds();
      if (excess_.units() <= tolerated) {
        price_ = std::max(price_least, price_ - price_ / 32);
      } else if (!run.limits_first) {
        price_ += price_ / 6;
        price_ = std::min(price_, typical_ * kPriceMost);
      }
    }
    temperature -= std::max<int64_t>(1, temperature / kCooling);
  }
}

}  // namespace tailcast::copytree
