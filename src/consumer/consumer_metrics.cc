#include "tailcast/consumer/consumer_metrics.h"

#include <string>
#include <utility>

namespace tailcast::consumer {
namespace {

constexpr const char* kReadHelp = "Bytes of data and index that were read, by origin.";
constexpr const char* kFallbackHelp = "Reads of the primary layer, by why the cache did not do.";

}  // namespace

ConsumerMetrics::ConsumerMetrics(MetricRegistry& m, const std::string& stream, WallTime opened)
    : opened_(opened),
      delay_(m.GetHistogram("tailcast_consumer_delay_seconds",
                            "From publishing until the message was given to the user, by the "
                            "clocks of both hosts.",
                            HistogramMetric::Of::kMicroseconds, {{"stream", stream}})),
      cache_(m.GetHistogram("tailcast_consumer_cache_hit_ratio",
                            "Share of the bytes of a look that came from the cache.",
                            HistogramMetric::Of::kPerMillion, {{"stream", stream}})),
      history_(m.GetCounter("tailcast_consumer_history_messages_total",
                            "Messages that were published before the consumer was opened.",
                            {{"stream", stream}})),
      shown_{{{m.GetCounter("tailcast_consumer_messages_total", "Messages given to the user.",
                            {{"stream", stream}}),
               &Counters::messages},
              {m.GetCounter("tailcast_consumer_bytes_total", "Payload given to the user.",
                            {{"stream", stream}}),
               &Counters::bytes},
              {m.GetCounter("tailcast_consumer_read_bytes_total", kReadHelp,
                            {{"stream", stream}, {"origin", "cache"}}),
               &Counters::cache_bytes},
              {m.GetCounter("tailcast_consumer_read_bytes_total", kReadHelp,
                            {{"stream", stream}, {"origin", "primary"}}),
               &Counters::primary_bytes},
              {m.GetCounter("tailcast_consumer_fallbacks_total", kFallbackHelp,
                            {{"stream", stream}, {"cause", "missing_chunk"}}),
               &Counters::fallback_missing_chunk},
              {m.GetCounter("tailcast_consumer_fallbacks_total", kFallbackHelp,
                            {{"stream", stream}, {"cause", "delayed"}}),
               &Counters::fallback_delayed},
              {m.GetCounter("tailcast_consumer_fallbacks_total", kFallbackHelp,
                            {{"stream", stream}, {"cause", "no_metadata"}}),
               &Counters::fallback_no_metadata},
              {m.GetCounter("tailcast_consumer_fallbacks_total", kFallbackHelp,
                            {{"stream", stream}, {"cause", "corrupt"}}),
               &Counters::fallback_corrupt},
              {m.GetCounter("tailcast_consumer_primary_errors_total",
                            "Reads of the primary layer that failed.", {{"stream", stream}}),
               &Counters::primary_errors}}},
      states_{},
      lag_(m.GetGauge("tailcast_consumer_lag_bytes",
                      "Data that the cell is known to have and that was not given yet.",
                      {{"stream", stream}})) {
  for (size_t i = 0; i < kStates; ++i) {
    states_[i] = &m.GetGauge(
        "tailcast_consumer_shards", "Shards that are consumed, by how they are.",
        {{"stream", stream}, {"state", std::string(ShardStateName(static_cast<ShardState>(i)))}});
  }
}

ConsumerMetrics::~ConsumerMetrics() { OnLook(counters_, {}, 0); }

void ConsumerMetrics::OnGiven(WallTime now, std::span<const Message> batch) {
  int64_t history = 0;
  // Messages of a flush come together: one entry for as many as have one time.
  int64_t delay = 0, same = 0;
  for (const Message& message : batch) {
    if (message.time_us < opened_.micros()) {
      ++history;
      continue;
    }
    const int64_t us = now.micros() - message.time_us;
    if (us == delay) {
      ++same;
      continue;
    }
    if (same > 0) delay_.Observe(delay, same);
    delay = us;
    same = 1;
  }
  if (same > 0) delay_.Observe(delay, same);
  if (history > 0) history_.Add(history);
}

void ConsumerMetrics::OnLook(const Counters& counters, const States& states, int64_t lag_bytes) {
  for (const Shown& one : shown_) {
    const int64_t more = counters.*one.count - counters_.*one.count;
    if (more != 0) one.metric.Add(more);
  }
  const int64_t cache = counters.cache_bytes - counters_.cache_bytes;
  const int64_t read = cache + counters.primary_bytes - counters_.primary_bytes;
  constexpr int64_t kMillion = 1'000'000;
  if (read > 0) {
    cache_.Observe(
        static_cast<int64_t>(kMillion * static_cast<double>(cache) / static_cast<double>(read)));
  }
  for (size_t i = 0; i < kStates; ++i) {
    if (states[i] != now_[i]) states_[i]->Add(states[i] - now_[i]);
  }
  lag_.Add(lag_bytes - lag_bytes_);
  counters_ = counters;
  now_ = states;
  lag_bytes_ = lag_bytes;
}

}  // namespace tailcast::consumer
