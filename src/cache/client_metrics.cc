#include "tailcast/cache/client_metrics.h"

#include <vector>

namespace tailcast::cache {
namespace {

using C = ClientCounters;
constexpr MetricKind kCounter = MetricKind::kCounter;

// A failure of what was asked of a replica.
constexpr ClientMetric Failure(const char* key, OwnedCounter C::*count, const char* operation,
                               const char* cause, bool any_client = false) {
  return {key,
          count,
          kCounter,
          "failures_total",
          "What was asked of a replica and not done, by operation and cause.",
          "operation",
          operation,
          "cause",
          cause,
          any_client};
}

constexpr ClientMetric Mismatch(const char* key, OwnedCounter C::*count, const char* found_by) {
  return {
      key,  count,   kCounter, "mismatches_total", "Values that contradict each other: DataLoss.",
      "by", found_by};
}

constexpr const char* kResultHelp =
    "Reads of chunks that ended, by what they brought: all that was wanted, less, or nothing new.";

constexpr ClientMetric kMetrics[] = {
    {"reads", &C::reads, kCounter, "chunk_reads_total", "Reads of chunks that began."},
    {"hits", &C::hits, kCounter, "chunk_read_results_total", kResultHelp, "result", "hit"},
    {"short_reads", &C::short_reads, kCounter, "chunk_read_results_total", kResultHelp, "result",
     "short"},
    {"misses", &C::misses, kCounter, "chunk_read_results_total", kResultHelp, "result", "miss"},
    {"consistent_reads", &C::consistent_reads, kCounter, "consistent_chunk_reads_total",
     "Reads of chunks that asked two replicas at once."},
    {"reads_ahead", &C::reads_ahead, kCounter, "chunk_reads_ahead_total",
     "Reads of chunks that nobody had said are there."},
    {"hits_ahead", &C::hits_ahead, kCounter, "chunk_hits_ahead_total",
     "Those of them that brought bytes."},
    {"widened_reads", &C::widened_reads, kCounter, "widened_chunk_reads_total",
     "Reads of chunks that asked all replicas, because the first had too little or failed."},
    {"hedges", &C::hedges, kCounter, "hedges_total",
     "Keys for which another replica was asked because the first was slow."},
    {"hedges_left", &C::hedges_left, kCounter, "hedges_left_total",
     "Times that a key's first replica was slow and no other was asked, to spare them."},
    {"torn_retries", &C::torn_retries, kCounter, "torn_copies_total",
     "Copies of a bucket or entry that did not validate, and were read again.", nullptr, nullptr,
     nullptr, nullptr, false},
    {"overflow_reads", &C::overflow_reads, kCounter, "overflow_reads_total",
     "Keys of overflowed buckets that were asked for by a call.", nullptr, nullptr, nullptr,
     nullptr, false},
    {"bytes_read", &C::bytes_read, kCounter, "read_bytes_total",
     "Bytes that were read of replicas, look-ups included."},
    {"useful_bytes", &C::useful_bytes, kCounter, "useful_bytes_total",
     "Bytes of chunks that reads were given and did not have."},
    {"value_reads", &C::value_reads, kCounter, "value_reads_total",
     "Lengths and locks that were read."},
    {"partial_values", &C::partial_values, kCounter, "partial_value_reads_total",
     "Reads of lengths and locks that too few whole replicas answered."},
    {"mutations", &C::mutations, kCounter, "mutations_total", "Keys that were written."},
    {"mutation_failures", &C::mutation_failures, kCounter, "mutation_failures_total",
     "Keys that were written and not acknowledged by two replicas."},
    Mismatch("chunk_mismatches", &C::chunk_mismatches, "chunk_read"),
    Mismatch("value_mismatches", &C::value_mismatches, "value_read"),
    Mismatch("remembered_mismatches", &C::remembered_mismatches, "remembered"),
    Mismatch("write_mismatches", &C::write_mismatches, "write"),
    {"watches", &C::watches, kCounter, "watches_total", "Doorbells that were asked for.", nullptr,
     nullptr, nullptr, nullptr, false},
    {"notifications", &C::notifications, kCounter, "notifications_total",
     "Doorbells that rang or timed out.", nullptr, nullptr, nullptr, nullptr, false},
    {"watch_refusals", &C::watch_refusals, kCounter, "watch_refusals_total",
     "Doorbells that a replica had no room for.", nullptr, nullptr, nullptr, nullptr, false},
    {"newer_rings", &C::newer_rings, kCounter, "newer_rings_total",
     "Configurations of the ring that were heard of from a replica first.", nullptr, nullptr,
     nullptr, nullptr, false},
    {"slow_replicas", &C::slow_replicas, kCounter, "slow_replicas_total",
     "Times that a replica came to be avoided because it is slow.", nullptr, nullptr, nullptr,
     nullptr, false},
    {"avoiding_reads", &C::avoiding_reads, kCounter, "avoiding_reads_total",
     "Reads that began elsewhere because a replica is slow.", nullptr, nullptr, nullptr, nullptr,
     false},
    {"probe_reads", &C::probe_reads, kCounter, "probe_reads_total",
     "Reads that were sent to a slow replica as well, for its latency.", nullptr, nullptr, nullptr,
     nullptr, false},
    Failure("read_deadline", &C::read_deadline, "read", "deadline", true),
    Failure("connect_failed", &C::connect_failed, "connect", "unreachable"),
    {"connect_moved_up", &C::connect_moved_up, kCounter, "moved_up_total",
     "Connections to replicas that moved to a better address, which works again.", "for", "reads",
     nullptr, nullptr, false},
    {"channel_moved_up", &C::channel_moved_up, kCounter, "moved_up_total",
     "Connections to replicas that moved to a better address, which works again.", "for", "writes",
     nullptr, nullptr, false},
    Failure("connect_no_key", &C::connect_no_key, "connect", "no_key"),
    Failure("connect_not_a_cache", &C::connect_not_a_cache, "connect", "not_a_cache"),
    Failure("connect_other_incarnation", &C::connect_other_incarnation, "connect",
            "other_incarnation"),
    Failure("read_out_of_range", &C::read_out_of_range, "read", "out_of_range"),
    Failure("read_stale_region", &C::read_stale_region, "read", "stale_region"),
    Failure("read_unreachable", &C::read_unreachable, "read", "unreachable"),
    Failure("read_timeout", &C::read_timeout, "read", "timeout"),
    Failure("read_overloaded", &C::read_overloaded, "read", "overloaded"),
    Failure("read_torn", &C::read_torn, "read", "torn"),
    Failure("read_not_connected", &C::read_not_connected, "read", "not_connected"),
    Failure("read_left_alone", &C::read_left_alone, "read", "left_alone"),
    Failure("read_no_slot", &C::read_no_slot, "read", "no_slot"),
    Failure("heartbeat_stopped", &C::heartbeat_stopped, "watch", "heartbeat_stopped"),
    {"write_messages", &C::write_messages, kCounter, "writes_total",
     "Parts of bulk writes that were sent to a replica, by the way they went.", "way", "channel",
     nullptr, nullptr, false},
    {"write_calls", &C::write_calls, kCounter, "writes_total",
     "Parts of bulk writes that were sent to a replica, by the way they went.", "way", "call",
     nullptr, nullptr, false},
    {"channel_failed", &C::channel_failed, kCounter, "channel_failures_total",
     "Message channels to replicas that could not be opened, or broke.", "cause", "not_opened",
     nullptr, nullptr, false},
    {"channel_broken", &C::channel_broken, kCounter, "channel_failures_total",
     "Message channels to replicas that could not be opened, or broke.", "cause", "broken", nullptr,
     nullptr, false},
    {"channel_silent", &C::channel_silent, kCounter, "channel_failures_total",
     "Message channels to replicas that could not be opened, or broke.", "cause", "silent", nullptr,
     nullptr, false},
    Failure("write_no_address", &C::write_no_address, "write", "no_address"),
    Failure("write_window_full", &C::write_window_full, "write", "window_full"),
    Failure("write_timeout", &C::write_timeout, "write", "timeout", true),
    Failure("write_unreachable", &C::write_unreachable, "write", "unreachable"),
    Failure("write_channel_broken", &C::write_channel_broken, "write", "channel_broken"),
    Failure("write_other_incarnation", &C::write_other_incarnation, "write", "other_incarnation"),
    Failure("write_not_serving", &C::write_not_serving, "write", "not_serving"),
    Failure("write_old_ring", &C::write_old_ring, "write", "old_ring"),
    Failure("write_old_epoch", &C::write_old_epoch, "write", "old_epoch"),
    Failure("write_bad_reply", &C::write_bad_reply, "write", "bad_reply"),
    Failure("get_no_address", &C::get_no_address, "get", "no_address"),
    Failure("get_timeout", &C::get_timeout, "get", "timeout"),
    Failure("get_unreachable", &C::get_unreachable, "get", "unreachable"),
    Failure("get_other_incarnation", &C::get_other_incarnation, "get", "other_incarnation"),
    Failure("get_not_serving", &C::get_not_serving, "get", "not_serving"),
    Failure("get_old_ring", &C::get_old_ring, "get", "old_ring"),
    Failure("get_bad_reply", &C::get_bad_reply, "get", "bad_reply"),
    {"ready_replicas", &C::ready_replicas, MetricKind::kGauge, "ready_replicas",
     "Replicas that are connected now.", nullptr, nullptr, nullptr, nullptr, false},
};
// A field that is added is added here.
static_assert(sizeof(ClientCounters) == std::size(kMetrics) * sizeof(OwnedCounter));

}  // namespace

std::span<const ClientMetric> ClientMetrics() { return kMetrics; }

MetricSource ExportClient(MetricRegistry& registry, const std::string& cache,
                          const ClientCounters& counters, bool own_caches) {
  std::vector<const ClientMetric*> shown;
  std::vector<MetricSample> samples;  // without their values
  for (const ClientMetric& metric : kMetrics) {
    if (!own_caches && !metric.any_client) continue;
    MetricLabels labels{{"cache", cache}};
    if (metric.label != nullptr) labels.emplace(metric.label, metric.value);
    if (metric.label2 != nullptr) labels.emplace(metric.label2, metric.value2);
    shown.push_back(&metric);
    samples.push_back(
        {std::string(kClientPrefix) + metric.name, metric.help, metric.kind, std::move(labels)});
  }
  return MetricSource(registry, [&counters, shown = std::move(shown),
                                 samples = std::move(samples)](std::vector<MetricSample>& all) {
    for (size_t i = 0; i < samples.size(); ++i) {
      all.push_back(samples[i]);
      all.back().value = static_cast<int64_t>((counters.*(shown[i]->count)).value());
    }
  });
}

}  // namespace tailcast::cache
