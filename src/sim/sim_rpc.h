// Calls and streams between simulated processes: the rpc port over virtual time, with delay,
// bandwidth, loss of connections, partitions (one-way too) and slow links, all drawn from the seed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/sim/sim_loop.h"

namespace tailcast::sim {

// How messages fare from one host to another.
struct Link {
  Duration delay = Duration::Micros(100);  // one way
  Duration jitter;                         // each message is later by up to this; order is kept
  int64_t bytes_per_second = 0;            // 0: no limit
  bool cut = false;                        // nothing passes; calls run into their deadlines
};

class SimServer;

// The network of one world. Hosts are names ("us-central"); a process lives on one.
class Network {
 public:
  Network(VirtualTime& time, Rng rng);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // The link from one host to another, for reading and changing; made when first asked for.
  Link& LinkBetween(const std::string& from, const std::string& to);
  // Cuts or heals both directions between two hosts.
  void Partition(const std::string& a, const std::string& b, bool cut);

  // Ports for a process. They must not outlive the network or the loop.
  std::unique_ptr<rpc::Connector> MakeConnector(SimLoop& loop, std::string host);
  std::unique_ptr<rpc::Server> MakeServer(SimLoop& loop, const std::string& host);

  // Breaks all connections of a process and forgets its servers, as its death does. Call it before
  // the loop is killed or destroyed.
  void Disconnect(SimLoop& loop);

  // The rest is for the ends of connections in sim_rpc.cc.

  // One end of a call or stream.
  struct End {
    uint64_t loop_id = 0;
    std::string host;
  };
  struct Connection {
    virtual ~Connection() = default;
    // The process of `dead_loop` is gone: tell the other end.
    virtual void OnDeath(uint64_t dead_loop) = 0;
  };
  // Runs `task` on `to` when a message of `bytes` that `from` sends now has arrived, in the order
  // of sending; never if the link is cut or `to` has died by then. Returns when the last byte has
  // left.
  MonotonicTime Deliver(const End& from, const End& to, size_t bytes, Task task);
  End Join(SimLoop& loop, const std::string& host);
  SimLoop* Find(uint64_t loop_id) const;
  void Track(const End& end, std::weak_ptr<Connection> connection);
  void AddServer(const std::string& address, SimServer* server) { servers_[address] = server; }
  void RemoveServer(SimServer* server);
  SimServer* FindServer(const std::string& address) const;
  int NextPort() { return next_port_++; }
  // What is under way ends with the network.
  const Scope& scope() const { return scope_; }

 private:
  struct LinkState {
    Link link;
    MonotonicTime busy_until;
    MonotonicTime last_arrival;
  };
  LinkState& State(const std::string& from, const std::string& to);

  VirtualTime& time_;
  Rng rng_;
  std::map<std::pair<std::string, std::string>, LinkState> links_;
  std::map<std::string, SimServer*> servers_;
  std::map<uint64_t, SimLoop*> loops_;
  std::map<uint64_t, std::vector<std::weak_ptr<Connection>>> connections_;
  int next_port_ = 1;
  Scope scope_;
};

}  // namespace tailcast::sim
