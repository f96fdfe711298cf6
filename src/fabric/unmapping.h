// Mappings of memory that nobody reads any more. Hundreds of readers of a host lose a replica at
// the same moment; if each gave it back at once, its processors would do nothing else for a while
// (0.03 ms for each MB and reader).
#pragma once

#include <vector>

#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"

namespace tailcast::fabric {

// In pieces, within seconds. Reactor thread. What is left when the reactor ends goes at once.
void UnmapSlowly(Reactor& reactor, std::vector<Mapping> mappings);

}  // namespace tailcast::fabric
