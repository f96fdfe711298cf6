#include "tailcast/copytree/robust.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "tailcast/base/rng.h"
#include "tailcast/copytree/arborescence.h"
#include "tailcast/copytree/describe.h"
#include "tailcast/copytree/mend.h"
#include "tailcast/copytree/plan_setup.h"
#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {
namespace {

// Links with such a penalty (a sick or new cluster's) are nothing to rely on after a failure.
constexpr int64_t kPenaltyLeast = 100'000'000'000;
constexpr int64_t kMillion = 1'000'000;
// A failure that nothing mends counts as if it made the tree so many times dearer.
constexpr int64_t kUnmended = 4;
// The search consists of runs, by turns from the cheapest tree and from the best so far. What a
// failure costs too much weighs so much in them.
constexpr int kRuns = 12;
constexpr int64_t kExcessWeights[] = {1, 1, 2, 2, 4, 4};
// Half of the moves take something off the failure that costs most; the others pick any cluster.
// New feeds are mostly among the cheapest.
constexpr size_t kNear = 8;
// A refusal names what will do; it is looked for so many times, with a part of the work each.
constexpr int kWillDoTries = 3;

struct Judged {
  int64_t weight = INT64_MAX;
  int64_t worst_ppm = INT64_MAX;  // of the failures that some tree is safe from
  int64_t excess = 0;             // of all failures above what they may cost, 1e-9 USD per GB
  int worst_node = 0;             // what fails: this node, or the link into it
  bool worst_link = false;
};

class RobustSearch {
 public:
  // `cheapest`: the tree that failures are held against.
  RobustSearch(const Graph& graph, const Setup& setup, const PlanOptions& options,
               const Parents& cheapest)
      : setup_(setup),
        problem_(setup.problem),
        mender_(setup.problem, Prices(setup), Usable(setup)),
        rng_(options.seed),
        near_(static_cast<size_t>(graph.size())) {
    for (int v = 0; v < problem_.n; ++v) {
      for (int from = 0; from < problem_.n; ++from) {
        if (from != v && Usable(setup_, from, v)) near_[v].push_back(from);
      }
      std::stable_sort(near_[v].begin(), near_[v].end(),
                       [&](int a, int b) { return problem_.Weight(a, v) < problem_.Weight(b, v); });
    }
    mender_.Evaluate(cheapest);
    base_ = std::max<int64_t>(1, mender_.price());
  }

  Judged Judge(const Parents& tree, int64_t most_ppm) {
    Judged judged{.weight = TotalWeight(problem_, tree), .worst_ppm = 0};
    const std::vector<Mender::Failure>& failures = mender_.Evaluate(tree);
    const int64_t most =
        base_ + base_ / kMillion * most_ppm + base_ % kMillion * most_ppm / kMillion;
    int64_t dearest = -1;
    for (const Mender::Failure& failure : failures) {
      if (failure.price >= kUnserved && Hopeless(tree, failure)) continue;
      const int64_t price = std::min(failure.price, base_ * kUnmended);
      if (price > dearest) {
        dearest = price;
        judged.worst_node = failure.node;
        judged.worst_link = failure.link;
      }
      judged.excess += std::max<int64_t>(0, price - most);
    }
    // The tree itself may not cost more either.
    dearest = std::max(dearest, mender_.price());
    if (dearest > base_) judged.worst_ppm = Ppm(dearest - base_);
    return judged;
  }

  // The best tree for which no failure costs more than `most_ppm`, from `start`; nothing if there
  // was none. `goal`: a tree of that weight need not be improved.
  std::optional<Parents> Run(const Parents& start, int64_t most_ppm, int64_t goal, int64_t work) {
    best_.reset();
    best_weight_ = INT64_MAX;
    const Judged first = Judge(start, most_ppm);
    least_ppm_ = first.worst_ppm;
    Note(start, first, most_ppm);
    for (int run = 0; run < kRuns && best_weight_ > goal; ++run) {
      Parents tree = best_ && run % 2 == 1 ? *best_ : start;
      Judged at = Judge(tree, most_ppm);
      const int64_t weight = kExcessWeights[static_cast<size_t>(run) % std::size(kExcessWeights)];
      // At first trees are taken that are worse by a link's weight.
      const int64_t hot = (1 + weight) * first.weight / std::max(1, problem_.n);
      const int64_t began = mender_.work(), end = began + work / kRuns;
      while (mender_.work() < end && best_weight_ > goal) {
        Parents next = tree;
        if (!Move(at, &next)) {
          if (++idle_ > 1000) break;
          continue;
        }
        idle_ = 0;
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
    cost.mended = failure.price < kUnserved;
    cost.hopeless = !cost.mended && Hopeless(tree, failure);
    if (cost.mended) {
      cost.usd_per_gb = static_cast<double>(failure.price) / kNanos;
      const auto base = static_cast<double>(base_);
      cost.extra = (static_cast<double>(failure.price) - base) / base;
    }
    return cost;
  }
  const std::vector<Mender::Failure>& Failures(const Parents& tree) {
    return mender_.Evaluate(tree);
  }

 private:
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

  // Some destination is cut off whatever the tree.
  bool Hopeless(const Parents& tree, const Mender::Failure& failure) {
    const std::pair<int, int> key{failure.node, failure.link ? tree[failure.node] : -1};
    const auto [known, is_new] = hopeless_.emplace(key, false);
    if (!is_new) return known->second;
    std::vector<char> seen(static_cast<size_t>(problem_.n), 0);
    std::vector<int> reached{problem_.root};
    seen[problem_.root] = 1;
    if (!failure.link) seen[failure.node] = 1;
    for (size_t next = 0; next < reached.size(); ++next) {
      for (int to = 0; to < problem_.n; ++to) {
        const bool cut = failure.link && to == key.first && reached[next] == key.second;
        if (seen[to] || cut || !problem_.HasLink(reached[next], to)) continue;
        seen[to] = 1;
        reached.push_back(to);
      }
    }
    for (int v = 0; v < problem_.n; ++v) {
      known->second = known->second || (problem_.required[v] && v != problem_.root && !seen[v]);
    }
    return known->second;
  }

  const Setup& setup_;
  const Problem& problem_;
  Mender mender_;
  Rng rng_;
  std::vector<std::vector<int>> near_;  // usable feeds of each node, cheapest first
  std::map<std::pair<int, int>, bool> hopeless_;
  int64_t base_ = 1;  // price of the tree that failures are held against
  std::optional<Parents> best_;
  int64_t best_weight_ = INT64_MAX;
  int64_t least_ppm_ = INT64_MAX;
  int idle_ = 0;
};

std::string Percent(int64_t ppm) { return Number(static_cast<double>(ppm) / 10'000); }

}  // namespace

Result<RobustPlan> MakeRobustPlan(const Graph& graph, const Stream& stream,
                                  const PlanOptions& options, double most_extra) {
  if (!(most_extra >= 0 && most_extra <= 100)) {
    return InvalidArgumentError("a failure may make the tree dearer by 0 to 10000 %, not by " +
                                Number(most_extra * 100) + " %");
  }
  const int64_t most_ppm = std::llround(most_extra * kMillion);
  TAILCAST_ASSIGN_OR_RETURN(Plan alone, MakePlan(graph, stream, options));
  TAILCAST_ASSIGN_OR_RETURN(const Setup setup, MakeSetup(graph, stream, options));
  Parents cheapest(static_cast<size_t>(graph.size()), kNoParent);
  for (const Edge& edge : alone.tree.edges) {
    cheapest[*graph.Find(edge.to)] = *graph.Find(edge.from);
  }
  const int64_t weight = TotalWeight(setup.problem, cheapest);
  const int64_t bound = weight - Nanos(alone.usd_per_gb - alone.lower_bound_usd_per_gb);
  RobustSearch search(graph, setup, options, cheapest);
  const int64_t work = WorkMax(graph, options);
  const Judged before = search.Judge(cheapest, most_ppm);
  std::optional<Parents> tree = cheapest;
  if (before.worst_ppm > most_ppm) tree = search.Run(cheapest, most_ppm, bound, work);
  if (!tree) {
    // What will do: planned with it.
    const auto tenths = [](int64_t ppm) { return (ppm + 999) / 1000 * 1000; };  // of a percent
    int64_t will_do = tenths(search.least_ppm());
    for (int tries = 0; tries < kWillDoTries && will_do < before.worst_ppm; ++tries) {
      RobustSearch again(graph, setup, options, cheapest);
      if (again.Run(cheapest, will_do, bound, work / kWillDoTries)) break;
      will_do = tenths(will_do + will_do / 4 + 1);
    }
    will_do = std::min(will_do, tenths(before.worst_ppm));
    return FailedPreconditionError(
        "no tree was found within this effort that gets at most " + Percent(most_ppm) +
        " % dearer than the cheapest one when a cluster or link fails; it works with " +
        Percent(will_do) + " %");
  }
  RobustPlan robust;
  robust.plan = Describe(graph, stream, setup, *tree);
  SetBound(TotalWeight(setup.problem, *tree), bound, &robust.plan);
  robust.plan.work = alone.work + search.work();
  robust.alone_usd_per_gb = alone.usd_per_gb;
  robust.alone_worst_extra = static_cast<double>(before.worst_ppm) / kMillion;
  robust.worst_extra = static_cast<double>(search.Judge(*tree, most_ppm).worst_ppm) / kMillion;
  for (const Mender::Failure& failure : search.Failures(*tree)) {
    FailureCost cost = search.Cost(graph, *tree, failure);
    if (cost.hopeless) {
      robust.plan.warnings.push_back((cost.cluster.empty()
                                          ? "when " + cost.link.from + " -> " + cost.link.to
                                          : "when '" + cost.cluster + "'") +
                                     " fails, nothing else leads to what hangs on it");
    }
    robust.failures.push_back(std::move(cost));
  }
  std::stable_sort(robust.failures.begin(), robust.failures.end(),
                   [](const FailureCost& a, const FailureCost& b) {
                     if (a.mended != b.mended) return !a.mended;
                     return a.extra > b.extra;
                   });
  return robust;
}

}  // namespace tailcast::copytree
