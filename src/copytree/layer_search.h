// The heart of the optimiser: local search over layers instead of over trees.
//
// A state gives each node a layer: 0 for the root, 1..depth_max-1 for inner nodes ("this node may
// feed others, and what it feeds lies in a later layer"), depth_max for leaves, or absent for
// relays that are not used. For given layers the best tree is easy: without a fan-out limit each
// node takes its cheapest parent in an earlier layer; with one it is a transportation problem, kept
// at its optimum by cancelling negative cycles. So the search decides only who is inner, and where;
// a move (one node to another layer, or an inner node replaced by another) is priced in O(nodes)
// against each node's best and second-best parent. With fan-out limits the dual prices of the
// transportation problem turn the same O(nodes) estimate into a lower bound on what the move can
// gain, and only moves that pass it are tried exactly.
//
// Under a delay limit an inner node also carries a budget: the time by which the stream has
// arrived there; a parent is admissible if its budget plus the link's delay fits the child's.
//
// Iterated local search: descend, kick a few nodes, descend again. Effort is counted in elementary
// steps, never in time, and the generator is seeded: the same problem gives the same tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

struct SearchOptions {
  uint64_t seed = 1;
  // Elementary steps, about a nanosecond each. The search ends with the best tree so far.
  int64_t work_max = 50'000'000;
  // Stop as soon as a tree weighs no more than this (a proven lower bound).
  int64_t stop_at_weight = INT64_MIN;
};

// Not thread-safe; one problem per instance. The problem must outlive it.
class LayerSearch {
 public:
  LayerSearch(const Problem& problem, SearchOptions options);

  // Descends from a given tree's layers (nodes too deep or missing become leaves) and keeps the
  // result if it is the best so far. The tree need not be feasible.
  void StartFrom(const Parents& parents);
  // Descends from the star: every node a leaf of the root.
  void StartFromStar();
  // Kicks and descends from the best state until the work is used up or the goal is reached.
  void Improve();

  // Best tree so far, its weight, and the elementary steps spent.
  const Parents& best() const { return best_parents_; }
  int64_t best_weight() const { return best_weight_; }
  int64_t work() const { return work_; }
  // Dual prices of the nodes' fan-out in the best state: what one more child would save. All 0
  // without fan-out limits.
  const std::vector<int64_t>& best_prices() const { return best_state_.price; }

 private:
  // The layer of a relay that the tree does not use. Later than any real layer, so that it feeds
  // none.
  static constexpr int kAbsent = INT32_MAX;

  struct State {
    std::vector<int> layer;       // 0..depth_max, or kAbsent
    std::vector<int64_t> budget;  // arrival by; used under a delay limit only
    std::vector<int> assigned;    // parent now; kNoParent = unserved or absent
    std::vector<int64_t> price;   // dual price of each node's fan-out
    int64_t weight = 0;
  };

  bool IsInner(const State& s, int v) const { return s.layer[v] < problem_.depth_max; }
  bool Admits(const State& s, int from, int layer, int64_t budget, int to) const {
    return s.layer[from] < layer &&
           (!delay_limited_ || s.budget[from] + problem_.Delay(from, to) <= budget);
  }
  int64_t LeafBudget() const { return problem_.delay_max_us; }

  void SetLayer(int v, int layer, int64_t budget);
  // Makes `state_` consistent after layers changed: parents, weight and prices. Without fan-out
  // limits first_ and second_ too; Resettle always brings them up to date.
  void Settle();
  void Resettle();
  void AssignUncapped();
  void AssignCapped();
  // Slots of AssignCapped: one for each of inner_, one of those that are not served, and one that
  // stands for free fan-out.
  int Unserved() const { return slots_; }
  int Slack() const { return slots_ + 1; }
  bool HasRoom(int slot) const;
  bool MayJoin(int v, int slot) const;
  int64_t Cost(int v, int slot) const;
  void ListSlots();
  // Who may stay stays, the rest goes where it is cheapest among those with room; the weight.
  int64_t PlaceMembers();
  // For each other slot the least change of weight by which one member of this one can move there.
  void FillShifts(int slot);
  // Into order_, against its direction; false if there is none.
  bool FindNegativeCycle();
  // One round; false if nothing changed.
  bool RelaxDistances();
  // One member each; the change of weight.
  int64_t MoveAlongCycle();
  void ListInner();
  void RankParents();
  void TightenBudgets();

  // By how much the weight changes if v moves to the layer; exact without fan-out limits, else a
  // lower bound.
  int64_t EstimateMove(int v, int layer, int64_t budget);
  // The same for: inner node `out` becomes a leaf, leaf `in` takes its layer.
  int64_t EstimateSwap(int out, int in);
  bool TryMove(int v, int layer, int64_t budget);
  bool TrySwap(int out, int in);
  bool ImproveNode(int v);
  bool ImproveBySwaps();
  void Descend();
  void Kick();
  void KeepIfBest();
  // Budgets worth trying for v in the layer: arrivals over parents that no other parent beats in
  // both time and weight. One entry without a delay limit.
  void CandidateBudgets(int v, int layer, std::vector<int64_t>* budgets);

  const Problem& problem_;
  const SearchOptions options_;
  const bool delay_limited_;
  bool capped_ = false;
  std::vector<int64_t> entering_;  // the weights transposed: [to * n + from]
  Rng rng_;
  const int64_t work_end_;
  int64_t work_ = 0;

  State state_;
  std::vector<int> inner_;           // inner nodes of state_, the root first, then by number
  std::vector<int> first_, second_;  // cheapest admissible parents by weight + price
  std::vector<int64_t> first_weight_, second_weight_;

  Parents best_parents_;
  int64_t best_weight_ = INT64_MAX;
  State best_state_;
  int layer_limit_ = 1;  // deepest inner layer worth trying now

  // What a rejected move restores.
  struct Saved {
    State state;
    std::vector<int> inner, first, second;
    std::vector<int64_t> first_weight, second_weight;
  };
  Saved saved_;
  void Save();
  void Restore();
  bool OutOfWork() const { return work_ >= work_end_; }

  // Scratch space of AssignCapped and the estimates, kept to avoid allocation.
  int slots_ = 0;  // inner nodes
  std::vector<int> slot_of_, slot_layer_, mark_;
  std::vector<std::vector<int>> members_;
  std::vector<int64_t> shift_, distance_;
  std::vector<int> shift_node_, previous_, order_;
  std::vector<int64_t> gains_, budgets_;
};

}  // namespace tailcast::copytree
