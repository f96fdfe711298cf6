// Which parent each node takes when the layers are given; the search over layers is in
// layer_search.cc.
#include <algorithm>

#include "tailcast/copytree/layer_search.h"

namespace tailcast::copytree {
namespace {

// No member of a slot can move to the other one.
constexpr int64_t kNoShift = kUnserved * 4;

}  // namespace

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

// A transportation problem, solved by cancelling negative cycles: the children of each inner node
// are the members of its slot, and those that nobody feeds are the members of one more.
void LayerSearch::AssignCapped() {
  ListSlots();
  int64_t total = PlaceMembers();
  const size_t stride = static_cast<size_t>(slots_) + 1;
  shift_.resize(stride * stride);
  shift_node_.resize(stride * stride);
  for (int slot = 0; slot <= slots_; ++slot) FillShifts(slot);
  distance_.resize(stride + 1);
  for (int s = 0; s < slots_; ++s) distance_[s] = -state_.price[inner_[s]];
  distance_[Unserved()] = distance_[Slack()] = 0;
  while (FindNegativeCycle()) total += MoveAlongCycle();

  // The distances of the last round, in which nothing moved, are the dual prices.
  std::fill(state_.price.begin(), state_.price.end(), 0);
  for (int s = 0; s < slots_; ++s) {
    state_.price[inner_[s]] = distance_[Slack()] - distance_[s];
    for (int v : members_[s]) state_.assigned[v] = inner_[s];
  }
  for (int v : members_[Unserved()]) state_.assigned[v] = kNoParent;
  state_.weight = total;
}

bool LayerSearch::HasRoom(int slot) const {
  return slot == Unserved() ||
         static_cast<int>(members_[slot].size()) < problem_.fanout_max[inner_[slot]];
}

bool LayerSearch::MayJoin(int v, int slot) const {
  const int from = inner_[slot];
  return problem_.HasLink(from, v) && Admits(state_, from, state_.layer[v], state_.budget[v], v);
}

int64_t LayerSearch::Cost(int v, int slot) const {
  return slot == Unserved() ? kUnserved : problem_.Weight(inner_[slot], v);
}

void LayerSearch::ListSlots() {
  slots_ = static_cast<int>(inner_.size());
  slot_of_.assign(problem_.n, -1);
  slot_layer_.resize(slots_);
  for (int s = 0; s < slots_; ++s) {
    slot_of_[inner_[s]] = s;
    slot_layer_[s] = state_.layer[inner_[s]];
  }
  if (members_.size() <= static_cast<size_t>(slots_)) members_.resize(slots_ + 1);
  for (int s = 0; s <= slots_; ++s) members_[s].clear();
}

int64_t LayerSearch::PlaceMembers() {
  order_.clear();  // those that look for a parent
  int64_t total = 0;
  for (int v = 0; v < problem_.n; ++v) {
    if (v == problem_.root) continue;
    if (state_.layer[v] == kAbsent) {
      state_.assigned[v] = kNoParent;
      continue;
    }
    const int parent = state_.assigned[v];
    const int s = parent == kNoParent ? -1 : slot_of_[parent];
    if (s >= 0 && HasRoom(s) && MayJoin(v, s)) {
      members_[s].push_back(v);
      total += Cost(v, s);
    } else {
      order_.push_back(v);
    }
  }
  for (int v : order_) {
    int where = Unserved();
    int64_t least = kUnserved;
    for (int s = 0; s < slots_; ++s) {
      if (HasRoom(s) && Cost(v, s) < least && MayJoin(v, s)) {
        where = s;
        least = Cost(v, s);
      }
    }
    members_[where].push_back(v);
    total += least;
  }
  work_ += static_cast<int64_t>(order_.size()) * slots_;
  return total;
}

void LayerSearch::FillShifts(int slot) {
  const size_t stride = static_cast<size_t>(slots_) + 1;
  int64_t* row = &shift_[slot * stride];
  int* node = &shift_node_[slot * stride];
  std::fill(row, row + stride, kNoShift);
  for (int v : members_[slot]) {
    const int64_t now = Cost(v, slot);
    const int layer = state_.layer[v];
    const int64_t* entering = &entering_[static_cast<size_t>(v) * problem_.n];
    for (int to = 0; to < slots_; ++to) {
      const int64_t change = entering[inner_[to]] - now;
      if (change < row[to] && slot_layer_[to] < layer && to != slot && MayJoin(v, to)) {
        row[to] = change;
        node[to] = v;
      }
    }
    if (slot != Unserved() && kUnserved - now < row[Unserved()]) {
      row[Unserved()] = kUnserved - now;
      node[Unserved()] = v;
    }
  }
  work_ += static_cast<int64_t>(members_[slot].size()) * slots_;
}

bool LayerSearch::FindNegativeCycle() {
  previous_.assign(slots_ + 2, -1);
  while (RelaxDistances()) {
    // A cycle among the predecessors is a negative cycle.
    mark_.assign(slots_ + 2, 0);
    for (int start = 0; start < slots_ + 2; ++start) {
      int at = start;
      while (at >= 0 && mark_[at] == 0) {
        mark_[at] = start + 1;
        at = previous_[at];
      }
      if (at < 0 || mark_[at] != start + 1) continue;
      order_.clear();
      const int end = at;
      do {
        order_.push_back(at);
        at = previous_[at];
      } while (at != end);
      return true;
    }
  }
  return false;
}

bool LayerSearch::RelaxDistances() {
  const int stride = slots_ + 1, slack = Slack();
  bool changed = false;
  for (int from = 0; from < stride; ++from) {
    const int64_t base = distance_[from];
    const int64_t* row = &shift_[static_cast<size_t>(from) * stride];
    for (int to = 0; to < stride; ++to) {
      if (base + row[to] < distance_[to] && row[to] < kNoShift) {
        distance_[to] = base + row[to];
        previous_[to] = from;
        changed = true;
      }
    }
    if (HasRoom(from) && base < distance_[slack]) {
      distance_[slack] = base;
      previous_[slack] = from;
      changed = true;
    }
  }
  for (int to = 0; to < stride; ++to) {
    if (distance_[slack] < distance_[to]) {
      distance_[to] = distance_[slack];
      previous_[to] = slack;
      changed = true;
    }
  }
  work_ += static_cast<int64_t>(stride) * stride;
  return changed;
}

int64_t LayerSearch::MoveAlongCycle() {
  int64_t change = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    const int to = order_[i];
    const int from = order_[(i + 1) % order_.size()];
    if (from == Slack() || to == Slack()) continue;
    const size_t entry = static_cast<size_t>(from) * (slots_ + 1) + to;
    const int v = shift_node_[entry];
    change += shift_[entry];
    members_[from].erase(std::find(members_[from].begin(), members_[from].end(), v));
    members_[to].push_back(v);
  }
  for (int at : order_) {
    if (at != Slack()) FillShifts(at);
  }
  return change;
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

}  // namespace tailcast::copytree
