// What a ReaderAgent counts, each cause on its own. Internal to the module.
#pragma once

#include <string>

#include "tailcast/base/metrics.h"
#include "tailcast/stream/operation.h"

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

  // Of the operations of a layer to a cell.
  struct Hop {
    HistogramMetric& time;  // from knowing of bytes here until the writer has confirmed them
    HistogramMetric&
        lag;  // how old the first byte is that is not confirmed, at each look that finds one
  };
  Hop HopTo(stream::Layer layer, const std::string& cell) const;

 private:
  MetricRegistry& metrics_;
};

}  // namespace tailcast::reader
