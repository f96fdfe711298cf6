#include "tailcast/memcached/client_metrics.h"

#include <vector>

namespace tailcast::memcached {
namespace {

using S = ClientStats;

constexpr const char* kFailed = "tailcast_memcached_client_failed_requests_total";
constexpr const char* kFailedHelp = "Requests that a server failed, by cause.";
constexpr const char* kSkipped = "tailcast_memcached_client_skipped_requests_total";
constexpr const char* kSkippedHelp = "Requests that were not made, by cause.";

constexpr ClientMetric kMetrics[] = {
    {"cas_retries", &S::cas_retries, "tailcast_memcached_client_swap_retries_total",
     "Items that others changed between the get and the swap."},
    {"cas_given_up", &S::cas_given_up, "tailcast_memcached_client_swaps_given_up_total",
     "Keys that were not written because others were always faster."},
    {"late_mutations", &S::late_mutations, "tailcast_memcached_client_late_mutations_total",
     "Keys that were not written because it had become too late in the middle of a request."},
    {"damaged_items", &S::damaged_items, "tailcast_memcached_client_damaged_items_total",
     "Items that did not validate: foreign, or damaged."},
    {"reconnections", &S::reconnections, "tailcast_memcached_client_reconnections_total",
     "Connections that broke in a request, which was made once more."},
    {"unreachable_requests", &S::unreachable_requests, kFailed, kFailedHelp, "unreachable"},
    {"broken_requests", &S::broken_requests, kFailed, kFailedHelp, "broken"},
    {"timed_out_requests", &S::timed_out_requests, kFailed, kFailedHelp, "timeout"},
    {"refused_requests", &S::refused_requests, kFailed, kFailedHelp, "refused"},
    {"late_requests", &S::late_requests, kSkipped, kSkippedHelp, "late"},
    {"skipped_requests", &S::skipped_requests, kSkipped, kSkippedHelp, "after_failure"},
    {"left_alone_requests", &S::left_alone_requests,
     "tailcast_memcached_client_left_alone_requests_total",
     "Requests that were not taken because the server has failed."},
    {"window_full_requests", &S::window_full_requests,
     "tailcast_memcached_client_window_full_requests_total",
     "Requests that were not taken because too much is on its way to the server."},
};
// A field that is added is added here.
static_assert(sizeof(ClientStats) == std::size(kMetrics) * sizeof(OwnedCounter));

}  // namespace

std::span<const ClientMetric> ClientMetrics() { return kMetrics; }

MetricSource ExportClient(MetricRegistry& registry, const std::string& cache,
                          const ClientStats& stats) {
  return MetricSource(registry, [&stats, cache](std::vector<MetricSample>& all) {
    for (const ClientMetric& metric : kMetrics) {
      MetricLabels labels = {{"cache", cache}};
      if (metric.cause != nullptr) labels.emplace("cause", metric.cause);
      all.push_back({metric.name, metric.help, MetricKind::kCounter, std::move(labels),
                     static_cast<int64_t>((stats.*(metric.count)).value())});
    }
  });
}

}  // namespace tailcast::memcached
