// `tailcast status` as a person reads it: a line for each cell, then what is not well, then the
// streams. What `cells` is: status_facts.h, behind CompareHeads.
//
// A core: no I/O, no clock.
#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tailcast/inspect/text.h"

namespace tailcast::inspect {

struct StatusView {
  // Each shard in each cell, and the operations, of this stream only; empty: a line for each
  // stream.
  std::string stream;
  // Also the processes, caches, hops and operations of each cell.
  bool details = false;
  // Also streams and operations where nothing is to be done.
  bool all = false;
  // Lines are not longer, names of streams and long words aside.
  size_t columns = kColumns;
};

std::string StatusText(const nlohmann::json& cells, const StatusView& view);

}  // namespace tailcast::inspect
