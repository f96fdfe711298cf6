// What every driver of the storage port counts.
#pragma once

#include "tailcast/base/metrics.h"
#include "tailcast/storage/store.h"

namespace tailcast::storage {

struct StoreMetrics {
  explicit StoreMetrics(MetricRegistry& registry);
  Counter& Of(AppendOutcome outcome);

  Counter& applied;
  Counter& fenced;
  Counter& wrong_offset;
  Counter& unknown;
  Counter& append_bytes;
  Counter& append_micros;
  Counter& takeovers;
  Counter& quarantined;
  Counter& reads;
  Counter& read_bytes;
  Counter& read_errors;
  Counter& reads_refused;
};

}  // namespace tailcast::storage
