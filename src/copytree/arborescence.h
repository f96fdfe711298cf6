// The cheapest tree without limits on depth, fan-out or delay (Chu, Liu and Edmonds): a start for
// the search, and a lower bound on every tree that must hold all nodes.
#pragma once

#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

// Spans every node that can be reached from the root, relays included; the others keep kNoParent.
// O(nodes squared) steps for each round of contraction, of which there are at most log2(nodes).
Parents MinArborescence(const Problem& problem);

// Removes relays that feed nobody, repeatedly.
void PruneRelays(const Problem& problem, Parents* parents);

}  // namespace tailcast::copytree
