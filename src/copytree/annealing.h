// Simulated annealing over trees, for the problems that layers (layer_search.h) describe badly:
// tight fan-out, few links, prices without ties, delay limits.
//
// A state is any tree over existing links that holds every required node. Limits may be broken, at
// a price per broken unit that rises while the state breaks them and falls while it does not, so
// the search walks along the border of what is allowed. Moves: a node to another parent, ejecting
// one of that parent's children where it is full; two nodes exchange places; two subtrees exchange
// parents; a node steps into a link; a relay comes or goes. A move costs a few steps for its links,
// and the size of the subtrees that move, which is on average less than the tree's depth.
//
// All arithmetic is in integers, the generator is seeded and effort is counted in elementary steps:
// the same problem and work give the same tree on every machine.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

struct AnnealingRun {
  int hot = 60;  // the first temperature, in percent of a typical link's weight
  // Look for any tree within the limits; what it weighs hardly counts.
  bool limits_first = false;
  int64_t work = 0;          // elementary steps, about
  int64_t goal = INT64_MIN;  // end early with a tree of at most this weight
  // Try anew only so many nodes, near each other by links and tree, and leave the others where they
  // are: among hundreds of nodes many such runs get further than long ones. 0 = all nodes.
  int around = 0;
};

// Not thread-safe; one problem per instance. The problem must outlive it.
class Annealing {
 public:
  // `rank` [from * n + to], e.g. Bound::link_bounds: links with a low one are proposed most.
  Annealing(const Problem& problem, const std::vector<int64_t>& rank, uint64_t seed);

  // One run from hot to cold, from a tree that holds every required node over links that exist
  // (CHECKed); limits may be broken.
  void Run(const Parents& start, const AnnealingRun& run);

  // The best tree within all limits so far; INT64_MAX and no parents before there is one.
  const Parents& best() const { return best_; }
  int64_t best_weight() const { return best_weight_; }
  // The best of the last Run alone; INT64_MAX if it met no tree within the limits.
  int64_t run_weight() const { return run_weight_; }
  int64_t work() const { return work_; }

 private:
  // What a state breaks: hops too deep, children too many, nodes too late and by how much in all.
  struct Excess {
    int64_t hops = 0, children = 0, late = 0, late_us = 0;
    int64_t children_priced = 0;  // each times how crowded its parent is
    int64_t units() const { return hops + children + late; }
    bool none() const { return hops == 0 && children == 0 && late == 0; }
  };

  void Load(const Parents& start);
  // Fills `around_` with nodes of the loaded tree that are near each other.
  void ChooseAround(size_t count);
  // Everything changes through this: `v` leaves its parent (kNoParent: was outside) for another one
  // (kNoParent: leaves the tree, without children). Logged, so that Undo can take it back.
  void Move(int v, int parent);
  void Undo();
  void MoveUnlogged(int v, int parent);
  void Unlink(int v);
  void Link(int v, int parent);
  // Depths and arrivals of v's subtree, and what they break.
  void Place(int v);
  void CountNode(int v, int sign);
  int64_t Energy() const;
  bool Below(int v, int ancestor) const;
  bool Full(int v) const { return children_[v] >= problem_.fanout_max[v]; }
  int RandomNode();
  int RandomCandidate(int v);
  int RandomChild(int v);

  // Each proposes one move and makes it; false if there is none to make.
  bool Reparent(int v);
  bool Displace(int v, int to, int moves, int64_t change);
  bool BringRelay(int relay, int child);
  bool SwapNodes(int v);
  bool SwapSubtrees(int v);
  bool StepInto(int v);
  bool DropRelay(int v);
  void PruneUp(int v);
  void Propose(int64_t temperature);
  // Who stays crowded pays more for it, so that a node through which much goes sheds children while
  // that is easy.
  void PriceCrowds();
  void KeepIfBest();

  const Problem& problem_;
  const int n_;
  const bool many_nodes_;
  const size_t near_;  // most proposals look among so many of the best links into a node
  Rng rng_;
  std::vector<std::vector<int>> candidates_;  // into each node, cheapest first
  std::vector<int> nearest_;  // [v * near_ + i], the first of candidates_ side by side
  int64_t typical_ = 1;       // weight of a link that trees use
  int64_t late_unit_us_ = 1;

  Parents parent_;
  std::vector<int> first_, next_, before_;  // children as doubly linked lists
  std::vector<int> depth_, children_;
  std::vector<int> crowded_;  // times price_, for each child too many
  std::vector<int64_t> arrival_;
  std::vector<int64_t> cost_;       // weight of the link into each node
  std::vector<int> nodes_, place_;  // in the tree but the root, and where each stands in `nodes_`
  std::vector<int> relays_;         // nodes that are not required
  std::vector<int> around_;         // what the run moves; empty = all nodes
  int64_t weight_ = 0;
  Excess excess_;
  int64_t price_ = 1;  // of a broken unit
  // A move that changes the weight by more is refused before it is made.
  int64_t ceiling_ = 0;

  std::vector<std::pair<int, int>> log_;
  std::vector<int> stack_, scratch_;
  Parents best_;
  int64_t best_weight_ = INT64_MAX;
  int64_t run_weight_ = INT64_MAX;
  int64_t work_ = 0;
};

}  // namespace tailcast::copytree
