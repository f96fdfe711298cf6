#include "tailcast/copytree/annealing.h"

#include <algorithm>
#include <bit>

#include "tailcast/base/check.h"

namespace tailcast::copytree {
namespace {

// What a proposal and a node of a moved subtree cost in elementary steps; measured.
constexpr int64_t kProposalWork = 60;
constexpr int64_t kNodeWork = 8;
// Most proposals look among so many of the cheapest links into a node.
constexpr int kNearLeast = 7, kNearMost = 32, kNodesPerNear = 25;
// With more nodes than this two random ones hardly ever make a good move together.
constexpr int kManyNodes = 100;
// So many children move on, one out of the way of the other, when a full node gets one more.
constexpr int kChain = 4;
// The last temperature as a part of a typical weight; of many nodes each matters less.
constexpr int64_t kColdPart = 100, kManyColdPart = 600;
// One proposal in so many looks among all links into a node.
constexpr int kAnyLink = 8, kManyAnyLink = 16;
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

// Exponentially distributed with mean `mean`, from whole numbers alone: the leading zeros of 64
// random bits are the halvings, the bits behind them go linearly between two of them.
int64_t Exponential(Rng& rng, int64_t mean) {
  const uint64_t bits = rng.Next() | 1;
  const int zeros = std::countl_zero(bits);
  const uint64_t rest = zeros >= 47 ? 0 : ((bits << (zeros + 1)) >> 48);
  const int64_t halvings = (int64_t{zeros} << 16) + (65535 - static_cast<int64_t>(rest));
  constexpr int64_t kLn2 = 45426;  // ln 2 * 2^16
  return (((mean * (halvings >> 4)) >> 12) * kLn2) >> 16;
}

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

bool Annealing::Below(int v, int ancestor) const {
  for (; v != kNoParent; v = parent_[v]) {
    if (v == ancestor) return true;
  }
  return false;
}

int Annealing::RandomNode() { return nodes_[rng_.Below(nodes_.size())]; }

int Annealing::RandomCandidate(int v) {
  const std::vector<int>& from = candidates_[v];
  const size_t near = std::min(near_, from.size());
  if (rng_.Below(many_nodes_ ? kManyAnyLink : kAnyLink) == 0) return from[rng_.Below(from.size())];
  // The first ones most: where links are few, all of them are near.
  const uint64_t first = rng_.Below(near);
  const uint64_t at = many_nodes_ ? first : std::min(first, rng_.Below(near));
  return nearest_[static_cast<size_t>(v) * near_ + at];
}

int Annealing::RandomChild(int v) {
  int child = first_[v];
  for (uint64_t skip = rng_.Below(static_cast<uint64_t>(children_[v])); skip > 0; --skip) {
    child = next_[child];
  }
  return child;
}

// Relays that feed nobody any more, from v upwards.
void Annealing::PruneUp(int v) {
  while (v != problem_.root && !problem_.required[v] && children_[v] == 0) {
    const int parent = parent_[v];
    Move(v, kNoParent);
    v = parent;
  }
}

bool Annealing::Reparent(int v) {
  const int old = parent_[v];
  const int to = RandomCandidate(v);
  if (to == old) return false;
  if (to != problem_.root && parent_[to] == kNoParent) return BringRelay(to, v);
  const bool prunes = !problem_.required[old] && old != problem_.root && children_[old] == 1;
  const int64_t change = problem_.Weight(to, v) - cost_[v];
  if (Full(to) && children_[to] > 0) {
    const uint64_t kind = rng_.Below(4);
    if (kind == 1) return Displace(v, to, kChain, change);
    if (kind > 1) return Displace(v, to, 1, change);
  }
  if (!prunes && change + (Full(to) ? price_ * crowded_[to] : 0) > ceiling_) return false;
  if (Below(to, v)) return false;
  Move(v, to);
  PruneUp(old);
  return true;
}

// v goes to the full node `to`; one of its children makes room, and so on where that one goes.
bool Annealing::Displace(int v, int to, int moves, int64_t change) {
  const int old = parent_[v];
  int full = to, came = v;
  const auto choose = [&](int* out, int* aside) {
    *out = RandomChild(full);
    *aside = rng_.Below(2) == 0 ? old : RandomCandidate(*out);
    return *out != came && *aside != full && problem_.HasLink(*aside, *out) &&
           (*aside == problem_.root || parent_[*aside] != kNoParent);
  };
  int out, aside;
  if (!choose(&out, &aside)) return false;
  const int64_t both = change + problem_.Weight(aside, out) - cost_[out];
  if (both > ceiling_ + (moves > 1 ? typical_ : 0) || Below(to, v)) return false;
  Move(v, to);
  while (!Below(aside, out)) {
    Move(out, aside);
    full = aside;
    came = out;
    if (--moves == 0 || children_[full] <= problem_.fanout_max[full]) break;
    if (!choose(&out, &aside)) break;
  }
  PruneUp(old);
  return true;
}

bool Annealing::BringRelay(int relay, int child) {
  if (candidates_[relay].empty()) return false;
  const int from = RandomCandidate(relay);
  if (from != problem_.root && parent_[from] == kNoParent) return false;
  if (Below(from, child)) return false;
  const int old = parent_[child];
  Move(relay, from);
  Move(child, relay);
  PruneUp(old);
  // And everybody else who is better off, as far as there is room.
  work_ += n_;
  scratch_ = nodes_;
  for (int v : scratch_) {
    if (Full(relay)) break;
    if (v == relay || v == from || parent_[v] == kNoParent || parent_[v] == relay) continue;
    const int before = parent_[v];
    if (problem_.Weight(relay, v) >= cost_[v] || Below(relay, v)) continue;
    if (depth_[relay] + 1 > problem_.depth_max) break;
    Move(v, relay);
    PruneUp(before);
  }
  return true;
}

bool Annealing::SwapNodes(int v) {
  // With a node that shares a neighbour with it, or its parent.
  int other = RandomCandidate(v);
  if (rng_.Below(many_nodes_ ? 16 : 2) == 0) other = RandomNode();
  if (other == v || other == problem_.root || parent_[other] == kNoParent) return false;
  if (parent_[other] == v) std::swap(v, other);  // now v is never the parent of `other`
  const int above_v = parent_[v], above_other = parent_[other];
  const bool adjacent = above_v == other;
  if (!adjacent && (Below(v, other) || Below(other, v))) return false;
  int64_t change = 0;
  const auto exchange = [&](int to, int child) {
    if (!problem_.HasLink(to, child)) return false;
    change += problem_.Weight(to, child) - cost_[child];
    return true;
  };
  if (!problem_.HasLink(above_other, v)) return false;
  change += problem_.Weight(above_other, v) - cost_[v];
  const int new_above = adjacent ? v : above_v;
  if (!problem_.HasLink(new_above, other)) return false;
  change += problem_.Weight(new_above, other) - cost_[other];
  for (int child = first_[v]; child >= 0; child = next_[child]) {
    if (!exchange(other, child)) return false;
  }
  for (int child = first_[other]; child >= 0; child = next_[child]) {
    if (child != v && !exchange(v, child)) return false;
  }
  if (change > ceiling_) return false;
  scratch_.clear();
  for (int child = first_[v]; child >= 0; child = next_[child]) scratch_.push_back(child);
  const size_t of_v = scratch_.size();
  for (int child = first_[other]; child >= 0; child = next_[child]) {
    if (child != v) scratch_.push_back(child);
  }
  Move(v, above_other);
  Move(other, new_above);
  for (size_t i = 0; i < scratch_.size(); ++i) Move(scratch_[i], i < of_v ? other : v);
  return true;
}

bool Annealing::SwapSubtrees(int v) {
  int other = RandomNode();
  if (many_nodes_) {
    const int to = RandomCandidate(v);
    if (children_[to] == 0) return false;
    other = RandomChild(to);
  }
  const int above_v = parent_[v], above_other = parent_[other];
  if (above_v == above_other) return false;
  if (!problem_.HasLink(above_other, v) || !problem_.HasLink(above_v, other)) return false;
  const int64_t change =
      problem_.Weight(above_other, v) + problem_.Weight(above_v, other) - cost_[v] - cost_[other];
  if (change > ceiling_ || Below(v, other) || Below(other, v)) return false;
  Move(v, above_other);
  Move(other, above_v);
  return true;
}

bool Annealing::StepInto(int v) {
  // v comes between `child` and its parent, where v would be cheap for one of them.
  int child = RandomNode();
  if (many_nodes_) {
    child = v;
    v = RandomCandidate(child);
    if (v == problem_.root || parent_[v] == kNoParent) return false;
  }
  const int above = parent_[child];
  if (child == v || above == v || parent_[v] == child) return false;
  if (!problem_.HasLink(above, v) || !problem_.HasLink(v, child)) return false;
  const int old = parent_[v];
  const bool prunes = !problem_.required[old] && old != problem_.root && children_[old] == 1;
  const int64_t change =
      problem_.Weight(above, v) - cost_[v] + problem_.Weight(v, child) - cost_[child];
  if (!prunes && change > ceiling_) return false;
  if (above != old && Below(above, v)) return false;
  if (above != old) Move(v, above);
  Move(child, v);
  PruneUp(old);
  return true;
}

bool Annealing::DropRelay(int v) {
  if (parent_[v] == kNoParent) return false;
  while (first_[v] >= 0) {
    const int child = first_[v];
    int to = kNoParent;
    for (int from : candidates_[child]) {
      ++work_;
      if (from == v || (from != problem_.root && parent_[from] == kNoParent)) continue;
      if (Full(from) || depth_[from] >= problem_.depth_max || Below(from, child)) continue;
      to = from;
      break;
    }
    if (to == kNoParent) return true;  // stays with the rest
    Move(child, to);
  }
  PruneUp(v);
  return true;
}

void Annealing::Propose(int64_t temperature) {
  work_ += kProposalWork;
  const int64_t room = Exponential(rng_, temperature);
  const int64_t before = Energy();
  // A move can mend what is broken, and no more: with what that is worth its change of weight is a
  // lower bound on what it changes.
  ceiling_ = room + before - weight_;
  log_.clear();
  const uint64_t kind = rng_.Below(16);
  const int v = RandomNode();
  bool made;
  if (kind < 8) {
    made = Reparent(v);
  } else if (kind < 11) {
    made = SwapNodes(v);
  } else if (kind < 13) {
    made = SwapSubtrees(v);
  } else if (kind < 15 || relays_.empty()) {
    made = StepInto(v);
  } else {
    made = DropRelay(relays_[rng_.Below(relays_.size())]);
  }
  if (made && Energy() - before > room) Undo();
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
      for (int i = 0; i < n_ && work_ < end; ++i) {
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
