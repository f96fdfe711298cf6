#include "tailcast/copytree/robust.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "tailcast/base/hash.h"
#include "tailcast/base/rng.h"
#include "tailcast/copytree/advice.h"
#include "tailcast/copytree/arborescence.h"
#include "tailcast/copytree/describe.h"
#include "tailcast/copytree/mend.h"
#include "tailcast/copytree/plan_setup.h"
#include "tailcast/copytree/problem.h"
#include "tailcast/copytree/refusal.h"
#include "tailcast/copytree/solver.h"
#include "tailcast/copytree/starts.h"

namespace tailcast::copytree {
namespace {

// Links with such a penalty (a sick or new cluster's) are nothing to rely on after a failure.
constexpr int64_t kPenaltyLeast = 100'000'000'000;
constexpr int64_t kMillion = 1'000'000;
constexpr int64_t kMostExtra = 100;
// A failure that nothing mends: worse than any percentage. It weighs as much as one that costs so
// many cheapest trees more than it may.
constexpr int64_t kUnmended = INT64_MAX;
constexpr int64_t kUnmendedTrees = 4;
// A goal for the search: any tree that will do.
constexpr int64_t kAnyTree = INT64_MAX - 1;
// The search consists of runs, by turns from the cheapest tree and from the best so far. What a
// failure costs too much weighs so much in them.
constexpr int kRuns = 12;
constexpr int64_t kExcessWeights[] = {1, 1, 2, 2, 4, 4};
// Half of the moves take something off the failure that costs most; the others pick any cluster.
// New feeds are mostly among the cheapest.
constexpr size_t kNear = 8;
// A run ends when nothing is near that was not looked at: few clusters have few trees.
constexpr int kIdleMax = 1000, kKnownMax = 2000;
// A refusal names a percentage that will do; so many are tried.
constexpr int kWillDoTries = 4;

struct Judged {
  int64_t weight = INT64_MAX;
  int64_t worst_ppm = kUnmended;  // of the failures that some tree is safe from
  int64_t excess = 0;             // of all failures above what they may cost, 1e-9 USD per GB
  int worst_node = 0;             // what fails: this node, or the link into it
  bool worst_link = false;
};

class RobustSearch {
 public:
  // `cheapest`: the tree that failures are held against. The setup must outlive it.
  RobustSearch(const Setup& setup, const PlanOptions& options, const Parents& cheapest)
      : setup_(setup),
        problem_(setup.problem),
        mender_(setup.problem, Prices(setup), Usable(setup)),
        rng_(options.seed),
        near_(static_cast<size_t>(setup.problem.n)),
        cheapest_(cheapest) {
    for (int v = 0; v < problem_.n; ++v) {
      for (int from = 0; from < problem_.n; ++from) {
        if (from != v && Usable(setup_, from, v)) near_[v].push_back(from);
      }
      std::stable_sort(near_[v].begin(), near_[v].end(),
                       [&](int a, int b) { return problem_.Weight(a, v) < problem_.Weight(b, v); });
    }
    mender_.Evaluate(cheapest);
    alone_ = mender_.price();
    base_ = std::max<int64_t>(1, alone_);
  }

  Judged Judge(const Parents& tree, int64_t most_ppm) {
    Judged judged{.weight = TotalWeight(problem_, tree), .worst_ppm = 0};
    const std::vector<Mender::Failure>& failures = mender_.Evaluate(tree);
    const int64_t most =
        base_ + base_ / kMillion * most_ppm + base_ % kMillion * most_ppm / kMillion;
    int64_t dearest = -1;
    for (const Mender::Failure& failure : failures) {
      if (failure.price >= kUnserved) {
        if (Hopeless(tree, failure)) continue;
        judged.worst_ppm = kUnmended;
      }
      const int64_t price = std::min(failure.price, most + base_ * kUnmendedTrees);
      if (price > dearest) {
        dearest = price;
        judged.worst_node = failure.node;
        judged.worst_link = failure.link;
      }
      judged.excess += std::max<int64_t>(0, price - most);
    }
    // The tree itself may not cost more either.
    dearest = std::max(dearest, mender_.price());
    if (judged.worst_ppm == 0 && dearest > base_) judged.worst_ppm = Ppm(dearest - base_);
    return judged;
  }

  // The best tree for which no failure costs more than `most_ppm`; nothing if none was found.
  // `goal`: a tree of that weight need not be improved. To be called once.
  std::optional<Parents> Run(int64_t most_ppm, int64_t goal, int64_t work) {
    const Judged first = Judge(cheapest_, most_ppm);
    Note(cheapest_, first, most_ppm);
    if (best_) return best_;
    for (int run = 0; run < kRuns && best_weight_ > goal; ++run) {
      Parents tree = best_ && run % 2 == 1 ? *best_ : cheapest_;
      Judged at = Judge(tree, most_ppm);
      const int64_t weight = kExcessWeights[static_cast<size_t>(run) % std::size(kExcessWeights)];
      // At first trees are taken that are worse by a link's weight.
      const int64_t hot = (1 + weight) * first.weight / std::max(1, problem_.n);
      const int64_t began = mender_.work(), end = began + work / kRuns;
      int idle = 0;   // moves in a row that led nowhere
      int known = 0;  // and that led to trees that were judged before
      while (mender_.work() < end && best_weight_ > goal) {
        Parents next = tree;
        if (!Move(at, &next)) {
          if (++idle > kIdleMax) break;
          continue;
        }
        idle = 0;
        known = judged_.insert(HashOf(next)).second ? 0 : known + 1;
        if (known > kKnownMax) break;
        const Judged then = Judge(next, most_ppm);
        Note(next, then, most_ppm);
        const int64_t left = (end - mender_.work()) * 1000 / std::max<int64_t>(1, end - began);
        const int64_t room = hot * std::max<int64_t>(0, left) / 1000;
        if (then.weight + weight * then.excess <= at.weight + weight * at.excess + room) {
          tree = std::move(next);
          at = then;
        }
      }
    }
    return best_;
  }

  int64_t least_ppm() const { return least_ppm_; }
  int64_t work() const { return mender_.work(); }

  FailureCost Cost(const Graph& graph, const Parents& tree, const Mender::Failure& failure) {
    FailureCost cost;
    cost.link = {graph.cluster(tree[failure.node]).name, graph.cluster(failure.node).name};
    if (!failure.link) cost.cluster = graph.cluster(failure.node).name;
    cost.hopeless = failure.price >= kUnserved;
    if (!cost.hopeless) {
      cost.usd_per_gb = static_cast<double>(failure.price) / kNanos;
      cost.extra = static_cast<double>(failure.price - alone_) / static_cast<double>(base_);
    }
    return cost;
  }
  const std::vector<Mender::Failure>& Failures(const Parents& tree) {
    return mender_.Evaluate(tree);
  }

 private:
  static uint64_t HashOf(const Parents& tree) {
    return Hash128({reinterpret_cast<const char*>(tree.data()), tree.size() * sizeof(tree[0])}).lo;
  }
  int64_t Ppm(int64_t price) const {
    return static_cast<int64_t>(
        std::ceil(static_cast<double>(price) * kMillion / static_cast<double>(base_)));
  }
  static bool Usable(const Setup& setup, int from, int to) {
    const size_t at = static_cast<size_t>(from) * setup.problem.n + to;
    return setup.problem.HasLink(from, to) && setup.penalty[at] < kPenaltyLeast;
  }
  static std::vector<char> Usable(const Setup& setup) {
    std::vector<char> usable;
    for (int from = 0; from < setup.problem.n; ++from) {
      for (int to = 0; to < setup.problem.n; ++to) usable.push_back(Usable(setup, from, to));
    }
    return usable;
  }
  static std::vector<int64_t> Prices(const Setup& setup) {
    std::vector<int64_t> prices = setup.problem.weight;
    for (size_t at = 0; at < prices.size(); ++at) {
      if (prices[at] < kUnserved) prices[at] -= setup.penalty[at];
    }
    return prices;
  }

  void Note(const Parents& tree, const Judged& judged, int64_t most_ppm) {
    least_ppm_ = std::min(least_ppm_, judged.worst_ppm);
    if (judged.worst_ppm > most_ppm || judged.weight >= best_weight_) return;
    best_ = tree;
    best_weight_ = judged.weight;
  }

  // Another tree within the limits; false if the first thing tried is none.
  bool Move(const Judged& at, Parents* tree) {
    int v = static_cast<int>(rng_.Below(static_cast<uint64_t>(problem_.n)));
    if (rng_.Below(2) == 0) {
      v = at.worst_node;
      if (!at.worst_link || rng_.Below(4) == 0) {
        std::vector<int> children;
        for (int child = 0; child < problem_.n; ++child) {
          if ((*tree)[child] == at.worst_node) children.push_back(child);
        }
        if (!children.empty()) v = children[rng_.Below(children.size())];
      }
    }
    if (v == problem_.root || (*tree)[v] == kNoParent || near_[v].empty()) return false;
    const size_t among = rng_.Below(4) == 0 ? near_[v].size() : std::min(kNear, near_[v].size());
    const int from = near_[v][rng_.Below(among)];
    if (from == (*tree)[v]) return false;
    if (rng_.Below(3) == 0) {
      // The two exchange their feeds.
      if (from == problem_.root || (*tree)[from] == kNoParent) return false;
      if (!Usable(setup_, (*tree)[v], from) || !Usable(setup_, (*tree)[from], v)) return false;
      std::swap((*tree)[v], (*tree)[from]);
    } else {
      if (from != problem_.root && (*tree)[from] == kNoParent) return false;
      (*tree)[v] = from;
    }
    const std::vector<int> depths = Depths(problem_, *tree);
    for (int node = 0; node < problem_.n; ++node) {
      if ((*tree)[node] != kNoParent && depths[node] < 0) return false;  // a ring
    }
    PruneRelays(problem_, tree);
    return IsFeasible(problem_, *tree);
  }

  // Some destination is out of reach within the limits on depth and delay, whatever the tree.
  bool Hopeless(const Parents& tree, const Mender::Failure& failure) {
    const int up = failure.link ? tree[failure.node] : kNoParent;
    const auto [known, is_new] = hopeless_.emplace(std::make_pair(failure.node, up), false);
    if (!is_new) return known->second;
    Problem left = problem_;
    if (failure.link) {
      left.weight[static_cast<size_t>(up) * left.n + failure.node] = kUnserved;
    } else {
      left.fanout_max[failure.node] = 0;
    }
    const std::vector<int64_t> least = LeastDelays(left);
    for (int v = 0; v < left.n; ++v) {
      const bool gone = !failure.link && v == failure.node;
      if (left.required[v] && !gone && least[v] > std::min(left.delay_max_us, kNoDelayLimit - 1)) {
        known->second = true;
      }
    }
    return known->second;
  }

  const Setup& setup_;
  const Problem& problem_;
  Mender mender_;
  Rng rng_;
  std::vector<std::vector<int>> near_;  // usable feeds of each node, cheapest first
  const Parents cheapest_;
  std::map<std::pair<int, int>, bool> hopeless_;  // by node, and where the link comes from
  int64_t alone_ = 0, base_ = 1;         // price of the tree that failures are held against; not 0
  std::unordered_set<uint64_t> judged_;  // hashes of trees
  std::optional<Parents> best_;
  int64_t best_weight_ = INT64_MAX;
  int64_t least_ppm_ = kUnmended;
};

std::string Percent(int64_t ppm) { return Number(static_cast<double>(ppm) / 10'000); }

// The least percentage found, in millionths, with which this very plan succeeds; it was made with
// it. `least` is the best that the search has seen, `cheapest` what the cheapest tree has.
std::optional<int64_t> WillDo(const std::function<bool(int64_t)>& works, int64_t least,
                              int64_t cheapest) {
  const auto tenths = [](int64_t ppm) { return (ppm + 999) / 1000 * 1000; };  // of a percent
  for (int tries = 0; tries < kWillDoTries && least < cheapest && least <= kMostExtra * kMillion;
       ++tries) {
    least = tenths(least);
    if (works(least)) return least;
    least += least / 4 + 1;
  }
  if (cheapest > kMostExtra * kMillion) return std::nullopt;
  return tenths(cheapest);
}

}  // namespace

Result<RobustPlan> MakeRobustPlan(const Graph& graph, const Stream& stream,
                                  const PlanOptions& options, double most_extra, int64_t* work) {
  if (!(most_extra >= 0 && most_extra <= kMostExtra)) {
    return InvalidArgumentError("a failure may make the tree dearer by 0 to 10000 %, not by " +
                                Number(most_extra * 100) + " %");
  }
  const int64_t most_ppm = std::llround(most_extra * kMillion);
  TAILCAST_ASSIGN_OR_RETURN(const Setup setup, MakeSetup(graph, stream, options));
  const int64_t effort = WorkMax(graph, options);
  int64_t spent = 0;
  if (work == nullptr) work = &spent;
  const Demand robust_too = [&](const Problem& problem, const Parents& tree, int64_t* steps) {
    Setup other = setup;
    other.problem = problem;
    RobustSearch robust(other, options, tree);
    const bool found = robust.Run(most_ppm, kAnyTree, effort).has_value();
    *steps += robust.work();
    return found;
  };
  TAILCAST_RETURN_IF_ERROR(FindBlocked(graph, stream, options, setup, robust_too, work));
  const SolveResult alone =
      Solve(setup.problem, Starts(graph, setup), ToSolveOptions(graph, options));
  *work += alone.work;
  if (!alone.feasible) {
    return ExplainFailure(graph, stream, options, setup, alone, robust_too, work);
  }
  RobustSearch search(setup, options, alone.parents);
  const Judged before = search.Judge(alone.parents, most_ppm);
  const std::optional<Parents> tree = search.Run(most_ppm, alone.bound, effort);
  *work += search.work();
  if (!tree) {
    const auto works = [&](int64_t ppm) {
      RobustSearch again(setup, options, alone.parents);
      const bool found = again.Run(ppm, kAnyTree, effort).has_value();
      *work += again.work();
      return found;
    };
    std::string text = "no tree was found within this effort ";
    if (search.least_ppm() < kUnmended) {
      text += "that gets at most " + Percent(most_ppm) +
              " % dearer than the cheapest one when a cluster or link fails";
    } else {
      text += "whose clusters can all be fed anew within the limits when a cluster or link fails";
    }
    const std::optional<int64_t> ppm = WillDo(works, search.least_ppm(), before.worst_ppm);
    text += ppm ? "; it works with " + Percent(*ppm) + " %"
                : Advice(graph, stream, options, setup, robust_too, work);
    return FailedPreconditionError(text);
  }
  RobustPlan robust;
  robust.plan = Describe(graph, stream, setup, *tree);
  SetBound(TotalWeight(setup.problem, *tree), alone.bound, &robust.plan);
  robust.plan.work = alone.work + search.work();
  robust.alone_usd_per_gb = Describe(graph, stream, setup, alone.parents).usd_per_gb;
  if (before.worst_ppm < kUnmended) {
    robust.alone_worst_extra = static_cast<double>(before.worst_ppm) / kMillion;
  }
  robust.worst_extra = static_cast<double>(search.Judge(*tree, most_ppm).worst_ppm) / kMillion;
  for (const Mender::Failure& failure : search.Failures(*tree)) {
    FailureCost cost = search.Cost(graph, *tree, failure);
    if (cost.hopeless) {
      robust.plan.warnings.push_back(
          (cost.cluster.empty() ? "when " + cost.link.from + " -> " + cost.link.to
                                : "when '" + cost.cluster + "'") +
          " fails, nothing else leads to what hangs on it within the limits");
    }
    robust.failures.push_back(std::move(cost));
  }
  std::stable_sort(robust.failures.begin(), robust.failures.end(),
                   [](const FailureCost& a, const FailureCost& b) {
                     if (a.hopeless != b.hopeless) return a.hopeless;
                     return a.extra > b.extra;
                   });
  return robust;
}

}  // namespace tailcast::copytree
