#include "tailcast/copytree/pair.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tailcast/copytree/delays.h"
#include "tailcast/copytree/describe.h"
#include "tailcast/copytree/plan_setup.h"
#include "tailcast/copytree/problem.h"
#include "tailcast/copytree/solver.h"

namespace tailcast::copytree {
namespace {

// In 1e-9 USD per GB: above any real saving, below what a sick cluster counts (plan_setup.cc).
constexpr int64_t kSharedPenalty = 200'000'000'000;
constexpr int64_t kReversedPenalty = 100'000'000'000;
// One of many solutions may take this part of the work.
constexpr int64_t kPart = 32;
// Trees make room for one another so often in turn.
constexpr int kTurns = 6;
// The search ends after so many starts that brought neither a better pair nor a better bound.
constexpr int kIdleStarts = 30;

struct Two {
  Parents first, second;
  int64_t weight = INT64_MAX;  // of both, and what they share
};

// Two trees that make room for one another in turn: each is planned anew while the links of the
// other one cost more. From where they start decides where that ends, so it starts often: from
// trees that are cheapest when each link costs a price besides that two trees want (a multiplier of
// "at most one tree uses the link"). Twice the bound of such a tree, less all those prices, is a
// bound on the pair.
class PairSearch {
 public:
  // `first` and `second` differ in what the running tree costs. They must outlive it.
  PairSearch(const Problem& first, const Problem& second, const SolveOptions& options)
      : first_(first), second_(second), options_(options), price_(first.weight.size(), 0) {}

  // `alone` is a good tree, `bound` one on both trees.
  void Run(const Parents& alone, int64_t bound) {
    bound_ = bound;
    const int64_t alone_weight = TotalWeight(first_, alone);
    best_ = {alone, alone, alone_weight + TotalWeight(second_, alone) + first_.n * kSharedPenalty};
    MakeRoom(alone);
    // Half of what the first pair is above the bound, spread over the links that both want.
    int64_t step = std::max<int64_t>(
        1, (std::min(best_.weight, 3 * alone_weight) - bound_) / std::max(1, 2 * first_.n));
    Parents wanted = alone;
    int idle = 0;
    while (work_ < options_.work_max && best_.weight > bound_ && idle < kIdleStarts) {
      const int64_t weight_before = best_.weight;
      ++idle;
      Price(wanted, step);
      Problem priced = second_;
      for (size_t at = 0; at < price_.size(); ++at) {
        if (priced.weight[at] < kUnserved) priced.weight[at] += price_[at];
      }
      const SolveResult solved = SolveOne(priced, wanted);
      if (!solved.feasible) break;
      int64_t prices = 0;
      for (int64_t price : price_) prices += price;
      if (2 * solved.bound - prices > bound_) {
        bound_ = 2 * solved.bound - prices;
        idle = 0;
      } else {
        step = std::max<int64_t>(1, step - step / 8);
      }
      wanted = solved.parents;
      MakeRoom(wanted);
      if (best_.weight < weight_before) idle = 0;
    }
  }

  // Of equally cheap pairs a fast one.
  void Shorten() {
    for (const bool second : {false, true}) {
      Parents& tree = second ? best_.second : best_.first;
      const Problem problem =
          Against(second ? second_ : first_, second ? best_.first : best_.second);
      ShortenDelays(problem, &tree);
      LowerWorstDelay(problem, options_.seed, options_.work_max / kPart, &tree);
    }
  }

  const Two& best() const { return best_; }
  int64_t bound() const { return bound_; }
  int64_t work() const { return work_; }

 private:
  SolveResult SolveOne(const Problem& problem, const Parents& start) {
    SolveOptions options = options_;
    options.shorten_delays = false;
    options.seed += ++solved_;  // of equally cheap trees another one each time
    options.work_max = std::max<int64_t>(1, options_.work_max / kPart);
    SolveResult solved = Solve(problem, {start}, options);
    work_ += std::max<int64_t>(solved.work, 1000);
    return solved;
  }

  static Problem Against(const Problem& problem, const Parents& other) {
    Problem dearer = problem;
    const auto add = [&](int from, int to, int64_t penalty) {
      int64_t& weight = dearer.weight[static_cast<size_t>(from) * problem.n + to];
      if (weight < kUnserved) weight += penalty;
    };
    for (int v = 0; v < problem.n; ++v) {
      if (other[v] == kNoParent) continue;
      add(other[v], v, kSharedPenalty);
      add(v, other[v], kReversedPenalty);
    }
    return dearer;
  }

  void MakeRoom(const Parents& start) {
    Two two;
    two.first = start;
    two.second = start;
    for (int turn = 0; turn < kTurns && work_ < options_.work_max; ++turn) {
      const bool second = turn % 2 == 0;
      const Problem& problem = second ? second_ : first_;
      const Parents& other = second ? two.first : two.second;
      const SolveResult solved = SolveOne(Against(problem, other), second ? two.second : two.first);
      if (!solved.feasible) return;
      const int64_t weight = solved.weight + TotalWeight(second ? first_ : second_, other);
      if (weight >= two.weight) break;
      two.weight = weight;
      (second ? two.second : two.first) = solved.parents;
    }
    if (two.weight < best_.weight) best_ = two;
  }

  // Links that two trees want cost more, others less.
  void Price(const Parents& wanted, int64_t step) {
    for (int64_t& price : price_) price = std::max<int64_t>(0, price - step);
    for (int v = 0; v < second_.n; ++v) {
      if (wanted[v] != kNoParent)
        price_[static_cast<size_t>(wanted[v]) * second_.n + v] += 2 * step;
    }
  }

  const Problem& first_;
  const Problem& second_;
  const SolveOptions options_;
  std::vector<int64_t> price_;
  Two best_;
  int64_t bound_ = 0;
  uint64_t solved_ = 0;
  int64_t work_ = 0;
};

// Does anything lead from the root to `edge.to` but the link into it?
bool OnlyWay(const Problem& problem, int from, int to) {
  std::vector<char> seen(static_cast<size_t>(problem.n), 0);
  std::vector<int> reached{problem.root};
  seen[problem.root] = 1;
  for (size_t next = 0; next < reached.size(); ++next) {
    const int at = reached[next];
    for (int v = 0; v < problem.n; ++v) {
      if (seen[v] || !problem.HasLink(at, v) || (at == from && v == to)) continue;
      seen[v] = 1;
      reached.push_back(v);
    }
  }
  return !seen[to];
}

}  // namespace

double PlanPair::Gap() const { return GapAbove(usd_per_gb, lower_bound_usd_per_gb); }

Result<PlanPair> MakePlanPair(const Graph& graph, const Stream& stream,
                              const PlanOptions& options) {
  PlanOptions alone = options;
  alone.work_max = std::max<int64_t>(1, WorkMax(graph, options) / 4);
  Result<Plan> single = MakePlan(graph, stream, alone);
  // Before a refusal the whole effort is spent.
  if (!single.ok()) single = MakePlan(graph, stream, options);
  if (!single.ok()) return single.status();
  TAILCAST_ASSIGN_OR_RETURN(const Setup first, MakeSetup(graph, stream, options));
  PlanOptions anew = options;
  anew.current.reset();
  TAILCAST_ASSIGN_OR_RETURN(const Setup second, MakeSetup(graph, stream, anew));
  Parents parents(static_cast<size_t>(graph.size()), kNoParent);
  for (const Edge& edge : single->tree.edges) {
    parents[*graph.Find(edge.to)] = *graph.Find(edge.from);
  }
  SolveOptions effort = ToSolveOptions(graph, options);
  effort.work_max -= alone.work_max;
  PairSearch search(first.problem, second.problem, effort);
  const int64_t single_bound = single->weight_bound;
  const int64_t second_bound =
      options.current
          ? BestBound(second.problem, TotalWeight(second.problem, parents), alone.work_max / 2)
          : single_bound;
  search.Run(parents, single_bound + second_bound);
  search.Shorten();
  Two two = search.best();
  const auto price = [&](const Parents& tree) {
    return Describe(graph, stream, second, tree).usd_per_gb;
  };
  if (!options.current && price(two.second) < price(two.first)) std::swap(two.first, two.second);

  PlanPair pair;
  pair.primary = Describe(graph, stream, first, two.first);
  pair.standby = Describe(graph, stream, second, two.second);
  SetBound(TotalWeight(first.problem, two.first), single_bound, &pair.primary);
  SetBound(TotalWeight(second.problem, two.second), second_bound, &pair.standby);
  pair.primary.work = single->work + search.work();
  pair.usd_per_gb = pair.primary.usd_per_gb + pair.standby.usd_per_gb;
  pair.alone_usd_per_gb = single->usd_per_gb;
  for (const Edge& edge : pair.standby.tree.edges) {
    if (pair.primary.tree.HasEdge(edge.from, edge.to)) {
      pair.shared.push_back(
          {edge, OnlyWay(second.problem, *graph.Find(edge.from), *graph.Find(edge.to))});
    } else if (pair.primary.tree.HasEdge(edge.to, edge.from)) {
      pair.reversed.push_back(edge);
    }
  }
  // Where links must be shared, the prices on them say nothing.
  const int64_t bound = pair.shared.empty() ? search.bound() : single_bound + second_bound;
  const int64_t both =
      TotalWeight(first.problem, two.first) + TotalWeight(second.problem, two.second);
  pair.optimal = both == bound;
  pair.lower_bound_usd_per_gb =
      std::max(0.0, pair.usd_per_gb - static_cast<double>(both - bound) / kNanos);
  return pair;
}

}  // namespace tailcast::copytree
