// Trees to start a search from: quickly made, each good at one thing.
#pragma once

#include <cstdint>

#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

// Fewest hops first, then least weight: meets the depth limit if anything does.
Parents FewestHops(const Problem& problem);

// Shortest paths by delay: meets the delay limit if anything does.
Parents LeastDelay(const Problem& problem);

// Prim's algorithm under the limits: the cheapest link that adds a node and breaks none of them; of
// equals the one that arrives first. Nodes that cannot be added keep kNoParent. `delay_price` is
// added to a link's weight for each microsecond that its node then waits for the root.
Parents LimitedPrim(const Problem& problem, int64_t delay_price = 0);

}  // namespace tailcast::copytree
