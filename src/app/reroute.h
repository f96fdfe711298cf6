// Changing the copy tree of a running stream: plans the new tree and hands it to the schedulers,
// which make the new operations before they break the old ones.
#pragma once

#include <string>
#include <vector>

#include "tailcast/app/cell_session.h"
#include "tailcast/base/status.h"
#include "tailcast/copytree/change.h"
#include "tailcast/copytree/plan.h"
#include "tailcast/stream/term.h"

namespace tailcast::app {

struct RerouteRequest {
  std::string stream;
  std::vector<copytree::Edge> avoid;  // links not to be used, in this direction
  std::vector<std::string> sick;      // cells that shall feed nobody
  std::vector<std::string> failed;    // cells, or links as copytree::ParseLinks reads them
  std::vector<copytree::Edge> tree;   // the new tree itself; empty: planned
  // Cells that are destinations no more, and such that are from now on.
  std::vector<std::string> without, with;
  bool dry_run = false;
};

struct Rerouted {
  copytree::Tree before, after;
  double usd_per_gb_before = 0, usd_per_gb_after = 0;
  // What the schedulers carry out, from the tree that was carried out last.
  std::vector<copytree::Step> steps;
  std::vector<std::string> warnings;                              // of the plan
  stream::TreeVersion tree_version = stream::TreeVersion::kNone;  // of the new tree
  bool changed = false;
};

// `session` is with the scheduler of the stream's source.
//   NotFound: no such stream; InvalidArgument: unknown cells; FailedPrecondition: no such tree, or
//   the session's cell is not the source.
Result<Rerouted> Reroute(CellSession& session, const RerouteRequest& request);

// Waits until every cell is fed as this tree of the stream wants it.
//   DeadlineExceeded: it is not yet; the schedulers go on. Aborted: another tree has replaced it.
Status WaitForTree(CellSession& session, const std::string& stream,
                   stream::TreeVersion tree_version, Duration timeout);

// "A-B" or "A>B": names may have dashes, so `known` decides where one ends.
Result<copytree::Edge> ParseEdge(const std::string& text, const std::vector<std::string>& known);

}  // namespace tailcast::app
