// What an agent of a shard is given to meet the world with: one cell's ports, all of one loop.
#pragma once

#include "tailcast/base/event_loop.h"
#include "tailcast/base/step_log.h"
#include "tailcast/cache/client.h"
#include "tailcast/storage/store.h"

namespace tailcast::stream {

// Not owned; everything outlives the agents that hold it. All on `loop`.
struct CellPorts {
  EventLoop* loop = nullptr;
  storage::Store* store = nullptr;
  cache::Client* data_cache = nullptr;
  cache::Client* metadata_cache = nullptr;
  // Null: steps are not logged.
  StepLog* steps = nullptr;
};

}  // namespace tailcast::stream
