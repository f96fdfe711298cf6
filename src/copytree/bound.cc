#include "tailcast/copytree/bound.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "tailcast/copytree/arborescence.h"

namespace tailcast::copytree {
namespace {

constexpr int64_t kNoLink = INT64_MAX / 2;

// The subgradient's step shrinks after so many rounds without a better bound.
constexpr int kPatience = 16;
constexpr double kShrink = 0.9;
constexpr double kStepMin = 0.01;
// Part of the last direction that the next one keeps; single choices jump about.
constexpr double kMemory = 0.4;
constexpr int kRoundsMax = 1500;
// Every so many rounds the method asks itself whether it can still pass the known bound: what is
// left to gain is hardly ever more than three times what the last rounds brought.
constexpr int kReview = 150;

// For each depth h and node v the least delay over exactly h links, and from it which links can be
// part of a path in time. Both bounds leave out the others.
class Reach {
 public:
  explicit Reach(const Problem& problem) : problem_(problem) {
    const int n = problem.n;
    earliest_.assign(static_cast<size_t>(problem.depth_max + 1) * n, kNoDelayLimit);
    earliest_[problem.root] = 0;
    for (int h = 1; h <= problem.depth_max; ++h) {
      for (int from = 0; from < n; ++from) {
        const int64_t at = earliest_[static_cast<size_t>(h - 1) * n + from];
        if (at >= kNoDelayLimit) continue;
        for (int to = 0; to < n; ++to) {
          if (to == problem.root || to == from || !problem.HasLink(from, to)) continue;
          int64_t& slot = earliest_[static_cast<size_t>(h) * n + to];
          slot = std::min(slot, at + problem.Delay(from, to));
        }
      }
    }
  }

  // May a tree use from -> to with `to` at depth h?
  bool Usable(int h, int from, int to) const {
    if (from == to || to == problem_.root || !problem_.HasLink(from, to)) return false;
    const int64_t at = earliest_[static_cast<size_t>(h - 1) * problem_.n + from];
    return at < kNoDelayLimit && at + problem_.Delay(from, to) <= problem_.delay_max_us;
  }

 private:
  const Problem& problem_;
  std::vector<int64_t> earliest_;
};

class Ascent {
 public:
  explicit Ascent(const Problem& problem)
      : problem_(problem), n_(problem.n), depth_max_(problem.depth_max) {
    const Reach reach(problem);
    rest_.assign(static_cast<size_t>(depth_max_) * n_ * n_, kNoLink);
    for (int h = 1; h <= depth_max_; ++h) {
      for (int to = 0; to < n_; ++to) {
        for (int from = 0; from < n_; ++from) {
          if (reach.Usable(h, from, to)) Row(h, to)[from] = problem.Weight(from, to);
        }
      }
    }
  }

  int64_t Run(int64_t work_max);

 private:
  // What is left of the weights of the links into (to, h), by their origin.
  int64_t* Row(int h, int to) { return &rest_[(static_cast<size_t>(h - 1) * n_ + to) * n_]; }
  size_t Copy(int h, int v) const { return static_cast<size_t>(h) * n_ + v; }

  const Problem& problem_;
  const int n_;
  const int depth_max_;
  std::vector<int64_t> rest_;
};

int64_t Ascent::Run(int64_t work_max) {
  int64_t bound = 0;
  int64_t work = 0;
  std::vector<int> mark(Copy(depth_max_ + 1, 0), -1);
  std::vector<std::pair<int, int>> part;  // (h, v): copies from which the node can be met for free
  int stamp = 0;
  // Nodes still cut off, the smallest part first: small sets are the strongest cuts.
  std::priority_queue<std::pair<int, int>, std::vector<std::pair<int, int>>, std::greater<>>
      cut_off;
  for (int v = 0; v < n_; ++v) {
    if (v != problem_.root && problem_.required[v]) cut_off.emplace(0, v);
  }
  while (!cut_off.empty() && work < work_max) {
    const auto [size_before, node] = cut_off.top();
    cut_off.pop();
    ++stamp;
    part.clear();
    bool connected = false;
    for (int h = 1; h <= depth_max_; ++h) {
      mark[Copy(h, node)] = stamp;
      part.emplace_back(h, node);
    }
    for (size_t next = 0; next < part.size() && !connected; ++next) {
      const auto [h, to] = part[next];
      const int64_t* row = Row(h, to);
      if (h == 1) {
        connected = row[problem_.root] == 0;
        continue;
      }
      work += n_;
      for (int from = 0; from < n_; ++from) {
        if (row[from] == 0 && mark[Copy(h - 1, from)] != stamp) {
          mark[Copy(h - 1, from)] = stamp;
          part.emplace_back(h - 1, from);
        }
      }
    }
    if (connected) continue;
    const int size = static_cast<int>(part.size());
    if (size > size_before && !cut_off.empty() && size > cut_off.top().first) {
      cut_off.emplace(size, node);
      continue;
    }
    int64_t raise = kNoLink;
    for (const auto& [h, to] : part) {
      const int64_t* row = Row(h, to);
      if (h == 1) {
        raise = std::min(raise, row[problem_.root]);
        continue;
      }
      work += n_;
      const int* above = &mark[Copy(h - 1, 0)];
      for (int from = 0; from < n_; ++from) {
        if (row[from] < raise && above[from] != stamp) raise = row[from];
      }
    }
    if (raise >= kNoLink / 2) {  // out of reach
      bound += kUnserved;
      continue;
    }
    for (const auto& [h, to] : part) {
      int64_t* row = Row(h, to);
      if (h == 1) {
        row[problem_.root] -= raise;
        continue;
      }
      work += n_;
      const int* above = &mark[Copy(h - 1, 0)];
      for (int from = 0; from < n_; ++from) {
        if (above[from] != stamp) row[from] -= raise;
      }
    }
    bound += raise;
    cut_off.emplace(size, node);
  }
  return bound;
}

class Subgradient {
 public:
  explicit Subgradient(const Problem& problem)
      : problem_(problem), n_(problem.n), depth_max_(problem.depth_max), reach_(problem) {
    const size_t links = static_cast<size_t>(depth_max_) * n_ * n_;
    link_price_.assign(links, 0);
    link_way_.assign(links, 0);
    fan_price_.assign(static_cast<size_t>(depth_max_) * n_, 0);
    fan_way_.assign(static_cast<size_t>(depth_max_) * n_, 0);
    parent_.assign(n_, kNoParent);
    depth_.assign(n_, 0);
  }

  // Value of the problem with the present prices; a lower bound.
  int64_t Evaluate();
  // Moves the prices. False when no constraint asks for it.
  bool Step(double length);

 private:
  // Of (b) at (h, j, k) and of (c) at (h, j); h = 0 is the root's.
  size_t LinkAt(int h, int j, int k) const { return (static_cast<size_t>(h) * n_ + j) * n_ + k; }
  size_t FanAt(int h, int j) const { return static_cast<size_t>(h) * n_ + j; }

  const Problem& problem_;
  const int n_;
  const int depth_max_;
  const Reach reach_;
  std::vector<int64_t> link_price_, fan_price_;
  std::vector<float> link_way_, fan_way_;
  std::vector<int> parent_, depth_;  // the choice of the last Evaluate
};

int64_t Subgradient::Evaluate() {
  std::vector<int64_t> best(n_, INT64_MAX), least(n_);
  std::vector<int> by(n_);
  std::fill(parent_.begin(), parent_.end(), kNoParent);
  std::fill(depth_.begin(), depth_.end(), 0);
  for (int h = 1; h <= depth_max_; ++h) {
    std::fill(least.begin(), least.end(), INT64_MAX);
    for (int i = 0; i < n_; ++i) {
      if ((h == 1) != (i == problem_.root)) continue;
      const int64_t fan = fan_price_[FanAt(h - 1, i)];
      for (int j = 0; j < n_; ++j) {
        if (!reach_.Usable(h, i, j)) continue;
        int64_t value = problem_.Weight(i, j) + fan;
        if (h > 1) value += link_price_[LinkAt(h - 1, i, j)];
        if (h < depth_max_) value += link_price_[LinkAt(h, j, i)];
        if (value < least[j]) {
          least[j] = value;
          by[j] = i;
        }
      }
    }
    for (int j = 0; j < n_; ++j) {
      if (least[j] == INT64_MAX) continue;
      int64_t value = least[j];
      if (h < depth_max_) {
        const int64_t* price = &link_price_[LinkAt(h, j, 0)];
        for (int k = 0; k < n_; ++k) value -= price[k];
        value -= fan_price_[FanAt(h, j)] * problem_.fanout_max[j];
      }
      if (value < best[j]) {
        best[j] = value;
        parent_[j] = by[j];
        depth_[j] = h;
      }
    }
  }
  int64_t total = -fan_price_[FanAt(0, problem_.root)] * problem_.fanout_max[problem_.root];
  for (int j = 0; j < n_; ++j) {
    if (j == problem_.root) continue;
    if (problem_.required[j]) {
      total += std::min(best[j], kUnserved);
    } else if (best[j] < 0) {
      total += best[j];
    } else {
      parent_[j] = kNoParent;
      depth_[j] = 0;
    }
  }
  return total;
}

bool Subgradient::Step(double length) {
  std::vector<float> fan(fan_way_.size(), 0);
  fan[FanAt(0, problem_.root)] = static_cast<float>(-problem_.fanout_max[problem_.root]);
  for (int j = 0; j < n_; ++j) {
    if (depth_[j] < 1) continue;
    fan[FanAt(depth_[j] - 1, parent_[j])] += 1;
    if (depth_[j] < depth_max_) {
      fan[FanAt(depth_[j], j)] -= static_cast<float>(problem_.fanout_max[j]);
    }
  }
  double norm = 0;
  const auto blend = [&norm](float* way, double excess, int64_t price) {
    *way = static_cast<float>(kMemory * *way + (1 - kMemory) * excess);
    if (price <= 0 && *way < 0) *way = 0;
    norm += static_cast<double>(*way) * *way;
  };
  for (size_t i = 0; i < fan.size(); ++i) blend(&fan_way_[i], fan[i], fan_price_[i]);
  for (int h = 1; h < depth_max_; ++h) {
    for (int j = 0; j < n_; ++j) {
      const bool here = depth_[j] == h;
      for (int k = 0; k < n_; ++k) {
        double excess = 0;
        if (depth_[k] == h + 1 && parent_[k] == j) excess += 1;
        if (here && k != j && k != parent_[j] && k != problem_.root) excess -= 1;
        blend(&link_way_[LinkAt(h, j, k)], excess, link_price_[LinkAt(h, j, k)]);
      }
    }
  }
  if (norm == 0) return false;
  const double step = length / norm;
  const auto move = [step](int64_t* price, float way) {
    *price = std::max<int64_t>(0, *price + static_cast<int64_t>(step * way));
  };
  for (size_t i = 0; i < fan.size(); ++i) move(&fan_price_[i], fan_way_[i]);
  for (size_t i = 0; i < link_price_.size(); ++i) {
    if (link_way_[i] != 0) move(&link_price_[i], link_way_[i]);
  }
  return true;
}

}  // namespace

int64_t DualAscentBound(const Problem& problem, int64_t work_max) {
  return Ascent(problem).Run(work_max);
}

int64_t LagrangianBound(const Problem& problem, int64_t goal, int64_t known, int64_t work_max) {
  Subgradient method(problem);
  const int64_t round_work =
      3 * static_cast<int64_t>(problem.depth_max) * problem.n * problem.n + 1;
  const int64_t rounds = std::min<int64_t>(kRoundsMax, work_max / round_work);
  if (rounds < int64_t{2} * kReview) return known;  // too few to get anywhere
  int64_t bound = INT64_MIN;
  int64_t reviewed = 0;
  double scale = 1;
  int idle = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t value = method.Evaluate();
    if (value > bound) {
      bound = value;
      idle = 0;
    } else if (++idle >= kPatience) {
      idle = 0;
      scale *= kShrink;
    }
    if (bound >= goal || scale < kStepMin) break;
    if (round % kReview == kReview - 1) {
      const int64_t gain = bound - reviewed;
      if (round >= kReview && bound + 3 * gain < known) break;
      reviewed = bound;
    }
    if (!method.Step(scale * static_cast<double>(goal - value))) break;
  }
  return bound;
}

int64_t ArborescenceBound(const Problem& problem) {
  for (int v = 0; v < problem.n; ++v) {
    if (v != problem.root && !problem.required[v]) return 0;
  }
  return TotalWeight(problem, MinArborescence(problem));
}

}  // namespace tailcast::copytree
