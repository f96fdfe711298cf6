// Lower bounds: no tree within the limits can weigh less. They tell a user how far from the optimum
// a plan can be at most, and let the search stop when it has met them.
#pragma once

#include <cstdint>
#include <vector>

#include "tailcast/copytree/fanout_prices.h"
#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

// The weight of the cheapest tree without limits, if every node is required; else 0.
int64_t ArborescenceBound(const Problem& problem, int64_t* work = nullptr);

// Bounds under all limits, from the integer program over the state graph, which knows depth and
// delay:
//
//   x[l] = 1: the link l of the graph is used
//   (a) the states of a required node are entered once in all, those of a relay at most once
//   (b) x[l] <= sum over links m into the state that l leaves, but from the node that l enters, x[m]
//   (c) sum over links l out of state s, x[l] <= fanout_max[node of s] * sum over links m into s, x[m]
//
// Dual ascent (dual_ascent.h) knows (a), (b) and more, but not (c). Where it leaves a gap, (b) and
// (c) are priced by multipliers that follow a subgradient: what is left falls apart into one choice
// for each node. That is a bound, and the prices of (c) alone, put on the links of a second ascent,
// give a better one. Among many nodes (fanout_prices.h) only (c) is priced. Any prices give a valid
// bound, in integers.
//
// What an ascent left of the links' weights. A tree within the limits weighs at least `value`, and
// what is left of each of its links besides.
struct LinkRests {
  int64_t value = 0;
  // [(depth * n + from) * n + to], of a link to `to` when it is at this depth. INT64_MAX: no tree
  // within the limits uses it so. Empty: nothing is known.
  std::vector<int64_t> left;
};

// Not thread-safe. The problem must outlive it.
class Bound {
 public:
  // `work_max` elementary steps, three times that if the first ascent needs them; also says how
  // finely delays are told apart. Memory: 50 bytes for each link of the state graph, which has at
  // most max(links * depth_max, work_max / 1000) of them.
  Bound(const Problem& problem, int64_t work_max);

  // The best bound so far; kUnserved and more: no tree meets the limits.
  int64_t value() const { return value_; }
  // Tries to raise it, until it is `goal` (the weight of the best tree known) or the work is used
  // up.
  void Raise(int64_t goal, int64_t work_max);
  // [from * n + to]: no tree within the limits that uses the link weighs less. INT64_MAX: there is
  // no such tree. Which links a better tree than one that is known can use, and likely does.
  const std::vector<int64_t>& link_bounds() const { return link_bounds_; }
  // Of the best ascent. Only where there is one state for each node at each depth and there are few
  // links.
  LinkRests Rests() const;
  // Raise, for more nodes than a search can look at pair by pair.
  void RaiseAmongMany(int64_t goal, int64_t work_max);
  // A tree that hardly breaks the limits, which the bound's prices think light; empty if there is
  // none yet, and it may leave required nodes out. Worth starting a search from.
  const Parents& relaxed_tree() const { return relaxed_tree_; }
  int64_t work() const { return all_.work() + work_; }
  // What it took to make the graph, besides.
  int64_t set_up_work() const { return set_up_work_; }

 private:
  // The value with the present prices of (b) and (c).
  int64_t PricedChoices();
  // After an ascent of this value.
  void KeepLinkBounds(int64_t value);
  // Trees of depth two: facility_bound.h.
  void RaiseByFacilities(int64_t goal, int64_t work_max);
  void FindWaysBack();
  // Moves the prices; false when no limit asks for it.
  bool Step(double length);

  const Problem& problem_;
  std::vector<int> fanout_;  // limits, at most the number of nodes
  PricedAscent all_;         // over the whole state graph
  const StateGraph& graph_;
  const std::vector<int64_t>& base_;             // weights of the graph's links
  std::vector<int64_t> link_price_, fan_price_;  // of (b) for each link, of (c) for each state
  std::vector<float> link_way_, fan_way_;        // the last direction of the prices
  std::vector<int64_t> back_;  // the link from where a link leads to where it came from; -1 = none
  std::vector<int64_t> chosen_;  // for each state the link into it, -1 = not used
  double price_most_ = 0;
  std::vector<int64_t> link_bounds_;
  std::vector<int64_t> best_rest_;  // of the ascent of this value, where there are few links
  int64_t best_ascent_ = INT64_MIN;
  Parents relaxed_tree_;
  int64_t value_ = 0;
  int64_t work_ = 0, set_up_work_ = 0;
};

}  // namespace tailcast::copytree
