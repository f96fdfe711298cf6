#include "tailcast/cache/server_metrics.h"

#include "tailcast/base/strong.h"

namespace tailcast::cache {
namespace {

using S = ServerState;
constexpr MetricKind kCounter = MetricKind::kCounter;
constexpr MetricKind kGauge = MetricKind::kGauge;

constexpr const char* kCalls = "Calls, by method.";
constexpr const char* kRefusedCalls = "Calls that were refused, by cause.";
constexpr const char* kMutations = "Values that were written, by what came of it.";
constexpr const char* kRefused = "Values that were not taken, by cause.";
constexpr const char* kForgotten =
    "Values that went: at the end of their time, to make room, or erased.";
constexpr const char* kStored = "Changes of values, by how they were stored.";
constexpr const char* kEndedLeases =
    "Times that it closed its memory, as the scheduler was not heard of for a lease, by cause.";
constexpr const char* kRepair = "What the replica does to become whole: 1 for its state.";

constexpr ServerMetric kMetrics[] = {
    {"mutate_messages", [](const S& s) { return s.counters.mutate_messages; }, kCounter,
     "messages_total", "Bulks of mutations that came over message channels."},
    {"mutate_calls", [](const S& s) { return s.counters.mutate_calls; }, kCounter, "calls_total",
     kCalls, "method", "mutate"},
    {"get_calls", [](const S& s) { return s.counters.get_calls; }, kCounter, "calls_total", kCalls,
     "method", "get"},
    {"scan_calls", [](const S& s) { return s.counters.scan_calls; }, kCounter, "calls_total",
     kCalls, "method", "scan"},
    {"locate_calls", [](const S& s) { return s.counters.locate_calls; }, kCounter, "calls_total",
     kCalls, "method", "locate"},
    {"stat_calls", [](const S& s) { return s.counters.stat_calls; }, kCounter, "calls_total",
     kCalls, "method", "stat"},
    {"bad_requests", [](const S& s) { return s.counters.bad_requests; }, kCounter,
     "refused_calls_total", kRefusedCalls, "cause", "malformed"},
    {"other_incarnations", [](const S& s) { return s.counters.other_incarnations; }, kCounter,
     "refused_calls_total", kRefusedCalls, "cause", "other_incarnation"},
    {"not_started", [](const S& s) { return s.counters.not_started; }, kCounter,
     "refused_calls_total", kRefusedCalls, "cause", "not_started"},
    {"not_in_ring", [](const S& s) { return s.counters.not_in_ring; }, kCounter,
     "refused_calls_total", kRefusedCalls, "cause", "not_in_ring"},
    {"replaced", [](const S& s) { return s.counters.replaced; }, kCounter, "refused_calls_total",
     kRefusedCalls, "cause", "replaced"},
    {"stalled", [](const S& s) { return s.counters.stalled; }, kCounter, "refused_calls_total",
     kRefusedCalls, "cause", "stalled"},
    {"no_lease", [](const S& s) { return s.counters.no_lease; }, kCounter, "refused_calls_total",
     kRefusedCalls, "cause", "no_lease"},
    {"old_rings", [](const S& s) { return s.counters.old_rings; }, kCounter, "refused_calls_total",
     kRefusedCalls, "cause", "old_ring"},
    {"old_epochs", [](const S& s) { return s.counters.old_epochs; }, kCounter,
     "refused_calls_total", kRefusedCalls, "cause", "old_epoch"},
    {"other_rings", [](const S& s) { return s.counters.other_rings; }, kCounter,
     "refused_calls_total", kRefusedCalls, "cause", "other_ring"},
    {"applied", [](const S& s) { return s.stats.applied; }, kCounter, "mutations_total", kMutations,
     "result", "applied"},
    {"no_change", [](const S& s) { return s.stats.no_change; }, kCounter, "mutations_total",
     kMutations, "result", "no_change"},
    {"mismatches", [](const S& s) { return s.stats.mismatches; }, kCounter, "mutations_total",
     kMutations, "result", "mismatch"},
    {"refused", [](const S& s) { return s.stats.refused; }, kCounter, "mutations_total", kMutations,
     "result", "refused"},
    {"refused_no_slot", [](const S& s) { return s.stats.refused_no_slot; }, kCounter,
     "refused_values_total", kRefused, "cause", "no_slot"},
    {"refused_too_large", [](const S& s) { return s.stats.refused_too_large; }, kCounter,
     "refused_values_total", kRefused, "cause", "too_large"},
    {"refused_overflow", [](const S& s) { return s.stats.refused_overflow; }, kCounter,
     "refused_values_total", kRefused, "cause", "overflow_full"},
    {"refused_malformed", [](const S& s) { return s.stats.refused_malformed; }, kCounter,
     "refused_values_total", kRefused, "cause", "malformed"},
    {"copies_postponed", [](const S& s) { return s.stats.copies_postponed; }, kCounter,
     "postponed_copies_total", "Copies that were not taken because writes need the room."},
    {"copies_too_old", [](const S& s) { return s.stats.copies_too_old; }, kCounter,
     "outdated_copies_total", "Copied chunks that would have been the next to go."},
    {"inserted", [](const S& s) { return s.stats.inserted; }, kCounter, "stored_values_total",
     kStored, "how", "inserted"},
    {"extended_in_place", [](const S& s) { return s.stats.extended_in_place; }, kCounter,
     "stored_values_total", kStored, "how", "extended_in_place"},
    {"moved", [](const S& s) { return s.stats.moved; }, kCounter, "stored_values_total", kStored,
     "how", "moved"},
    {"expired", [](const S& s) { return s.stats.expired; }, kCounter, "forgotten_values_total",
     kForgotten, "cause", "expired"},
    {"collected", [](const S& s) { return s.stats.collected; }, kCounter, "forgotten_values_total",
     kForgotten, "cause", "collected"},
    {"erased", [](const S& s) { return s.stats.erased; }, kCounter, "forgotten_values_total",
     kForgotten, "cause", "erased"},
    {"overflows", [](const S& s) { return s.stats.overflows; }, kCounter, "overflows_total",
     "Values that found their bucket full, and are read by calls."},
    {"stalls", [](const S& s) { return s.counters.stalls; }, kCounter, "stalls_total",
     "Times that it did not run for so long that it may have been given up."},
    {"leases_unreachable", [](const S& s) { return s.counters.leases_unreachable; }, kCounter,
     "ended_leases_total", kEndedLeases, "cause", "unreachable"},
    {"leases_record_differs", [](const S& s) { return s.counters.leases_record_differs; }, kCounter,
     "ended_leases_total", kEndedLeases, "cause", "record_differs"},
    {"notifications", [](const S& s) { return s.counters.notifications; }, kCounter,
     "notifications_total", "Doorbells that were rung."},
    {"repaired_values", [](const S& s) { return s.counters.repaired_values; }, kCounter,
     "repaired_values_total", "Values that were copied from other replicas."},
    {"repaired_bytes", [](const S& s) { return s.counters.repaired_bytes; }, kCounter,
     "repaired_bytes_total", "Bytes of values that were copied from other replicas."},
    {"repair_failures", [](const S& s) { return s.counters.repair_failures; }, kCounter,
     "repair_failures_total", "Pages that another replica did not give, or not whole."},
    {"repair_refused", [](const S& s) { return s.counters.repair_refused; }, kCounter,
     "repair_refused_values_total", "Values of other replicas that there was no room for."},
    {"repair_mismatches", [](const S& s) { return s.counters.repair_mismatches; }, kCounter,
     "repair_mismatches_total", "Values of other replicas that contradict ours: DataLoss."},
    {"live", [](const S& s) { return s.stats.live; }, kGauge, "values", "Values that are there."},
    {"live_bytes", [](const S& s) { return s.stats.live_bytes; }, kGauge, "value_bytes",
     "Bytes of the values that are there."},
    {"overflowed", [](const S& s) { return s.stats.overflowed; }, kGauge, "overflowed_values",
     "Values in overflowed buckets, which are read by calls."},
    {"resting", [](const S& s) { return s.stats.resting; }, kGauge, "resting_slots",
     "Slots that are not used again before no read can be under way."},
    {"slabs", [](const S& s) { return s.stats.slabs; }, kGauge, "slabs", "Slabs of the memory."},
    {"slabs_used", [](const S& s) { return s.stats.slabs_used; }, kGauge, "used_slabs",
     "Slabs that belong to a size class."},
    {"memory_bytes", [](const S& s) { return s.memory_bytes; }, kGauge, "memory_bytes",
     "Memory for the index and the values."},
    {"memory_used_bytes", [](const S& s) { return s.memory_used_bytes; }, kGauge,
     "used_memory_bytes", "Memory of the index and of the used slabs."},
    {"room_bytes", [](const S& s) { return s.room_bytes; }, kGauge, "room_bytes",
     "Bytes of values that it holds before the oldest go to make room."},
    {"ttl_seconds", [](const S& s) { return static_cast<uint64_t>(s.ttl.seconds()); }, kGauge,
     "ttl_seconds", "How long a value may stay after its last change."},
    {"serving", [](const S& s) { return uint64_t{s.serving}; }, kGauge, "serving",
     "1: a ring that it knows names it, and it has not stalled."},
    {"whole", [](const S& s) { return uint64_t{s.whole}; }, kGauge, "whole",
     "1: the registry has admitted it, its answers and votes count."},
    {"idle", [](const S& s) { return uint64_t{s.repair == RepairCore::State::kIdle}; }, kGauge,
     "repair_state", kRepair, "state", "idle"},
    {"rests", [](const S& s) { return uint64_t{s.repair == RepairCore::State::kResting}; }, kGauge,
     "repair_state", kRepair, "state", "resting"},
    {"copying", [](const S& s) { return uint64_t{s.repair == RepairCore::State::kCopying}; },
     kGauge, "repair_state", kRepair, "state", "copying"},
    {"copied", [](const S& s) { return uint64_t{s.repair == RepairCore::State::kCopied}; }, kGauge,
     "repair_state", kRepair, "state", "copied"},
    {"configuration_id", [](const S& s) { return Raw(s.configuration_id); }, kGauge,
     "configuration_id", "Of the ring that the replica knows."},
    {"filled_configuration_id", [](const S& s) { return Raw(s.filled_configuration); }, kGauge,
     "filled_configuration_id",
     "The configuration whose coming ring the replica has copied for; 0: none."},
    {"epoch", [](const S& s) { return Raw(s.epoch); }, kGauge, "epoch",
     "Of the ring that the replica knows."},
    {"copied_epoch", [](const S& s) { return Raw(s.copied_epoch); }, kGauge, "copied_epoch",
     "The epoch for which the replica has rested and copied; 0: none."},
};

}  // namespace

std::span<const ServerMetric> ServerMetricTable() { return kMetrics; }

ServerMetrics::ServerMetrics(MetricRegistry& registry, const std::string& cache,
                             const std::string& replica) {
  for (const ServerMetric& metric : kMetrics) {
    MetricLabels labels{{"cache", cache}, {"replica", replica}};
    if (metric.label != nullptr) labels.emplace(metric.label, metric.label_value);
    const std::string name = std::string(kServerPrefix) + metric.name;
    if (metric.kind == kCounter) {
      shown_.emplace_back(&registry.GetCounter(name, metric.help, labels));
    } else {
      shown_.emplace_back(&registry.GetGauge(name, metric.help, labels));
    }
  }
}

void ServerMetrics::Show(const ServerState& state) {
  for (size_t i = 0; i < shown_.size(); ++i) {
    const auto value = static_cast<int64_t>(kMetrics[i].value(state));
    if (Counter* const* counter = std::get_if<Counter*>(&shown_[i])) {
      (*counter)->Add(value - (*counter)->value());
    } else {
      std::get<Gauge*>(shown_[i])->Set(value);
    }
  }
}

}  // namespace tailcast::cache
