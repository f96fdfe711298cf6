// The metrics of a client: what ClientCounters counts, under the names that a process exports
// (docs/metrics.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tailcast/base/metrics.h"
#include "tailcast/cache/client.h"

namespace tailcast::cache {

struct ClientMetric {
  const char* key;  // the field's name, for `tailcast status --json`
  OwnedCounter ClientCounters::*count;
  MetricKind kind;
  const char* name;  // without kClientPrefix
  const char* help;
  // Pairs of label and value; null: none.
  const char* label = nullptr;
  const char* value = nullptr;
  const char* label2 = nullptr;
  const char* value2 = nullptr;
  bool any_client = true;  // false: only the cell's own caches have such a thing
};
inline constexpr const char* kClientPrefix = "tailcast_cache_client_";

// Each field of ClientCounters once.
std::span<const ClientMetric> ClientMetrics();

// Shows `counters` with the label cache=`cache` ("data", "metadata"); they and the registry outlive
// the source. `own_caches`: false for memcached servers, of which a client counts less.
MetricSource ExportClient(MetricRegistry& registry, const std::string& cache,
                          const ClientCounters& counters, bool own_caches);

}  // namespace tailcast::cache
