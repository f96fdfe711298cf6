// What a ReaderAgent counts, each cause on its own. Internal to the module.
#pragma once

#include "tailcast/base/metrics.h"

namespace tailcast::reader {

struct Counters {
  explicit Counters(MetricRegistry& metrics);
  Counter& started;
  Counter& done;
  Counter& writer_lost;
  Counter& superseded;
  Counter& source_errors;
  Counter& refused;
  Counter& data_loss;
  Counter& stopped;
  Counter& polls;
  Counter& poll_errors;
  Counter& primary_polls;
  Counter& notifications;
  Counter& unwatched;
  Counter& source_lost;
  Counter& stuck_writers;
  Counter& stuck_sources;
  Counter& silent_writers;
  Counter& jumps;
  Counter& short_reads;
  Counter& sent_bytes;
  Counter& cache_bytes;
  Counter& primary_bytes;
  Counter& rejected_input;
  Gauge& running;
};

}  // namespace tailcast::reader
