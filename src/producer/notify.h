// How a producer tells its cell's scheduler of a new or sealed file.
#pragma once

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/producer/notifier.h"

namespace tailcast::producer {

// Sends `event` as a FileNotice; `done` gets how that went, unless `scope` has ended. On the loop
// of `cell`, which outlives the scope. Meant for a NotifyHook.
void NotifyScheduler(cell::CellClient& cell, const Scope& scope, const FileEvent& event,
                     Callback<void(Status)> done);

}  // namespace tailcast::producer
