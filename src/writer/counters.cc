#include "tailcast/writer/counters.h"

namespace tailcast::writer {

Counters::Counters(MetricRegistry& m)
    : started_primary(m.GetCounter("tailcast_writer_operations_started_total",
                                   "Operations whose stream was opened.", {{"layer", "primary"}})),
      started_cache(m.GetCounter("tailcast_writer_operations_started_total",
                                 "Operations whose stream was opened.", {{"layer", "cache"}})),
      done(m.GetCounter("tailcast_writer_operations_done_total",
                        "Operations that copied a file up to its seal.")),
      rejected_input(m.GetCounter("tailcast_writer_rejected_input_total",
                                  "Messages of readers that were wrong.")),
      fenced(m.GetCounter("tailcast_writer_superseded_total",
                          "Operations that gave way, by how they noticed.", {{"cause", "fence"}})),
      poisoned(m.GetCounter("tailcast_writer_superseded_total",
                            "Operations that gave way, by how they noticed.", {{"cause", "lock"}})),
      seized(m.GetCounter("tailcast_writer_locks_seized_total",
                          "Locks taken from owners that did not release them.")),
      lock_unavailable(m.GetCounter("tailcast_writer_lock_unavailable_total",
                                    "Looks at locks that the metadata cache did not answer.")),
      append_unknown(m.GetCounter("tailcast_writer_append_failed_total",
                                  "Appends with an unknown outcome; the operation ended.")),
      cache_write_failed(m.GetCounter("tailcast_writer_cache_write_failed_total",
                                      "Bulk chunk writes without a quorum; tried again.")),
      cache_mismatch(m.GetCounter("tailcast_writer_cache_mismatch_total",
                                  "Chunk values that contradicted the cache's (DataLoss).")),
      publish_failed(m.GetCounter("tailcast_writer_publish_failed_total",
                                  "Writes of lengths without a quorum; tried again.")),
      publish_given_up(m.GetCounter("tailcast_writer_publish_given_up_total",
                                    "Operations that ended without having published their seal.")),
      notify_failed(
          m.GetCounter("tailcast_writer_notify_failed_total",
                       "Notices of files that the scheduler did not answer; tried again.")),
      below_floor(m.GetCounter("tailcast_writer_below_floor_total",
                               "Operations on files below the retention floor; refused.")),
      takeovers(m.GetCounter("tailcast_writer_takeovers_total",
                             "Primary files opened by fencing an earlier writer.")),
      damaged(m.GetCounter("tailcast_writer_damaged_files_total",
                           "Files of which committed bytes were missing; set aside and copied "
                           "again.")),
      reader_lost(
          m.GetCounter("tailcast_writer_reader_lost_total", "Streams that ended before the seal.")),
      jumps(m.GetCounter("tailcast_writer_jumps_total",
                         "Cache operations that jumped to where this cell's primary layer stood.")),
      bytes_primary(
          m.GetCounter("tailcast_writer_bytes_total", "Bytes written.", {{"layer", "primary"}})),
      bytes_cache(
          m.GetCounter("tailcast_writer_bytes_total", "Bytes written.", {{"layer", "cache"}})),
      running(m.GetGauge("tailcast_writer_operations", "Operations that run now.")),
      buffered_primary(m.GetGauge("tailcast_writer_buffered_bytes",
                                  "Received and not yet acknowledged by the layer.",
                                  {{"layer", "primary"}})),
      buffered_cache(m.GetGauge("tailcast_writer_buffered_bytes",
                                "Received and not yet acknowledged by the layer.",
                                {{"layer", "cache"}})) {}

}  // namespace tailcast::writer
