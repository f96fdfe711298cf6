// Who is to blame when clusters fall behind? A late cluster delays everything below it in the tree,
// so lateness alone does not tell. A breadth-first walk from the source does: the first late
// cluster on a path is where the trouble starts; those below it are its victims (paper,
// section 2.3).
#pragma once

#include <string>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/copytree/graph.h"
#include "tailcast/copytree/tree.h"

namespace tailcast::copytree {

// What the scheduler of a cluster reports about itself.
struct Observation {
  std::string cluster;
  double lag_ms = 0;    // how far its copy is behind the source's end of the stream
  bool unwell = false;  // it says itself that it is down, draining or in maintenance
  bool silent = false;  // no report at all
};

struct Suspects {
  std::vector<std::string> clusters;
  std::vector<Edge> links;  // both ends are well otherwise
  // Late only because something above them is: not penalised.
  std::vector<std::string> victims;
};

// Walks the tree from its source. A cluster that says that it is unwell, or is silent, is suspect.
// A cluster that is late (lag above `late_ms`) under a parent that is in time:
//  - if the parent has at least two children and all of them are late, the parent's sending is the
//    trouble: the parent is suspect (for the source, which no tree can avoid, the links are);
//  - if it has children of its own, it is no worse than the link to it: the link is suspect;
//  - a late leaf may be a slow writer or a slow link; the link is suspect, which moves the leaf to
//    another parent, the cheaper of the two remedies.
// Clusters below a suspect are victims if they are late. Clusters without an observation count as
// well. InvalidArgument if the tree is none.
Result<Suspects> FindSuspects(const Tree& tree, const std::vector<Observation>& observations,
                              double late_ms);

// Marks the suspects sick in the graph, links in both directions. The next MakePlan then avoids
// them: sick clusters become leaves and sick links unused wherever there is another way.
Status ApplySuspects(const Suspects& suspects, Graph* graph);

}  // namespace tailcast::copytree
