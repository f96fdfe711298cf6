#include "tailcast/cell/cache_clients.h"

#include <algorithm>
#include <utility>

#include "tailcast/cache/client_metrics.h"
#include "tailcast/memcached/client_metrics.h"
#include "tailcast/memcached/replica_names.h"

namespace tailcast::cell {
namespace {

std::string TextOf(const std::vector<memcached::ServerAddress>& servers) {
  return servers.empty() ? "cache processes of its own" : memcached::FormatServers(servers);
}

}  // namespace

cache::Client& CacheClients::One::client() const {
  if (memcached != nullptr) return *memcached;
  return *own;
}

uint32_t CacheClients::One::ready() const {
  return memcached != nullptr ? memcached->usable_servers() : own->ready_replicas();
}

const memcached::ClientStats* CacheClients::One::stats() const {
  return memcached != nullptr ? &memcached->stats() : nullptr;
}

Result<std::unique_ptr<CacheClients>> CacheClients::Make(const Wiring& wiring,
                                                         const Options& options) {
  auto clients = std::unique_ptr<CacheClients>(new CacheClients());
  TAILCAST_ASSIGN_OR_RETURN(clients->servers_, memcached::ServersOf(options.replicas));
  const auto show = [&](const char* instance, One& one) {
    if (wiring.metrics == nullptr) return;
    one.shown.push_back(cache::ExportClient(*wiring.metrics, instance, one.client().counters(),
                                            one.own != nullptr));
    if (one.memcached == nullptr) return;
    one.shown.push_back(memcached::ExportClient(*wiring.metrics, instance, one.memcached->stats()));
  };
  const auto make = [&](const char* instance, const char* service, Duration ttl) {
    One one;
    if (clients->servers_.empty()) {
      cache::QuorumClientOptions own;
      own.seed = wiring.seed;
      own.service = service;
      one.own = std::make_unique<cache::QuorumClient>(wiring.loop, wiring.fabric, wiring.rpc, own,
                                                      cache::RingConfig());
      show(instance, one);
      return one;
    }
    memcached::ClientOptions of_memcached;
    of_memcached.servers = clients->servers_;
    of_memcached.key_space = "tailcast cell " + options.cell + ", " + instance + " cache";
    of_memcached.time_to_live = ttl;
    of_memcached.seed = wiring.seed;
    one.memcached =
        std::make_unique<memcached::MemcachedClient>(wiring.loop, std::move(of_memcached));
    show(instance, one);
    return one;
  };
  clients->data_ = make("data", cache::kDataService, options.data_ttl);
  clients->metadata_ = make("metadata", cache::kMetadataService, options.metadata_ttl);
  return clients;
}

cache::Client& CacheClients::data() { return data_.client(); }
cache::Client& CacheClients::metadata() { return metadata_.client(); }
uint32_t CacheClients::ready_data() const { return data_.ready(); }
uint32_t CacheClients::ready_metadata() const { return metadata_.ready(); }
std::vector<cache::QuorumClient::Connection> CacheClients::One::connections() const {
  return own != nullptr ? own->Connections() : std::vector<cache::QuorumClient::Connection>();
}
std::vector<cache::QuorumClient::Connection> CacheClients::data_connections() const {
  return data_.connections();
}
std::vector<cache::QuorumClient::Connection> CacheClients::metadata_connections() const {
  return metadata_.connections();
}
const memcached::ClientStats* CacheClients::memcached_data() const { return data_.stats(); }
const memcached::ClientStats* CacheClients::memcached_metadata() const { return metadata_.stats(); }

Status CacheClients::Update(cache::RingConfig data, cache::RingConfig metadata) {
  if (data.replicas.empty() && !servers_.empty()) return OkStatus();  // not even durable yet
  TAILCAST_ASSIGN_OR_RETURN(auto servers, memcached::ServersOf(ReplicaNamesOf(data)));
  auto mine = servers_;
  std::sort(servers.begin(), servers.end());
  std::sort(mine.begin(), mine.end());
  if (servers != mine) {
    return FailedPreconditionError("the cell's caches are " + TextOf(servers) +
                                   ", this process uses " + TextOf(mine) +
                                   "; give it the same `caches` as the cell's scheduler");
  }
  if (!servers_.empty()) return OkStatus();
  data_.own->UpdateRing(std::move(data));
  metadata_.own->UpdateRing(std::move(metadata));
  return OkStatus();
}

std::vector<std::string> ReplicaNamesOf(const cache::RingConfig& ring) {
  std::vector<std::string> names;
  for (const cache::Replica& replica : ring.replicas) names.push_back(replica.name);
  return names;
}

}  // namespace tailcast::cell
