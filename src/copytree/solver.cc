#include "tailcast/copytree/solver.h"

#include <algorithm>
#include <utility>

#include "tailcast/copytree/annealing.h"
#include "tailcast/copytree/arborescence.h"
#include "tailcast/copytree/bound.h"
#include "tailcast/copytree/delays.h"
#include "tailcast/copytree/exhaustive.h"
#include "tailcast/copytree/full_trees.h"
#include "tailcast/copytree/layer_search.h"
#include "tailcast/copytree/starts.h"

namespace tailcast::copytree {
namespace {

constexpr int64_t kExhaustiveSteps = 400'000;
// Prices on delay for starts under a delay limit, in 1e-9 USD per GB and microsecond.
constexpr int64_t kDelayPrices[] = {1, 10, 100, 1000};
// Parts of the work: for the layers (among many nodes they only give a tree to start from), for
// bounds, for the delays of equally cheap trees; annealing has the rest.
constexpr int64_t kLayersPart = 12, kManyLayersPart = 40, kBoundPart = 8, kDelaysPart = 16;
// For nearly full trees, where hardly any others fit; they are taken to weigh that part more than
// the first bound.
constexpr int64_t kFullPart = 2, kLikelyPart = 4;
// Among many nodes prices on fan-out take a larger part, and give a tree to start from.
constexpr int64_t kPricesPart = 3;
// The first annealing run, for each node; later ones are longer.
constexpr int64_t kFirstRunWork = 200'000;
// A quick search goes on, up to this in all: for so many times its work before a refusal without
// proof (of drawn problems that only nearly full trees fit it then finds one for 15 of 16 seeds),
// and for a third more, or what that left, while its tree is further above the bound than so many
// millionths and runs do not agree: tight limits, of which it knows little yet.
constexpr int64_t kStretchedWorkMost = 2'000'000'000, kBeforeRefusal = 2, kStretchPart = 3;
constexpr int64_t kMillion = 1'000'000;
constexpr int64_t kStretchPpm = 10'000;
// A bound that is to show that there is no tree aims at so many times what the heaviest tree
// weighs.
constexpr int64_t kFarAbove = 4;
// So many runs from scratch that end at the best weight, one after the other while they get longer,
// are taken as an answer: four of them have agreed on a tree 2 % above the optimum.
constexpr int kAgreed = 8;
// Between so many parts of the annealing the bound is raised, and links that no better tree uses
// are left out.
constexpr int kStages = 3;
// First temperatures in percent of a typical link: from scratch, and from the best tree.
constexpr int kHot = 60, kWarm = 12;
// Among many nodes: two runs, from the tree that prices on fan-out give, with so many hundredths of
// the work each, then the best
// tree is annealed anew around one place after the other, a quarter of the nodes at a time, with so
// much work for each of them.
constexpr int kManyHot = 80, kManyWarm = 15;
constexpr int kManyStarts = 2, kManyPercent = 20;
constexpr int kManyCool[kManyStarts] = {10, 5};  // from a tree that hardly breaks the limits
// Where so few links lead into a node on average, and the tree is still so many millionths above
// the bound after half of the work, whole runs have the rest: tight limits leave little to change
// in one place alone.
constexpr int kFewLinks = 24;
constexpr int64_t kManyFarPpm = 100'000;
constexpr int kAroundPart = 4;
constexpr int64_t kAroundWork = 160'000;
// What one descent after a run may cost, as a part of the work.
constexpr int64_t kDescentPart = 50;

// Some node may feed fewer others than links leave it to.
bool FanoutLimited(const Problem& problem) {
  for (int from = 0; from < problem.n; ++from) {
    int links = 0;
    for (int to = 0; to < problem.n; ++to) {
      links += to != from && to != problem.root && problem.HasLink(from, to);
    }
    if (problem.fanout_max[from] < links) return true;
  }
  return false;
}

bool FewLinks(const Problem& problem) {
  int64_t links = 0;
  for (int64_t weight : problem.weight) links += weight < kUnserved;
  return links <= int64_t{kFewLinks} * problem.n;
}

bool AllRequired(const Problem& problem) {
  for (int v = 0; v < problem.n; ++v) {
    if (v != problem.root && !problem.required[v]) return false;
  }
  return true;
}

// No tree weighs more.
int64_t HeaviestTree(const Problem& problem) {
  int64_t heaviest = 0;
  for (int to = 0; to < problem.n; ++to) {
    int64_t most = 0;
    for (int from = 0; from < problem.n && to != problem.root; ++from) {
      if (from != to && problem.HasLink(from, to)) most = std::max(most, problem.Weight(from, to));
    }
    heaviest += most;
  }
  return heaviest;
}

bool HoldsRequired(const Problem& problem, const Parents& parents) {
  const std::vector<int> depths = Depths(problem, parents);
  for (int v = 0; v < problem.n; ++v) {
    if (v != problem.root && problem.required[v] && depths[v] < 0) return false;
  }
  return true;
}

// Some link leads into each node of the tree.
bool CanBeMoved(const Problem& problem, const Parents& tree) {
  for (int v = 0; v < problem.n; ++v) {
    bool entered = tree[v] == kNoParent;
    for (int from = 0; from < problem.n && !entered; ++from) {
      entered = from != v && problem.HasLink(from, v);
    }
    if (!entered) return false;
  }
  return true;
}

// One search for one problem: keeps the best tree and the best bound, and knows when to stop.
class Search {
 public:
  Search(const Problem& problem, const SolveOptions& options)
      : problem_(problem),
        options_(options),
        fanout_limited_(FanoutLimited(problem)),
        cheapest_(MinArborescence(problem, &set_up_work_)) {
    PruneRelays(problem, &cheapest_);
  }

  SolveResult Run(const std::vector<Parents>& starts);

 private:
  bool GoodEnough() const { return weight_ <= Goal(); }
  // A tree of this weight is good enough.
  int64_t Goal() const {
    if (options_.any_tree) return kUnserved - 1;
    return bound_ >= kUnserved ? bound_ : bound_ + bound_ / 1'000'000 * options_.gap_ppm;
  }
  bool Far(int64_t ppm) const { return weight_ - bound_ > bound_ / kMillion * ppm; }
  bool ManyNodes() const { return problem_.n > kManyNodes; }
  int64_t LayersWork() const {
    return options_.work_max / (ManyNodes() ? kManyLayersPart : kLayersPart);
  }
  void Keep(const Parents& parents);
  // Every tree, where that is quick; false if it is not.
  bool SearchAll(int64_t below);
  void SearchLayers(const std::vector<Parents>& starts);
  // Goes through nearly full trees, if hardly any others fit (full_trees.h).
  void SearchFull(Bound* bound, int64_t bound_work);
  // Layers know nothing of nodes with depths of their own.
  void KeepStarts(const std::vector<Parents>& starts);
  // The problem without the links that no tree uses that is as light as the best one.
  Problem Reduced() const;
  // True if runs agreed before the work was used up, or a tree as light as `goal` was found: as
  // AnnealAround among many nodes once there is a tree, unless `whole_runs_`, else AnnealWhole.
  bool Anneal(int64_t work, int64_t goal);
  bool AnnealWhole(int64_t work, int64_t goal);
  // A few runs over the whole tree, then many around single places of the best one. True if a tree
  // as light as `goal` was found.
  bool AnnealAround(int64_t work, int64_t goal);
  // Many nodes and few links: around single places; if the tree is far above the bound then, in
  // whole runs.
  bool AnnealFewLinks(Bound* bound, int64_t work);
  void Raise(Bound* bound, int64_t work);
  void KeepBound(const Bound& bound);
  // True if the bound rises above what any tree weighs: no tree meets the limits.
  bool ProveNone(Bound* bound, int64_t work);
  // Both in turn, until the tree is good enough or the effort is used up.
  void AnnealInStages(Bound* bound, int64_t bound_work);
  // What a descent through the layers makes of the best tree; annealing leaves small change.
  void Descend();

  const Problem& problem_;
  const SolveOptions& options_;
  const bool fanout_limited_;
  int64_t full_work_ = 0;    // of nearly full trees
  int64_t set_up_work_ = 0;  // of trees and graphs that are made before the search
  Parents cheapest_;         // without limits
  Parents best_;
  int64_t weight_ = INT64_MAX;
  int64_t bound_ = 0;
  bool exhausted_ = false;            // every tree was considered
  std::vector<int64_t> link_bounds_;  // bound.h
  bool whole_runs_ = false;           // also among many nodes
  Parents relaxed_;                   // a tree that hardly breaks the limits; empty = none
  // Of the annealing, from call to call: runs, the length of the next one, how many agreed.
  int runs_ = 0, agreed_ = 0;
  int64_t run_work_ = 0;
  int64_t work_ = 0;
};

void Search::Keep(const Parents& parents) {
  // A part that hangs on a relay that nobody feeds is not in the tree.
  Parents tree = parents;
  const std::vector<int> depths = Depths(problem_, parents);
  for (int v = 0; v < problem_.n; ++v) {
    if (depths[v] < 0) tree[v] = kNoParent;
  }
  const int64_t weight = TotalWeight(problem_, tree);
  if (weight >= weight_ || (weight < kUnserved && !IsFeasible(problem_, tree))) return;
  best_ = std::move(tree);
  weight_ = weight;
}

bool Search::SearchAll(int64_t below) {
  if (problem_.n > kExhaustiveNodesMax || below <= bound_) return false;
  const ExhaustiveResult all = SearchAllTrees(problem_, below, kExhaustiveSteps);
  if (all.weight < below) best_ = all.parents;
  weight_ = TotalWeight(problem_, best_);
  exhausted_ = all.complete;
  return true;
}

void Search::KeepStarts(const std::vector<Parents>& starts) {
  best_.assign(problem_.n, kNoParent);
  weight_ = TotalWeight(problem_, best_);
  const auto keep = [&](const Parents& parents) {
    if (IsFeasible(problem_, parents)) Keep(parents);
  };
  for (const Parents& start : starts) keep(start);
  keep(cheapest_);
  keep(FewestHops(problem_));
  keep(LimitedPrim(problem_, 0, &set_up_work_));
  SearchAll(weight_);
}

void Search::SearchLayers(const std::vector<Parents>& starts) {
  const int64_t work = LayersWork();
  LayerSearch search(problem_, {.seed = options_.seed, .work_max = work, .stop_at_weight = Goal()});
  for (const Parents& start : starts) search.StartFrom(start);
  if (fanout_limited_ && ManyNodes()) {
    Keep(search.best());
    Keep(LimitedPrim(problem_, 0, &set_up_work_));
    work_ += static_cast<int64_t>(problem_.n) * problem_.n;
    if (weight_ < kUnserved) {
      work_ += search.work();
      return;
    }
    Problem unlimited = problem_;
    unlimited.fanout_max.assign(problem_.n, problem_.n);
    LayerSearch wide(unlimited, {.seed = options_.seed, .work_max = work / 10});
    wide.StartFrom(cheapest_);
    search.StartFrom(wide.best());
    if (search.best_weight() >= kUnserved)
      search.StartFrom(LimitedPrim(problem_, 0, &set_up_work_));
    work_ += wide.work();
  } else {
    const auto start = [&](const Parents& parents) {
      if (search.best_weight() > Goal()) search.StartFrom(parents);
    };
    start(cheapest_);
    start(FewestHops(problem_));
    start(LimitedPrim(problem_, 0, &set_up_work_));
    if (problem_.DelayLimited()) {
      for (int64_t price : kDelayPrices) start(LimitedPrim(problem_, price, &set_up_work_));
      start(LeastDelay(problem_));
    }
    if (!ManyNodes() && search.best_weight() > Goal()) search.StartFromStar();
  }
  Keep(search.best());
  if (SearchAll(search.best_weight())) {
    if (exhausted_) return;
    search.StartFrom(best_);
  }
  if (!ManyNodes() || search.best_weight() >= kUnserved) search.Improve();
  Keep(search.best());
  work_ += search.work();
}

void Search::SearchFull(Bound* bound, int64_t bound_work) {
  if (GoodEnough() || !NearlyFull(problem_)) return;
  const int64_t likely = bound_ + bound_ / kLikelyPart;
  bound->Raise(std::min(weight_, likely), (bound_work - bound->work()) / 2);
  KeepBound(*bound);
  const FullTreesResult full =
      SearchFullTrees(problem_, bound->Rests(), weight_, Goal(), options_.work_max / kFullPart);
  if (full.weight < weight_) Keep(full.parents);
  exhausted_ = full.complete;
  full_work_ = full.work;
  work_ += full.work;
}

void Search::Descend() {
  if (!problem_.node_depth_max.empty() || GoodEnough()) return;
  LayerSearch search(problem_, {.seed = options_.seed,
                                .work_max = options_.work_max / kDescentPart,
                                .stop_at_weight = Goal()});
  search.StartFrom(best_);
  Keep(search.best());
  work_ += search.work();
}

Problem Search::Reduced() const {
  Problem reduced = problem_;
  for (size_t l = 0; weight_ < kUnserved && l < link_bounds_.size(); ++l) {
    if (link_bounds_[l] > weight_) reduced.weight[l] = kUnserved;
  }
  return reduced;
}

void Search::Raise(Bound* bound, int64_t work) {
  if (ManyNodes()) {
    bound->RaiseAmongMany(weight_, work);
    const Parents& relaxed = bound->relaxed_tree();
    if (!relaxed.empty() && HoldsRequired(problem_, relaxed)) relaxed_ = relaxed;
  } else {
    bound->Raise(weight_, work);
  }
  KeepBound(*bound);
}

void Search::KeepBound(const Bound& bound) {
  bound_ = bound.value();
  link_bounds_ = bound.link_bounds();
}

bool Search::Anneal(int64_t work, int64_t goal) {
  const bool around = ManyNodes() && weight_ < kUnserved && !whole_runs_;
  return around ? AnnealAround(work, goal) : AnnealWhole(work, goal);
}

bool Search::AnnealWhole(int64_t work, int64_t goal) {
  if (weight_ <= goal || !HoldsRequired(problem_, cheapest_)) return true;
  const Problem reduced = Reduced();
  Parents cheapest = MinArborescence(reduced);
  PruneRelays(reduced, &cheapest);
  Annealing annealing(reduced, link_bounds_, options_.seed + static_cast<uint64_t>(work_));
  run_work_ = std::max(run_work_, kFirstRunWork * problem_.n);
  for (; annealing.work() < work && agreed_ < kAgreed && weight_ > goal; ++runs_) {
    // Two runs from scratch, then one from the best tree, then longer ones.
    // While there is no tree within the limits, every other run looks for any.
    const bool fresh = runs_ % 3 != 2 || weight_ >= kUnserved;
    const bool any = weight_ >= kUnserved && runs_ % 2 == 1;
    const int64_t left = work - annealing.work();
    annealing.Run(fresh ? cheapest : best_, {.hot = fresh ? kHot : kWarm,
                                             .limits_first = any,
                                             .work = std::min(run_work_, left),
                                             .goal = goal});
    if (annealing.best_weight() < weight_) {
      Keep(annealing.best());
      agreed_ = 0;
    }
    if (fresh && left > run_work_) {
      agreed_ = annealing.run_weight() == weight_ ? agreed_ + 1 : 0;
    }
    if (runs_ % 3 == 2) run_work_ *= 2;
  }
  work_ += annealing.work();
  return agreed_ >= kAgreed || weight_ <= goal;
}

bool Search::AnnealAround(int64_t work, int64_t goal) {
  if (weight_ <= goal) return true;
  const Problem reduced = Reduced();
  Parents cheapest = MinArborescence(reduced);
  PruneRelays(reduced, &cheapest);
  Annealing annealing(reduced, link_bounds_, options_.seed + static_cast<uint64_t>(work_));
  // It may feed relays over links that no better tree uses, and are left out now.
  if (!relaxed_.empty() && !CanBeMoved(reduced, relaxed_)) relaxed_.clear();
  for (int run = 0; run < kManyStarts && weight_ > goal; ++run) {
    annealing.Run(relaxed_.empty() ? cheapest : relaxed_,
                  {.hot = relaxed_.empty() ? kManyHot : kManyCool[run],
                   .work = work / 100 * kManyPercent,
                   .goal = goal});
    if (annealing.best_weight() < weight_) Keep(annealing.best());
  }
  Descend();
  const int around = problem_.n / kAroundPart;
  while (annealing.work() < work && weight_ > goal) {
    annealing.Run(best_, {.hot = kManyWarm,
                          .work = std::min(kAroundWork * around, work - annealing.work()),
                          .goal = goal,
                          .around = around});
    if (annealing.best_weight() < weight_) Keep(annealing.best());
  }
  Descend();
  work_ += annealing.work();
  return weight_ <= goal;
}

bool Search::ProveNone(Bound* bound, int64_t work) {
  const int64_t heaviest = HeaviestTree(problem_);
  // Where the integer program has no solution even in fractions, prices rise without end.
  bound->Raise(kFarAbove * heaviest, work);
  bound_ = bound->value() > heaviest ? kUnserved : bound->value();
  return bound_ == kUnserved;
}

void Search::AnnealInStages(Bound* bound, int64_t bound_work) {
  const int64_t most =
      options_.work_max - LayersWork() - full_work_ - options_.work_max / kDelaysPart;
  int64_t work = most - std::max(bound_work, bound->work());
  const int64_t begin = work_;
  if (weight_ >= kUnserved && ProveNone(bound, (bound_work - bound->work()) / 2)) return;
  const int64_t again = std::clamp<int64_t>(kStretchedWorkMost - options_.work_max, 0,
                                            kBeforeRefusal * options_.work_max);
  int64_t more = std::min(again, options_.work_max / kStretchPart);
  Anneal(work, kUnserved - 1);
  if (weight_ >= kUnserved && !options_.give_up_early) {
    const int64_t before = work_;
    Anneal(again, kUnserved - 1);
    if (work_ > before) more = std::max<int64_t>(0, again - (work_ - before));
  }
  if (weight_ >= kUnserved || options_.any_tree) return;
  bool agreed = false;
  if (ManyNodes()) {  // one stage: they need long runs
    Raise(bound, bound_work - bound->work());
    work = most - bound->work();
    agreed =
        FewLinks(problem_) ? AnnealFewLinks(bound, work) : Anneal(work - (work_ - begin), Goal());
  } else {
    for (int left = kStages; left > 0 && !agreed && !GoodEnough(); --left) {
      Raise(bound, (bound_work - bound->work()) / (left + 1));
      agreed = Anneal((work - (work_ - begin)) / left, Goal());
    }
    Raise(bound, bound_work - bound->work());
  }
  if (!agreed && Far(kStretchPpm) && more > 0) Anneal(more, Goal());
}

bool Search::AnnealFewLinks(Bound* bound, int64_t work) {
  const int64_t before = work_;
  if (AnnealAround(work / 2, Goal())) return true;
  work -= work_ - before;
  whole_runs_ = Far(kManyFarPpm);
  if (!whole_runs_) return AnnealAround(work, Goal());
  const int64_t raised = bound->work();
  bound->Raise(weight_, work / 4);
  KeepBound(*bound);
  return AnnealWhole(work - (bound->work() - raised), Goal());
}

SolveResult Search::Run(const std::vector<Parents>& starts) {
  SolveResult result;
  if (AllRequired(problem_) && IsFeasible(problem_, cheapest_)) {
    best_ = cheapest_;
    weight_ = bound_ = TotalWeight(problem_, best_);
  } else {
    int64_t bound_work = options_.work_max / kBoundPart;
    Bound bound(problem_, bound_work);
    if (ManyNodes() && fanout_limited_) bound_work = options_.work_max / kPricesPart;
    set_up_work_ += bound.set_up_work();
    bound_ = bound.value();
    link_bounds_ = bound.link_bounds();
    problem_.node_depth_max.empty() ? SearchLayers(starts) : KeepStarts(starts);
    if (!exhausted_ && bound_ < kUnserved) SearchFull(&bound, bound_work);
    if (!exhausted_ && bound_ < kUnserved) AnnealInStages(&bound, bound_work);
    work_ += bound.work();
    if (exhausted_ && weight_ < kUnserved) bound_ = weight_;
  }
  const bool none = bound_ >= kUnserved && weight_ >= kUnserved;
  bound_ = std::min(bound_, weight_);
  PruneRelays(problem_, &best_);
  result.feasible = IsFeasible(problem_, best_);
  result.proven = exhausted_ || none || (result.feasible && bound_ == weight_);
  if (result.feasible && options_.shorten_delays && !options_.any_tree) {
    ShortenDelays(problem_, &best_);
    LowerWorstDelay(problem_, options_.seed, options_.work_max / kDelaysPart, &best_);
  }
  result.weight = TotalWeight(problem_, best_);
  result.bound = std::min(bound_, result.weight);
  result.parents = std::move(best_);
  result.work = work_ + set_up_work_;
  return result;
}

}  // namespace

int64_t BestBound(const Problem& problem, int64_t weight, int64_t work_max) {
  Bound bound(problem, work_max);
  if (weight < kUnserved) bound.Raise(weight, work_max - bound.work());
  return bound.value();
}

SolveResult Solve(const Problem& problem, const std::vector<Parents>& starts,
                  const SolveOptions& options) {
  return Search(problem, options).Run(starts);
}

}  // namespace tailcast::copytree
