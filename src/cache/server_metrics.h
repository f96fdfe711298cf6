// The metrics of a server: what it and its core count and how far repair is, under the names that a
// process exports (docs/metrics.md) and under those of the rpc Stat.
//
// Threads: the server's loop. A registry shows what was so at the last Show, a heartbeat ago at
// most.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/cache/repair_core.h"
#include "tailcast/cache/server_core.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

// What a server did beside its core.
struct ServerCounters {
  uint64_t mutate_messages = 0;  // that came over a message channel
  uint64_t mutate_calls = 0, get_calls = 0, scan_calls = 0, locate_calls = 0, stat_calls = 0;
  // Calls that were refused:
  uint64_t bad_requests = 0;        // malformed
  uint64_t other_incarnations = 0;  // they mean an earlier or later life
  uint64_t not_started = 0;         // before Start
  uint64_t not_in_ring = 0;         // the ring that the server knows does not name it
  uint64_t replaced = 0;            // it names another process of this server's name
  uint64_t stalled = 0;             // it did not run for a while, and was not confirmed since
  uint64_t no_lease = 0;            // nobody has confirmed it in time
  uint64_t old_rings = 0;           // the caller's ring is older
  uint64_t old_epochs = 0;          // the writer's epoch is
  uint64_t other_rings = 0;         // a copy is asked for by a ring that it is not at
  uint64_t stalls = 0;  // times that it did not run for longer than ServerOptions::stall_max
  // Times that it served and nobody confirmed it in time (Server::Confirm): neither scheduler nor
  // registry were heard of; the registry's record was, and says something else than it knows.
  uint64_t leases_unreachable = 0, leases_record_differs = 0;
  uint64_t notifications = 0;

  uint64_t leases_ended() const { return leases_unreachable + leases_record_differs; }
  uint64_t not_serving() const { return not_in_ring + replaced + stalled + no_lease; }
  uint64_t repaired_values = 0, repaired_bytes = 0, repair_failures = 0;
  uint64_t repair_refused = 0;     // values that it had no room for
  uint64_t repair_mismatches = 0;  // contradicting bytes that repair found: DataLoss
};

// All that a server shows.
struct ServerState {
  ServerStats stats;
  ServerCounters counters;
  uint64_t memory_bytes = 0, memory_used_bytes = 0;  // of both regions; in slabs that are in use
  uint64_t room_bytes = 0;                           // RoomBytes of the data region
  Duration ttl;
  bool serving = false;  // a ring that it knows names it, no stall, a lease
  bool whole = false;    // as that ring says of this life of it
  RepairCore::State repair = RepairCore::State::kIdle;
  ConfigurationId configuration_id{}, filled_configuration{};
  CacheEpoch epoch{}, copied_epoch{};
};

struct ServerMetric {
  const char* key;  // in a CacheStatReply
  uint64_t (*value)(const ServerState& state);
  MetricKind kind;
  const char* name;  // without kServerPrefix
  const char* help;
  const char* label = nullptr;
  const char* label_value = nullptr;
};
inline constexpr const char* kServerPrefix = "tailcast_cache_server_";
std::span<const ServerMetric> ServerMetricTable();

class ServerMetrics {
 public:
  // Labels cache=`cache` ("data", "metadata") and replica=`replica`. The registry outlives it.
  ServerMetrics(MetricRegistry& registry, const std::string& cache, const std::string& replica);
  void Show(const ServerState& state);

 private:
  std::vector<std::variant<Counter*, Gauge*>> shown_;  // in the order of the table
};

}  // namespace tailcast::cache
