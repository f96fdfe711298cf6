// A lower bound for trees of depth two: facility location. The root feeds some nodes, and these
// feed all others.
//
// That each node is entered once has a price: a link into a node costs so much less, and the price
// is paid once for each node. What is left falls apart: a node that the root feeds takes every
// child that pays for itself, as many as its limit allows, and the root takes every node that does.
// For any prices that is a bound; they follow a subgradient. It ends at the same bound as the
// prices on links in bound.h, and as the dual ascent could at best, but it has one price for each
// node, not for each link, so among 500 nodes it is there after some hundred rounds of a
// millisecond. In deeper trees the same prices are a weaker bound than the ascent.
#pragma once

#include <cstdint>
#include <vector>

#include "tailcast/copytree/problem.h"

namespace tailcast::copytree {

struct FacilityBound {
  int64_t value = 0;  // no tree within the limits weighs less
  // [from * n + to]: nor does one that uses the link weigh less than this. INT64_MAX: none uses it.
  std::vector<int64_t> link_bounds;
  int64_t work = 0;  // elementary steps
};

// The problem's depth_max must be 2 (CHECKed). Goes on until the bound is `goal`, the weight of the
// best tree known, until it no longer rises, or for about `work_max` elementary steps.
FacilityBound BoundFacilities(const Problem& problem, int64_t goal, int64_t work_max);

}  // namespace tailcast::copytree
