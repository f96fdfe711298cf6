// What people see of a scheduler: its metrics, and the operations in `tailcast status`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/scheduler/leaver_core.h"
#include "tailcast/scheduler/retention_core.h"
#include "tailcast/scheduler/room_watch.h"
#include "tailcast/scheduler/scheduler_core.h"
#include "tailcast/scheduler/stamp_watch.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/term.h"

namespace tailcast::scheduler {

// Sets the counters and gauges of the registry to the core's.
void ExportCounters(const SchedulerCore& core, MetricRegistry& metrics);

// What is known of the cell's primary layer.
struct DiskStatus {
  std::optional<storage::StoreRoom> room;
  std::optional<RoomWatch::Unseen> unseen;
  Status no_room;                    // why changes of the registry wait; OK: they don't
  std::vector<std::string> failing;  // deletions, and why
  std::vector<std::string> unread;   // message files that can't be read, and why
};

// {"cell": ..., "disk": {"text", "free_bytes", "total_bytes", "full", "unseen_ms",
// "unseen_why", "no_room", "failing": [...], "unread": [...]},
// "scheduler_incarnation": ..., "unfinished": ..., "operations": [...], "slow_workers": [...],
// "retention_waits": [...], "stamps": [...], "leaving": [...]}; of cores that are null, the cell
// and its disk alone; "text" to "full" where they are known, "unseen_ms" where the disk can't be
// looked at, "no_room" where changes wait. A row of "leaving" that keeps its copies has "shard" and
// "lacking_file", and "unread" where that is not lacking but can't be read: "there", in the cell
// that left, or at the "source".
std::string StatusJson(const std::string& cell, stream::SchedulerIncarnation incarnation,
                       MonotonicTime now, const SchedulerCore* core, const RetentionCore* retention,
                       const std::vector<StampWatch::Off>& stamps, const LeaverCore* leavers,
                       const DiskStatus& disk);

}  // namespace tailcast::scheduler
