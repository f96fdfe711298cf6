#include "tailcast/producer/producer_metrics.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace tailcast::producer {

HistogramMetric& CommitTime(MetricRegistry& registry, const std::string& stream) {
  return registry.GetHistogram("tailcast_producer_commit_seconds",
                               "From publishing a message until it was durable.",
                               HistogramMetric::Of::kMicroseconds, {{"stream", stream}});
}

MetricSource ShowIntake(MetricRegistry& registry, const std::string& stream, const Intake& intake) {
  return {registry, [stream, &intake](std::vector<MetricSample>& out) {
            const Intake::Totals now = intake.totals();
            const auto add = [&](const char* name, const char* help, MetricKind kind, int64_t value,
                                 const char* outcome = nullptr) {
              MetricLabels labels = {{"stream", stream}};
              if (outcome != nullptr) labels["outcome"] = outcome;
              out.push_back({name, help, kind, std::move(labels), value});
            };
            add("tailcast_producer_messages_total", "Messages that were taken.",
                MetricKind::kCounter, now.messages);
            add("tailcast_producer_bytes_total", "Payload that was taken.", MetricKind::kCounter,
                now.bytes);
            constexpr const char* kName = "tailcast_producer_acknowledged_total";
            constexpr const char* kHelp = "Messages of which the outcome was told.";
            add(kName, kHelp, MetricKind::kCounter, now.durable, "durable");
            add(kName, kHelp, MetricKind::kCounter, now.failed, "failed");
            add(kName, kHelp, MetricKind::kCounter, now.unknown, "unknown");
            add("tailcast_producer_buffered_bytes", "Payload that waits to be durable.",
                MetricKind::kGauge, now.buffered_bytes);
            add("tailcast_producer_stopped_shards",
                "Shards that take no more, because of an error.", MetricKind::kGauge,
                now.stopped_shards);
          }};
}

}  // namespace tailcast::producer
