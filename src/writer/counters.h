// What a WriterAgent counts, each cause on its own. Internal to the module.
#pragma once

#include "tailcast/base/metrics.h"

namespace tailcast::writer {

struct Counters {
  explicit Counters(MetricRegistry& metrics);
  Counter& started_primary;
  Counter& started_cache;
  Counter& done;
  Counter& rejected_input;
  Counter& fenced;
  Counter& poisoned;
  Counter& seized;
  Counter& lock_unavailable;
  Counter& append_unknown;
  Counter& cache_write_failed;
  Counter& cache_mismatch;
  Counter& publish_failed;
  Counter& publish_given_up;
  Counter& notify_failed;
  Counter& below_floor;
  Counter& takeovers;
  Counter& damaged;
  Counter& reader_lost;
  Counter& jumps;
  Counter& bytes_primary;
  Counter& bytes_cache;
  Gauge& running;
  Gauge& buffered_primary;
  Gauge& buffered_cache;
};

}  // namespace tailcast::writer
