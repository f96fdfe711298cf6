#include "tailcast/copytree/exhaustive.h"

#include <algorithm>
#include <vector>

namespace tailcast::copytree {
namespace {

// Chooses a parent for one node after the other. A partial choice is cut off when its weight plus
// the cheapest link into each node to come reaches the best tree's; limits on fan-out are checked
// at once, cycles, depth and delay when all parents are chosen.
class Enumerator {
 public:
  Enumerator(const Problem& problem, int64_t below, int64_t steps_max)
      : problem_(problem), steps_max_(steps_max) {
    result_.weight = below;
    result_.parents.assign(problem.n, kNoParent);
    parents_.assign(problem.n, kNoParent);
    fanout_.assign(problem.n, 0);
    for (int v = 0; v < problem.n; ++v) {
      if (v != problem.root) nodes_.push_back(v);
    }
    choices_.resize(problem.n);
    rest_.assign(nodes_.size() + 1, 0);
    for (int v : nodes_) {
      for (int from = 0; from < problem.n; ++from) {
        if (from != v && problem.HasLink(from, v)) choices_[v].push_back(from);
      }
      std::stable_sort(choices_[v].begin(), choices_[v].end(),
                       [&](int a, int b) { return problem.Weight(a, v) < problem.Weight(b, v); });
    }
    for (size_t i = nodes_.size(); i-- > 0;) {
      const int v = nodes_[i];
      const bool needed = problem.required[v] && !choices_[v].empty();
      rest_[i] = rest_[i + 1] + (needed ? problem.Weight(choices_[v][0], v) : 0);
    }
  }

  ExhaustiveResult Run() {
    Choose(0, 0);
    result_.complete = steps_ <= steps_max_;
    return result_;
  }

 private:
  void Choose(size_t i, int64_t weight) {
    if (++steps_ > steps_max_) return;
    if (weight + rest_[i] >= result_.weight) return;
    if (i == nodes_.size()) {
      if (IsFeasible(problem_, parents_)) {
        result_.weight = weight;
        result_.parents = parents_;
      }
      return;
    }
    const int v = nodes_[i];
    if (!problem_.required[v]) Choose(i + 1, weight);
    for (int from : choices_[v]) {
      if (fanout_[from] >= problem_.fanout_max[from] || parents_[from] == v) continue;
      parents_[v] = from;
      ++fanout_[from];
      Choose(i + 1, weight + problem_.Weight(from, v));
      --fanout_[from];
      parents_[v] = kNoParent;
    }
  }

  const Problem& problem_;
  const int64_t steps_max_;
  int64_t steps_ = 0;
  std::vector<int> nodes_;
  std::vector<std::vector<int>> choices_;
  std::vector<int64_t> rest_;  // least weight of nodes_[i..]
  std::vector<int> fanout_;
  Parents parents_;
  ExhaustiveResult result_;
};

}  // namespace

ExhaustiveResult SearchAllTrees(const Problem& problem, int64_t below, int64_t steps_max) {
  return Enumerator(problem, below, steps_max).Run();
}

}  // namespace tailcast::copytree
