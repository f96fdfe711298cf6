#include "tailcast/reader/counters.h"

namespace tailcast::reader {
namespace {
constexpr const char* kStuckHelp =
    "Operations given up because nothing went on, by whose turn it was.";
MetricLabels Cause(const char* cause) { return {{"cause", cause}}; }
}  // namespace

Counters::Counters(MetricRegistry& m)
    : started(m.GetCounter("tailcast_reader_operations_started_total", "Operations started.")),
      done(m.GetCounter("tailcast_reader_operations_ended_total", "Operations ended, by cause.",
                        Cause("done"))),
      writer_lost(m.GetCounter("tailcast_reader_operations_ended_total",
                               "Operations ended, by cause.", Cause("writer_lost"))),
      superseded(m.GetCounter("tailcast_reader_operations_ended_total",
                              "Operations ended, by cause.", Cause("superseded"))),
      source_errors(m.GetCounter("tailcast_reader_source_errors_total",
                                 "Sizes of primary files that could not be read.")),
      refused(m.GetCounter("tailcast_reader_operations_ended_total", "Operations ended, by cause.",
                           Cause("refused"))),
      data_loss(m.GetCounter("tailcast_reader_operations_ended_total",
                             "Operations ended, by cause.", Cause("data_loss"))),
      stopped(m.GetCounter("tailcast_reader_operations_ended_total", "Operations ended, by cause.",
                           Cause("stopped"))),
      polls(m.GetCounter("tailcast_reader_polls_total", "Bulk reads of lengths.")),
      poll_errors(m.GetCounter("tailcast_reader_poll_errors_total",
                               "Bulk reads of lengths that the metadata cache did not answer.")),
      primary_polls(
          m.GetCounter("tailcast_reader_primary_polls_total", "Sizes asked of the primary layer.")),
      notifications(
          m.GetCounter("tailcast_reader_notifications_total", "Notifications by doorbells.")),
      unwatched(m.GetCounter("tailcast_reader_unwatched_total",
                             "Doorbells that nobody could watch; polled instead.")),
      source_lost(m.GetCounter("tailcast_reader_operations_ended_total",
                               "Operations ended, by cause.", Cause("source"))),
      stuck_writers(m.GetCounter("tailcast_reader_stuck_total", kStuckHelp, {{"end", "writer"}})),
      stuck_sources(m.GetCounter("tailcast_reader_stuck_total", kStuckHelp, {{"end", "source"}})),
      silent_writers(
          m.GetCounter("tailcast_reader_silent_writers_total",
                       "Times that the beats of a writer stopped, or its connection broke.")),
      jumps(m.GetCounter("tailcast_reader_jumps_total",
                         "Jumps that cache operations far behind asked their writers for.")),
      short_reads(m.GetCounter("tailcast_reader_short_reads_total",
                               "Reads that ended before the published length.")),
      sent_bytes(m.GetCounter("tailcast_reader_sent_bytes_total", "Payload sent to writers.")),
      cache_bytes(m.GetCounter("tailcast_reader_read_bytes_total", "Bytes read, by origin.",
                               {{"origin", "cache"}})),
      primary_bytes(m.GetCounter("tailcast_reader_read_bytes_total", "Bytes read, by origin.",
                                 {{"origin", "primary"}})),
      rejected_input(m.GetCounter("tailcast_reader_rejected_input_total",
                                  "Messages of writers and schedulers that were wrong.")),
      running(m.GetGauge("tailcast_reader_operations", "Operations that run now.")),
      metrics_(m) {}

Counters::Hop Counters::HopTo(stream::Layer layer, const std::string& cell) const {
  const MetricLabels labels = {{"layer", layer == stream::Layer::kPrimary ? "primary" : "cache"},
                               {"to", cell}};
  constexpr auto kTime = HistogramMetric::Of::kMicroseconds;
  return {metrics_.GetHistogram("tailcast_reader_hop_seconds",
                                "From knowing of bytes until the next cell has confirmed them.",
                                kTime, labels),
          metrics_.GetHistogram("tailcast_reader_lag_seconds",
                                "How old the first byte is that the next cell has not confirmed, "
                                "at each look that finds one.",
                                kTime, labels)};
}

}  // namespace tailcast::reader
