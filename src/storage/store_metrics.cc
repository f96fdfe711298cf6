#include "tailcast/storage/store_metrics.h"

namespace tailcast::storage {
namespace {

Counter& Outcome(MetricRegistry& registry, const char* outcome) {
  return registry.GetCounter("tailcast_storage_appends_total",
                             "Appends to the primary layer by outcome.", {{"outcome", outcome}});
}

}  // namespace

StoreMetrics::StoreMetrics(MetricRegistry& registry)
    : applied(Outcome(registry, "applied")),
      fenced(Outcome(registry, "fenced")),
      wrong_offset(Outcome(registry, "wrong_offset")),
      unknown(Outcome(registry, "unknown")),
      append_bytes(registry.GetCounter("tailcast_storage_append_bytes_total",
                                       "Bytes of applied appends to the primary layer.")),
      append_micros(registry.GetCounter("tailcast_storage_append_seconds_total",
                                        "Time that appends took in the storage driver.", {},
                                        MetricUnit::kMicroseconds)),
      takeovers(registry.GetCounter("tailcast_storage_takeovers_total",
                                    "Files opened for append by fencing earlier writers.")),
      quarantined(
          registry.GetCounter("tailcast_storage_quarantined_total", "Damaged files taken aside.")),
      reads(registry.GetCounter("tailcast_storage_reads_total", "Reads of the primary layer.")),
      read_bytes(registry.GetCounter("tailcast_storage_read_bytes_total",
                                     "Bytes read from the primary layer.")),
      read_errors(registry.GetCounter("tailcast_storage_read_errors_total",
                                      "Reads of the primary layer that failed.")),
      reads_refused(registry.GetCounter("tailcast_storage_reads_refused_total",
                                        "Reads refused because too many were waiting.")) {}

Counter& StoreMetrics::Of(AppendOutcome outcome) {
  switch (outcome) {
    case AppendOutcome::kApplied:
      return applied;
    case AppendOutcome::kFenced:
      return fenced;
    case AppendOutcome::kWrongOffset:
      return wrong_offset;
    case AppendOutcome::kUnknown:
      break;
  }
  return unknown;
}

}  // namespace tailcast::storage
