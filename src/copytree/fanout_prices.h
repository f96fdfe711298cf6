// A lower bound for many nodes with limited fan-out, and a tree that hardly breaks the limits.
//
// Each state (state_graph.h) has a price: every child of it costs so much more, and as many
// children as the limit allows are paid back when the state is used. For any prices, dual ascent
// with them on the links is a bound. They follow a subgradient: the ascent uses some links up, and
// where a tree over these has more children than allowed, the price rises. One ascent over all
// links of 500 nodes takes half a second, so prices are looked for on the few best links into each
// node; one ascent over all links then gives the bound, and the links that it uses up join the few.
#pragma once

#include <cstdint>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/copytree/dual_ascent.h"
#include "tailcast/copytree/problem.h"
#include "tailcast/copytree/state_graph.h"

namespace tailcast::copytree {

// Dual ascent over a graph of its own, with prices on fan-out.
//
// Not thread-safe. The problem must outlive it.
class PricedAscent {
 public:
  PricedAscent(const Problem& problem, StateGraph graph);
  PricedAscent(const PricedAscent&) = delete;
  PricedAscent& operator=(const PricedAscent&) = delete;

  // A lower bound, also if `work_max` elementary steps cut it short. `fan_price[s]`, not negative,
  // is that of state s; empty: no prices.
  int64_t Run(const std::vector<int64_t>& fan_price, int64_t work_max);
  // The ascent of the last Run.
  const DualAscent& ascent() const { return ascent_; }
  const StateGraph& graph() const { return graph_; }
  // What the graph's links weigh without prices.
  const std::vector<int64_t>& base() const { return base_; }
  int64_t work() const { return ascent_.work() + work_; }

 private:
  const Problem& problem_;
  const StateGraph graph_;
  DualAscent ascent_;
  std::vector<int64_t> base_, weight_;
  int64_t work_ = 0;
};

// Not thread-safe. What the constructor is given must outlive it.
class FanoutPrices {
 public:
  // `all` is over every link, in a graph that has layers. `rank` [from * n + to]: the links with
  // the lowest are the best.
  FanoutPrices(const Problem& problem, const std::vector<int64_t>& rank, PricedAscent* all);

  // Improves the prices, with about `work_max` elementary steps, and returns the bound over all
  // links, which `all` has run for. `goal`: the weight of the best tree known.
  int64_t Improve(int64_t goal, int64_t work_max);
  // Keeps the links that the last ascent over all links used up; false if none is new.
  bool AddLinks();
  // No tree that the last ascents found asks for other prices.
  bool settled() const { return settled_; }
  // By the prices light, and it hardly breaks the limits on fan-out; empty before there is one.
  const Parents& tree() const { return tree_; }
  // Without that of `all`.
  int64_t work() const { return work_; }

 private:
  int64_t Spent() const { return all_->work() + work_; }
  StateGraph KeptGraph() const;
  // The direction in which the prices move, after trees over what the ascent used up.
  void Turn(const PricedAscent& few);

  void KeepTree(Parents tree);

  const Problem& problem_;
  PricedAscent* const all_;
  std::vector<char> kept_;      // [from * n + to]
  std::vector<int64_t> price_;  // of each state, the best so far
  std::vector<double> way_;     // of each state's price
  const int trees_;             // that a direction is the mean of
  double scale_;                // of a step
  bool settled_ = false;
  Parents tree_;
  int64_t tree_value_ = INT64_MAX;
  Rng rng_;
  const int64_t all_work_;  // of one ascent over all links, about
  int64_t work_ = 0;
};

}  // namespace tailcast::copytree
