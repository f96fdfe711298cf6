// The metrics of a client of memcached servers: what ClientStats counts, beside those of
// src/cache/client_metrics.h (docs/metrics.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tailcast/base/metrics.h"
#include "tailcast/memcached/types.h"

namespace tailcast::memcached {

struct ClientMetric {
  const char* key;  // the field's name, for `tailcast status --json`
  OwnedCounter ClientStats::*count;
  const char* name;
  const char* help;
  const char* cause = nullptr;  // its label
};
// Each field of ClientStats once.
std::span<const ClientMetric> ClientMetrics();

// Shows `stats` with the label cache=`cache` ("data", "metadata"); they and the registry outlive
// the source.
MetricSource ExportClient(MetricRegistry& registry, const std::string& cache,
                          const ClientStats& stats);

}  // namespace tailcast::memcached
