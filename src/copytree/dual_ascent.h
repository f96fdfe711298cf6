// Wong's dual ascent for Steiner trees, on the state graph (state_graph.h).
//
// Any set of states that holds all states of a required node, but not the root, is entered by at
// least one link of every tree within the limits. The ascent gives such sets non-negative values
// while no link's weight is exceeded by the values of the sets that it enters; the sum of the
// values is a lower bound. On real prices without fan-out limits it usually equals the optimum.
#pragma once

#include <cstdint>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/copytree/problem.h"
#include "tailcast/copytree/state_graph.h"

namespace tailcast::copytree {

// Not thread-safe. The problem and the graph must outlive it.
class DualAscent {
 public:
  DualAscent(const Problem& problem, const StateGraph& graph);

  // `weight[l]` of link l of the graph, not negative. Required nodes out of reach count kUnserved
  // each. Integer arithmetic: the value holds exactly. An ascent that is cut short by `work_max`
  // elementary steps gives a valid, lower value.
  int64_t Run(const std::vector<int64_t>& weight, int64_t work_max);
  int64_t work() const { return work_; }
  // After Run: what is left of each link's weight.
  const std::vector<int64_t>& rest() const { return rest_; }
  // After Run: a tree over links that are used up, to every required node that the ascent
  // connected, in random order and each by the lightest way. The link into each state; -1 = outside
  // the tree.
  std::vector<int64_t> UsedUpTree(Rng* rng) const;
  // After Run, [from * n + to]: a tree within the limits that uses the link weighs at least so much
  // more than the value. INT64_MAX: no such tree uses it.
  std::vector<int64_t> LinkExcess() const;

 private:
  // From part_[next] on, adds the states from which it can be met for free. True: the root is one.
  bool Grow(size_t next);
  // Uses up at least one link into the part and lists where those come from in used_up_; returns by
  // how much. INT64_MAX: no link leads into it.
  int64_t Raise();

  const Problem& problem_;
  const StateGraph& graph_;
  const int slack_;  // a node is gone on with while its part is at most so many hundredths larger
  std::vector<int64_t> rest_;  // of each link's weight
  std::vector<int> mark_, part_, used_up_;
  int stamp_ = 0;  // marks what is in the part
  int64_t work_ = 0;
};

}  // namespace tailcast::copytree
