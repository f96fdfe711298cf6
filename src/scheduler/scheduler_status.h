// What people see of a scheduler: its metrics, and the operations in `tailcast status`.
#pragma once

#include <string>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/base/time.h"
#include "tailcast/scheduler/leaver_core.h"
#include "tailcast/scheduler/retention_core.h"
#include "tailcast/scheduler/scheduler_core.h"
#include "tailcast/scheduler/stamp_watch.h"
#include "tailcast/stream/term.h"

namespace tailcast::scheduler {

// Sets the counters and gauges of the registry to the core's.
void ExportCounters(const SchedulerCore& core, MetricRegistry& metrics);

// {"cell": ..., "scheduler_incarnation": ..., "unfinished": ..., "operations": [...],
// "slow_workers": [...], "retention_waits": [...], "stamps": [...], "leaving": [...]}; of cores
// that are null, the cell alone.
std::string StatusJson(const std::string& cell, stream::SchedulerIncarnation incarnation,
                       MonotonicTime now, const SchedulerCore* core, const RetentionCore* retention,
                       const std::vector<StampWatch::Off>& stamps, const LeaverCore* leavers);

}  // namespace tailcast::scheduler
