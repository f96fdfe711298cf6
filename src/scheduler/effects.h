// What the scheduler's core wants done.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/scheduler/stream_edges.h"
#include "tailcast/stream/operation.h"

namespace tailcast::scheduler {

// In this order: stop, start, ask, list.
struct Effects {
  std::map<std::string, std::vector<stream::OperationId>> stop;  // by reader
  std::map<std::string, std::vector<stream::Operation>> start;  // by reader; or updates of the seal
  std::set<std::pair<stream::ShardId, std::string>> progress;   // shard, cell: what does it have?
  std::set<stream::ShardId> list;                               // list the folder here
  std::vector<StepTaken> steps;  // for the log; after a wait-caught-up the target is to be told
};

}  // namespace tailcast::scheduler
