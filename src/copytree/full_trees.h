// Branch and bound over trees that limits on depth and fan-out leave hardly any room: level by
// level, and a whole set of children at a time.
//
// Where a full tree is all that fits, and few links lead out of a node, most choices of the first
// levels leave some node without a parent, and the last level is an assignment problem. Annealing
// walks past such trees; going through them finds one within a few thousand steps, and often
// proves the optimum or that there is none. What the dual ascent left of the links' weights says
// how much a partial tree must weigh at least.
#pragma once

#include <cstdint>

#include "tailcast/copytree/bound.h"
#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

// All nodes are required, all may feed equally many others, a few, the room is used up but for an
// eighth, and there are few links.
bool NearlyFull(const Problem& problem);

struct FullTreesResult {
  Parents parents;             // the best tree found; empty if none
  int64_t weight = INT64_MAX;  // of it
  bool complete = false;       // every tree was considered: it is the optimum, or there is none
  int64_t work = 0;            // elementary steps
};

// Looks for trees within the limits lighter than `below`, until one weighs `goal` at most or
// `work_max` steps are spent. The problem must be NearlyFull (CHECKed). `rests` may be empty.
FullTreesResult SearchFullTrees(const Problem& problem, const LinkRests& rests, int64_t below,
                                int64_t goal, int64_t work_max);

}  // namespace tailcast::copytree
