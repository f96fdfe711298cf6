// What a Consumer shows to Prometheus (docs/metrics.md), summed with the other consumers of the
// process that read the same stream.
//
// Threads: the consumer's; the registry is read by any.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "tailcast/base/metrics.h"
#include "tailcast/base/time.h"
#include "tailcast/consumer/counters.h"
#include "tailcast/consumer/message.h"
#include "tailcast/consumer/shard_status.h"

namespace tailcast::consumer {

class ConsumerMetrics {
 public:
  static constexpr size_t kStates = 6;  // of ShardState
  using States = std::array<int64_t, kStates>;

  // `opened`: messages that were published before are history, and no measure of delay.
  ConsumerMetrics(MetricRegistry& registry, const std::string& stream, WallTime opened);
  ConsumerMetrics(const ConsumerMetrics&) = delete;
  ConsumerMetrics& operator=(const ConsumerMetrics&) = delete;
  ~ConsumerMetrics();  // its shards are no more

  // These were given to the user.
  void OnGiven(WallTime now, std::span<const Message> batch);
  // Of all shards, as of now: what was counted since the consumer was opened, how many are in each
  // state, and how many bytes they are behind.
  void OnLook(const Counters& counters, const States& states, int64_t lag_bytes);

 private:
  struct Shown {
    Counter& metric;
    int64_t Counters::*count;
  };
  const WallTime opened_;
  HistogramMetric& delay_;
  HistogramMetric& cache_;
  Counter& history_;
  std::array<Shown, 9> shown_;
  std::array<Gauge*, kStates> states_;
  Gauge& lag_;
  Counters counters_;
  States now_{};
  int64_t lag_bytes_ = 0;
};

}  // namespace tailcast::consumer
