// The memcached servers of a client: which of them hold a key (cache/ring.h), a thread for each,
// which are left alone after failures (cache::ReplicaHealth), and the bound on what is under way.
// The log says when one ceases to answer, and when it answers again.
//
// Threads: the loop's. Answers come on later turns, also of requests that were not taken.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/contradictions.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/ring.h"
#include "tailcast/memcached/server_thread.h"
#include "tailcast/memcached/types.h"

namespace tailcast::memcached {

// What all parts of a client share.
struct ClientContext {
  EventLoop& loop;
  const ClientOptions options;
  cache::ClientCounters counters;
  ClientStats stats;
  cache::ContradictionLog contradictions;
};

class ServerSet {
 public:
  // The context outlives it.
  explicit ServerSet(ClientContext& context);
  // Waits for the operations under way, of all servers at once.
  ~ServerSet();

  cache::Owners OwnersOf(const cache::Key& key) const { return ring_.OwnersOf(key); }
  // The same, this client's first choice first: uniform over keys and clients.
  cache::Owners PreferredOwners(const cache::Key& key) const;
  size_t size() const { return servers_.size(); }
  const std::string& NameOf(uint16_t server) const { return servers_[server].name; }
  bool Usable(uint16_t server) const { return servers_[server].health.Usable(context_.loop.Now()); }
  uint32_t usable() const;

  // As ServerThread's. `bytes`: what the request and its answer take at most.
  void Read(uint16_t server, std::vector<cache::Key> keys, uint64_t bytes, MonotonicTime deadline,
            Callback<void(ReadAnswer)> done);
  void Write(uint16_t server, std::shared_ptr<const std::vector<cache::Mutation>> mutations,
             std::vector<uint32_t> which, uint64_t bytes, MonotonicTime deadline,
             Callback<void(WriteAnswer)> done);

 private:
  struct Server {
    std::unique_ptr<ServerThread> thread;
    cache::ReplicaHealth health;
    uint64_t inflight_bytes = 0;
    std::string name;
    bool answers = true;  // as the log says
    MonotonicTime told;   // when it last did not answer
  };
  // False: the request is not to be made.
  bool Take(Server& server, uint64_t bytes);
  OwnedCounter& CounterOf(RequestOutcome outcome);
  void Ended(Server& server, uint64_t bytes, MonotonicTime asked, RequestOutcome outcome,
             uint64_t reconnections);

  ClientContext& context_;
  cache::HashRing ring_;
  uint64_t preference_ = 0;
  std::vector<Server> servers_;
  Scope scope_;
};

}  // namespace tailcast::memcached
