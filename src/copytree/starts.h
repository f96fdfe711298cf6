// Trees to start a search from: quickly made, each good at one thing.
#pragma once

#include <cstdint>
#include <vector>

#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

// Fewest hops first, then least weight: meets the depth limit if anything does.
Parents FewestHops(const Problem& problem);

// Shortest paths by delay: meets the delay limit if anything does.
Parents LeastDelay(const Problem& problem);

// Least delay from the root to each node within the depths that are allowed and over nodes that may
// feed any; no tree within the limits brings the stream there earlier. kNoDelayLimit: nothing leads
// there.
std::vector<int64_t> LeastDelays(const Problem& problem);

// Prim's algorithm under the limits: the cheapest link that adds a node and breaks none of them; of
// equals the one that arrives first. Nodes that cannot be added keep kNoParent. `delay_price` is
// added to a link's weight for each microsecond that its node then waits for the root.
// Elementary steps are added to `work`, if given.
Parents LimitedPrim(const Problem& problem, int64_t delay_price = 0, int64_t* work = nullptr);

}  // namespace tailcast::copytree
