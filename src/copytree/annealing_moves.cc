// The moves of annealing.h.
#include <algorithm>
#include <bit>
#include <utility>

#include "tailcast/copytree/annealing.h"

namespace tailcast::copytree {
namespace {

// What a proposal costs in elementary steps; measured.
constexpr int64_t kProposalWork = 60;
// So many children move on, one out of the way of the other, when a full node gets one more.
constexpr int kChain = 4;
// One proposal in so many looks among all links into a node.
constexpr int kAnyLink = 8, kManyAnyLink = 16;

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

bool Annealing::Below(int v, int ancestor) const {
  for (; v != kNoParent; v = parent_[v]) {
    if (v == ancestor) return true;
  }
  return false;
}

int Annealing::RandomNode() {
  if (around_.empty()) return nodes_[rng_.Below(nodes_.size())];
  for (;;) {  // the first one is always in the tree
    const int v = around_[rng_.Below(around_.size())];
    if (parent_[v] != kNoParent) return v;
  }
}

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
  } else if (kind < 15 || relays_.empty() || !around_.empty()) {
    made = StepInto(v);
  } else {
    made = DropRelay(relays_[rng_.Below(relays_.size())]);
  }
  if (made && Energy() - before > room) Undo();
}

}  // namespace tailcast::copytree
