// Who says that it uses a cell, for `tailcast status`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tailcast/app/cell_session.h"

namespace tailcast::app {

// Asks the cell's scheduler, and adds to `cell`, in order of stream, kind and name:
//
//   users        kind (producer, consumer), stream, name, host, pid, shards, state, messages,
//                bytes, behind_bytes, behind_ms (only while it is), heard_ms;
//                of a producer whose callers find no room: waits_for (primary), waits_ms
//   users_full   they are as many as it keeps: there may be more
//   users_error  why there are none: it did not answer, or is older than such reports
//
// `stream`: of this one only; empty: all.
void AddUsers(CellSession& session, const std::string& stream, nlohmann::json& cell);

}  // namespace tailcast::app
