// The cheapest tree without limits on depth, fan-out or delay (Chu, Liu and Edmonds): a start for
// the search, and a lower bound on every tree that must hold all nodes.
#pragma once

#include <cstdint>

#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

// Spans every node that can be reached from the root, relays included; the others keep kNoParent.
// O(nodes squared) elementary steps for each round of contraction, of which there are mostly a few
// and at most as many as nodes; they are added to `work`, if given.
Parents MinArborescence(const Problem& problem, int64_t* work = nullptr);

// Removes relays that feed nobody, repeatedly.
void PruneRelays(const Problem& problem, Parents* parents);

}  // namespace tailcast::copytree
