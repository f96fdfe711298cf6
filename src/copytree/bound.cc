#include "tailcast/copytree/bound.h"

#include <algorithm>
#include <utility>

#include "tailcast/copytree/arborescence.h"
#include "tailcast/copytree/facility_bound.h"

namespace tailcast::copytree {
namespace {

// The graph may be so fine that the work holds this many steps for each of its links.
constexpr int64_t kWorkPerLink = 1000;
// The first ascent may take so many times the work: without its end there is no bound worth having.
constexpr int64_t kFirstAscent = 3;
// A round of the subgradient costs so many steps for each link.
constexpr int64_t kRoundWork = 6;
// The prices of one node's links, and one price for each of its children, stay below this; nodes
// times it fits an int64_t.
constexpr double kPricesMost = 1e15;
constexpr int64_t kRoundsLeast = 100;
// The subgradient's step shrinks after so many rounds without a better value.
constexpr int kPatience = 16;
constexpr double kShrink = 0.9;
constexpr double kScaleMin = 0.005;
// Part of the last direction that the next one keeps; single choices jump about.
constexpr double kMemory = 0.4;
// What an ascent leaves is kept for graphs of so many links.
constexpr size_t kFewLinks = 20'000;
// An ascent with the prices every so many rounds.
constexpr int kAscentEvery = 100;

}  // namespace

int64_t ArborescenceBound(const Problem& problem, int64_t* work) {
  for (int v = 0; v < problem.n; ++v) {
    if (v != problem.root && !problem.required[v]) return 0;
  }
  return TotalWeight(problem, MinArborescence(problem, work));
}

Bound::Bound(const Problem& problem, int64_t work_max)
    : problem_(problem),
      fanout_(problem.fanout_max),
      all_(problem, MakeStateGraph(problem, work_max / kWorkPerLink)),
      graph_(all_.graph()),
      base_(all_.base()) {
  for (int& limit : fanout_) limit = std::clamp(limit, 0, problem.n);
  const int64_t ascent = all_.Run({}, kFirstAscent * work_max);
  set_up_work_ = graph_.work;
  value_ = std::max(ArborescenceBound(problem, &set_up_work_), ascent);
  link_bounds_.assign(problem.weight.size(), 0);
  KeepLinkBounds(ascent);
}

void Bound::KeepLinkBounds(int64_t value) {
  if (base_.size() <= kFewLinks && value > best_ascent_) {
    best_ascent_ = value;
    best_rest_ = all_.ascent().rest();
  }
  const std::vector<int64_t> excess = all_.ascent().LinkExcess();
  for (size_t l = 0; l < excess.size(); ++l) {
    const int64_t bound = excess[l] == INT64_MAX ? INT64_MAX : value + excess[l];
    link_bounds_[l] = std::max(link_bounds_[l], bound);
  }
  work_ += static_cast<int64_t>(base_.size() + excess.size());
}

LinkRests Bound::Rests() const {
  LinkRests rests;
  if (!graph_.layered || best_rest_.empty()) return rests;
  const size_t n = static_cast<size_t>(problem_.n);
  rests.value = best_ascent_;
  rests.left.assign((static_cast<size_t>(problem_.depth_max) + 1) * n * n, INT64_MAX);
  for (int to = 1; to < graph_.size(); ++to) {
    for (int64_t link = graph_.first_in[to]; link < graph_.first_in[to + 1]; ++link) {
      const size_t from = static_cast<size_t>(graph_.node[graph_.from[link]]);
      int64_t& left = rests.left[(graph_.depth[to] * n + from) * n + graph_.node[to]];
      left = std::min(left, best_rest_[link]);  // under a delay limit by the best class of times
    }
  }
  return rests;
}

int64_t Bound::PricedChoices() {
  const int states = graph_.size();
  std::vector<int64_t> value(states, 0);  // of being at the state, its way in included
  // What the links out of a state pay for it, and the limit on them.
  for (int to = 1; to < states; ++to) {
    for (int64_t link = graph_.first_in[to]; link < graph_.first_in[to + 1]; ++link) {
      value[graph_.from[link]] -= link_price_[link];
    }
  }
  for (int s = 0; s < states; ++s) value[s] -= fan_price_[s] * fanout_[graph_.node[s]];
  int64_t total = value[0];  // the root is there anyway: (b) has no price on its links
  std::fill(chosen_.begin(), chosen_.end(), -1);
  for (int v = 0; v < problem_.n; ++v) {
    if (v == problem_.root) continue;
    int64_t best = INT64_MAX, by = -1;
    int at = -1;
    for (int state : graph_.of_node[v]) {
      for (int64_t link = graph_.first_in[state]; link < graph_.first_in[state + 1]; ++link) {
        int64_t here =
            value[state] + base_[link] + link_price_[link] + fan_price_[graph_.from[link]];
        if (back_[link] >= 0) here += link_price_[back_[link]];
        if (here < best) {
          best = here;
          by = link;
          at = state;
        }
      }
    }
    if (by < 0 || (!problem_.required[v] && best >= 0)) continue;
    total += best;
    chosen_[at] = by;
  }
  work_ += kRoundWork * static_cast<int64_t>(base_.size());
  return total;
}

bool Bound::Step(double length) {
  const int states = graph_.size();
  std::vector<float> fan(states, 0);
  fan[0] = static_cast<float>(-fanout_[problem_.root]);
  for (int to = 1; to < states; ++to) {
    if (chosen_[to] < 0) continue;
    fan[graph_.from[chosen_[to]]] += 1;
    fan[to] -= static_cast<float>(fanout_[graph_.node[to]]);
  }
  double norm = 0;
  const auto blend = [&norm](float* way, double excess, int64_t price) {
    *way = static_cast<float>(kMemory * *way + (1 - kMemory) * excess);
    if (price <= 0 && *way < 0) *way = 0;
    norm += static_cast<double>(*way) * *way;
  };
  for (int s = 0; s < states; ++s) blend(&fan_way_[s], fan[s], fan_price_[s]);
  for (int to = 1; to < states; ++to) {
    for (int64_t link = graph_.first_in[to]; link < graph_.first_in[to + 1]; ++link) {
      const int from = graph_.from[link];
      if (from == 0) continue;
      double excess = chosen_[to] == link ? 1 : 0;
      if (chosen_[from] >= 0 && graph_.node[graph_.from[chosen_[from]]] != graph_.node[to]) {
        excess -= 1;
      }
      blend(&link_way_[link], excess, link_price_[link]);
    }
  }
  if (norm == 0) return false;
  const double step = length / norm;
  const auto move = [&](int64_t* price, float way) {
    const double moved = static_cast<double>(*price) + step * way;
    *price = static_cast<int64_t>(std::clamp(moved, 0.0, price_most_));
  };
  for (int s = 0; s < states; ++s) move(&fan_price_[s], fan_way_[s]);
  for (size_t l = 0; l < link_price_.size(); ++l) {
    if (link_way_[l] != 0) move(&link_price_[l], link_way_[l]);
  }
  return true;
}

void Bound::FindWaysBack() {
  back_.assign(base_.size(), -1);
  std::vector<std::vector<std::pair<int, int64_t>>> out(graph_.size());  // (node, link)
  for (int to = 1; to < graph_.size(); ++to) {
    for (int64_t link = graph_.first_in[to]; link < graph_.first_in[to + 1]; ++link) {
      out[graph_.from[link]].emplace_back(graph_.node[to], link);
    }
  }
  for (auto& links : out) std::sort(links.begin(), links.end());
  for (int to = 1; to < graph_.size(); ++to) {
    for (int64_t link = graph_.first_in[to]; link < graph_.first_in[to + 1]; ++link) {
      const std::pair<int, int64_t> wanted{graph_.node[graph_.from[link]], 0};
      const auto found = std::lower_bound(out[to].begin(), out[to].end(), wanted);
      if (found != out[to].end() && found->first == wanted.first) back_[link] = found->second;
    }
  }
}

void Bound::Raise(int64_t goal, int64_t work_max) {
  if (!graph_.layered ||
      static_cast<int64_t>(base_.size()) * kRoundWork * kRoundsLeast > work_max) {
    return;  // too few rounds to get anywhere
  }
  const int states = graph_.size();
  link_price_.assign(base_.size(), 0);
  link_way_.assign(base_.size(), 0);
  fan_price_.assign(states, 0);
  fan_way_.assign(states, 0);
  chosen_.assign(states, -1);
  price_most_ = std::min(static_cast<double>(goal), kPricesMost / problem_.n);
  FindWaysBack();
  const int64_t end = work() + work_max;
  int64_t best = INT64_MIN;
  double scale = 1;
  int idle = 0;
  for (int round = 1; value_ < goal && work() < end && scale > kScaleMin; ++round) {
    const int64_t value = PricedChoices();
    if (value > best) {
      best = value;
      idle = 0;
    } else if (++idle >= kPatience) {
      idle = 0;
      scale *= kShrink;
    }
    value_ = std::max(value_, value);
    if (round % kAscentEvery == 0) {
      const int64_t ascent = all_.Run(fan_price_, end - work());
      KeepLinkBounds(ascent);
      value_ = std::max(value_, ascent);
    }
    if (!Step(scale * static_cast<double>(goal - value))) break;
  }
}

void Bound::RaiseByFacilities(int64_t goal, int64_t work_max) {
  FacilityBound bound = BoundFacilities(problem_, goal, work_max);
  work_ += bound.work;
  if (bound.value <= value_) return;
  value_ = bound.value;
  link_bounds_ = std::move(bound.link_bounds);
}

void Bound::RaiseAmongMany(int64_t goal, int64_t work_max) {
  if (work_max <= 0) return;
  const int64_t end = work() + work_max;
  if (problem_.depth_max == 2) RaiseByFacilities(goal, work_max / 2);
  if (!graph_.layered) return;
  FanoutPrices prices(problem_, link_bounds_, &all_);
  while (value_ < goal && work() < end) {
    const int64_t before = prices.work();
    const int64_t value = prices.Improve(goal, end - work());
    work_ += prices.work() - before;
    // The prices of the best bound rank the links better than the highest bounds of all prices do.
    if (value > value_) std::fill(link_bounds_.begin(), link_bounds_.end(), 0);
    KeepLinkBounds(value);
    value_ = std::max(value_, value);
    if (!prices.AddLinks() && prices.settled()) break;
  }
  relaxed_tree_ = prices.tree();
}

}  // namespace tailcast::copytree
