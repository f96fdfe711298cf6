// The clients of a cell's two caches. Here, and nowhere else, it is chosen what they are: the
// cell's own cache processes (cache::QuorumClient), or memcached servers
// (memcached::MemcachedClient) if that is what the cell's configuration names. The registry's rings
// say the same, so that whoever knows only the registry finds the same caches.
//
// Threads: one loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/quorum_client.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/memcached/memcached_client.h"
#include "tailcast/memcached/server_address.h"
#include "tailcast/rpc/rpc.h"

namespace tailcast::cell {

class CacheClients {
 public:
  struct Wiring {  // not owned; outlives the clients
    EventLoop* loop = nullptr;
    fabric::Connector* fabric = nullptr;
    rpc::Connector* rpc = nullptr;
    uint64_t seed = 0;                  // 0: drawn
    MetricRegistry* metrics = nullptr;  // null: what they count is shown to nobody
  };
  struct Options {
    std::string cell;
    // Names on the cell's rings. Memcached servers are fixed with that; of cache processes it does
    // not matter what is said here, Update says it.
    std::vector<std::string> replicas;
    // Of what these clients write to memcached. Cache processes know their own.
    Duration data_ttl = Duration::Seconds(60);
    Duration metadata_ttl = Duration::Seconds(int64_t{24} * 3600);
  };
  // InvalidArgument: the names are neither all of memcached servers nor none.
  static Result<std::unique_ptr<CacheClients>> Make(const Wiring& wiring, const Options& options);

  cache::Client& data();
  cache::Client& metadata();
  // Replicas that can be read and written now.
  uint32_t ready_data() const;
  uint32_t ready_metadata() const;
  // How they are reached; none of memcached servers.
  std::vector<cache::QuorumClient::Connection> data_connections() const;
  std::vector<cache::QuorumClient::Connection> metadata_connections() const;
  // What a client of memcached servers counts beside its counters(); null: there is none.
  const memcached::ClientStats* memcached_data() const;
  const memcached::ClientStats* memcached_metadata() const;

  // The rings of a newer view. FailedPrecondition: the cell's caches are others than these clients
  // were made for; they go on with those.
  Status Update(cache::RingConfig data, cache::RingConfig metadata);

 private:
  struct One {
    std::unique_ptr<cache::QuorumClient> own;
    std::unique_ptr<memcached::MemcachedClient> memcached;  // one of the two
    std::vector<MetricSource> shown;                        // what they count
    cache::Client& client() const;
    uint32_t ready() const;
    std::vector<cache::QuorumClient::Connection> connections() const;
    const memcached::ClientStats* stats() const;
  };
  CacheClients() = default;

  std::vector<memcached::ServerAddress> servers_;  // none: the cell's own
  One data_, metadata_;
};

// The names on a ring, as Options takes them.
std::vector<std::string> ReplicaNamesOf(const cache::RingConfig& ring);

}  // namespace tailcast::cell
