#include "tailcast/copytree/fanout_prices.h"

#include <algorithm>
#include <utility>

#include "tailcast/copytree/starts.h"

namespace tailcast::copytree {
namespace {

// The links into each node to begin with.
constexpr size_t kBestLinks = 12;
// Ascents on the links that are kept, for each one over all links.
constexpr int kRounds = 30;
// A step is this part of the one that would close the gap, which is taken to be at most 2 %, if the
// ascent were linear; it shrinks after so many rounds without a better value.
constexpr int64_t kGapPart = 50;
constexpr double kFirstScale = 0.15, kShrink = 0.9, kScaleLeast = 0.02;
constexpr int kPatience = 8;
// Part of the last direction that the next one keeps.
constexpr double kMemory = 0.5;
// A direction is the mean of those of so many trees, fewer among more nodes: single ones jump
// about.
constexpr int kTreesMost = 6, kTreesNodes = 3000;
// What a tree costs in elementary steps for each link that is kept.
constexpr int64_t kTreeWork = 10;
// A child too many is worth so many links to a tree.
constexpr int64_t kBrokenLinks = 2;
// Prices stay below this by the number of nodes, so that sums fit an int64_t.
constexpr double kPricesMost = 1e15;

int FanoutLimit(const Problem& problem, int v) {
  return std::clamp(problem.fanout_max[v], 0, problem.n);
}

// By the first link into each node that a state of it is entered by: the one nearest to the root.
Parents ToParents(const Problem& problem, const StateGraph& graph,
                  const std::vector<int64_t>& links) {
  Parents parents(problem.n, kNoParent);
  for (int s = 1; s < graph.size(); ++s) {  // sorted by depth
    int& parent = parents[graph.node[s]];
    if (links[s] >= 0 && parent == kNoParent) parent = graph.node[graph.from[links[s]]];
  }
  return parents;
}

}  // namespace

PricedAscent::PricedAscent(const Problem& problem, StateGraph graph)
    : problem_(problem), graph_(std::move(graph)), ascent_(problem, graph_) {
  base_.reserve(graph_.from.size());
  for (int to = 1; to < graph_.size(); ++to) {
    for (int64_t link = graph_.first_in[to]; link < graph_.first_in[to + 1]; ++link) {
      base_.push_back(problem.Weight(graph_.node[graph_.from[link]], graph_.node[to]));
    }
  }
}

int64_t PricedAscent::Run(const std::vector<int64_t>& fan_price, int64_t work_max) {
  if (fan_price.empty()) return ascent_.Run(base_, work_max);
  // What is paid back for a state comes off the links into it. So that no weight is negative, each
  // link into a node costs what is paid back for the dearest state; as one of them is used at most,
  // that comes off at the end.
  const auto limit = [this](int v) { return int64_t{FanoutLimit(problem_, v)}; };
  std::vector<int64_t> most(problem_.n, 0);
  int64_t constant = fan_price[0] * limit(problem_.root);
  for (int v = 0; v < problem_.n; ++v) {
    if (v == problem_.root) continue;
    for (int state : graph_.of_node[v]) most[v] = std::max(most[v], fan_price[state]);
    constant += most[v] * limit(v);
  }
  weight_.resize(base_.size());
  for (int to = 1; to < graph_.size(); ++to) {
    const int v = graph_.node[to];
    const int64_t into = (most[v] - fan_price[to]) * limit(v);
    for (int64_t link = graph_.first_in[to]; link < graph_.first_in[to + 1]; ++link) {
      weight_[link] = base_[link] + into + fan_price[graph_.from[link]];
    }
  }
  work_ += static_cast<int64_t>(base_.size());
  return ascent_.Run(weight_, work_max) - constant;
}

FanoutPrices::FanoutPrices(const Problem& problem, const std::vector<int64_t>& rank,
                           PricedAscent* all)
    : problem_(problem),
      all_(all),
      kept_(problem.weight.size(), 0),
      price_(all->graph().size(), 0),
      way_(all->graph().size(), 0),
      trees_(std::clamp(kTreesNodes / problem.n, 1, kTreesMost)),
      scale_(kFirstScale),
      rng_(1),
      all_work_(all->work()) {
  const auto at = [&](int from, int to) { return static_cast<size_t>(from) * problem.n + to; };
  std::vector<int> from;
  for (int to = 0; to < problem.n; ++to) {
    from.clear();
    for (int v = 0; v < problem.n; ++v) {
      if (v != to && problem.HasLink(v, to)) from.push_back(v);
    }
    const size_t best = std::min(kBestLinks, from.size());
    std::partial_sort(from.begin(), from.begin() + static_cast<int64_t>(best), from.end(),
                      [&](int a, int b) {
                        return std::pair(rank[at(a, to)], a) < std::pair(rank[at(b, to)], b);
                      });
    for (size_t i = 0; i < best; ++i) kept_[at(from[i], to)] = 1;
    kept_[at(problem.root, to)] = 1;
  }
  const Parents short_ways = FewestHops(problem);  // everything stays within reach
  for (int to = 0; to < problem.n; ++to) {
    if (short_ways[to] != kNoParent) kept_[at(short_ways[to], to)] = 1;
  }
  work_ += static_cast<int64_t>(kept_.size()) * 4;
}

StateGraph FanoutPrices::KeptGraph() const {
  const StateGraph& all = all_->graph();
  StateGraph kept;
  kept.node = all.node;
  kept.depth = all.depth;
  kept.of_node = all.of_node;
  kept.first_in = {0, 0};
  for (int to = 1; to < all.size(); ++to) {
    for (int64_t link = all.first_in[to]; link < all.first_in[to + 1]; ++link) {
      const size_t from = static_cast<size_t>(all.node[all.from[link]]);
      if (kept_[from * problem_.n + all.node[to]]) kept.from.push_back(all.from[link]);
    }
    kept.first_in.push_back(static_cast<int64_t>(kept.from.size()));
  }
  return kept;
}

void FanoutPrices::Turn(const PricedAscent& few) {
  const StateGraph& graph = few.graph();
  std::vector<int> excess(graph.size(), 0);
  excess[0] = -trees_ * FanoutLimit(problem_, problem_.root);
  for (int tree = 0; tree < trees_; ++tree) {
    const std::vector<int64_t> links = few.ascent().UsedUpTree(&rng_);
    for (int s = 1; s < graph.size(); ++s) {
      if (links[s] < 0) continue;
      ++excess[graph.from[links[s]]];
      excess[s] -= FanoutLimit(problem_, graph.node[s]);
    }
    KeepTree(ToParents(problem_, graph, links));
  }
  for (int s = 0; s < graph.size(); ++s) {
    way_[s] = kMemory * way_[s] + (1 - kMemory) * excess[s] / trees_;
  }
}

void FanoutPrices::KeepTree(Parents tree) {
  std::vector<int> children(problem_.n, 0);
  int64_t weight = TotalWeight(problem_, tree), broken = 0;
  for (int v = 0; v < problem_.n; ++v) {
    const int parent = tree[v];
    if (parent != kNoParent) broken += ++children[parent] > problem_.fanout_max[parent];
  }
  const int64_t value = weight + broken * (kBrokenLinks * weight / problem_.n);
  if (value >= tree_value_) return;
  tree_value_ = value;
  tree_ = std::move(tree);
}

int64_t FanoutPrices::Improve(int64_t goal, int64_t work_max) {
  // One ascent over all links comes last.
  const int64_t end = Spent() + work_max, few_end = end - all_work_;
  PricedAscent few(problem_, KeptGraph());
  const int64_t before = work_ + static_cast<int64_t>(all_->graph().from.size());
  std::vector<int64_t> price = price_;
  std::fill(way_.begin(), way_.end(), 0);
  scale_ = std::max(scale_, kScaleLeast);
  const double most = kPricesMost / problem_.n;
  int64_t best = INT64_MIN;
  int idle = 0;
  int64_t trees = 0;  // work for them
  for (int round = 0; round < kRounds && Spent() < few_end; ++round) {
    const int64_t value = few.Run(price, few_end - Spent());
    Turn(few);
    trees += trees_ * kTreeWork * static_cast<int64_t>(few.base().size());
    work_ = before + few.work() + trees;
    if (value > best) {
      best = value;
      price_ = price;
      idle = 0;
    } else if (++idle >= kPatience) {
      idle = 0;
      scale_ *= kShrink;
    }
    double norm = 0;
    for (int s = 0; s < few.graph().size(); ++s) {
      if (price[s] <= 0 && way_[s] < 0) way_[s] = 0;
      norm += way_[s] * way_[s];
    }
    settled_ = norm == 0;
    if (value >= goal || settled_) break;
    const double gap =
        static_cast<double>(std::min(goal - value, std::max<int64_t>(best / kGapPart, 1)));
    const double step = scale_ * gap / norm;
    for (int s = 0; s < few.graph().size(); ++s) {
      const double moved = static_cast<double>(price[s]) + step * way_[s];
      price[s] = static_cast<int64_t>(std::clamp(moved, 0.0, most));
    }
  }
  return all_->Run(price_, 2 * all_work_);
}

bool FanoutPrices::AddLinks() {
  const StateGraph& graph = all_->graph();
  bool added = false;
  for (int to = 1; to < graph.size(); ++to) {
    for (int64_t link = graph.first_in[to]; link < graph.first_in[to + 1]; ++link) {
      if (all_->ascent().rest()[link] != 0) continue;
      const size_t from = static_cast<size_t>(graph.node[graph.from[link]]);
      char& kept = kept_[from * problem_.n + graph.node[to]];
      added |= kept == 0;
      kept = 1;
    }
  }
  return added;
}

}  // namespace tailcast::copytree
