// How a producer tells its cell's scheduler of a new or sealed file.
#pragma once

#include "tailcast/base/callback.h"
#include "tailcast/base/status.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/producer/producer_agent.h"

namespace tailcast::producer {

// Sends `event` as a FileNotice; `done` gets how that went. On the loop of `cell`, which outlives
// the call. Meant for ProducerAgent::Hooks::notify.
void NotifyScheduler(cell::CellClient& cell, const FileEvent& event, Callback<void(Status)> done);

}  // namespace tailcast::producer
