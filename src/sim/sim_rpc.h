// Calls and streams between simulated processes: the rpc port over virtual time, with delay,
// bandwidth, back-pressure, loss of connections and partitions (one-way too), all drawn from the
// seed. What TCP and gRPC do on a link that is cut is in connection.h.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
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
  Duration jitter;  // each message is later by up to this; messages of one stream keep their order
  int64_t bytes_per_second = 0;  // 0: no limit
};

struct NetworkOptions {
  // Of a stream: so much may be on its way to a process that does not take it. gRPC's is 16 MiB,
  // sockets are smaller.
  int64_t stream_window_bytes = 4 << 20;
  // A connection is given up when its link was cut for so long (gRPC's pings, src/rpc).
  Duration broken_after = Duration::Seconds(15);
};

class Connection;
class SimServer;

// The network of one world. Hosts are names ("us-central"); a process lives on one.
class Network {
 public:
  // One end of a connection.
  struct End {
    uint64_t loop_id = 0;  // 0: nobody
    std::string host, process;
  };

  Network(VirtualTime& time, Rng rng, NetworkOptions options = {});
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // The link from one host to another, for reading and changing; made when first asked for.
  Link& LinkBetween(const std::string& from, const std::string& to);
  // Nothing passes from one to the other, which are hosts or processes (names of loops), or all
  // does again. Connections keep what is sent meanwhile, and break if that lasts.
  void Cut(const std::string& from, const std::string& to, bool cut);
  // Both directions.
  void Partition(const std::string& a, const std::string& b, bool cut);
  void MendAll();
  // What a process sends to a host is later by so much: a machine that is slow to send.
  void SetSlow(const std::string& process, const std::string& host, Duration by) {
    slow_[{process, host}] = by;
  }
  Duration SlowBy(const End& from, const End& to) const {
    const auto slow = slow_.find({from.process, to.host});
    return slow == slow_.end() ? Duration() : slow->second;
  }
  // Breaks the connections between two of them.
  void Reset(const std::string& a, const std::string& b);

  // Ports for a process. They must not outlive the network or the loop.
  std::unique_ptr<rpc::Connector> MakeConnector(SimLoop& loop, std::string host);
  std::unique_ptr<rpc::Server> MakeServer(SimLoop& loop, const std::string& host);

  // Breaks all connections of a process and forgets its servers, as its death does. Call it before
  // the loop is killed or destroyed.
  void Disconnect(SimLoop& loop);

  // What it carries, for oracles.
  struct Load {
    size_t connections = 0;       // that are there
    size_t kept_messages = 0;     // that a cut has stopped
    size_t queued_bytes_max = 0;  // on one stream, ever (rpc::Stream::queued_bytes)
  };
  Load load();

  // The rest is for connections, calls and streams.

  struct LinkState {
    Link link;
    MonotonicTime busy_until;
  };
  // The connection of a client to an address, which is made if there is none.
  std::shared_ptr<Connection> Connect(const End& client, const std::string& address);
  void Forget(const Connection& connection);
  End Join(SimLoop& loop, const std::string& host);
  // Null: it has died.
  SimLoop* Find(uint64_t loop_id) const;
  LinkState& State(const std::string& from, const std::string& to) { return links_[{from, to}]; }
  bool IsCut(const End& from, const End& to) const;
  void AddServer(const std::string& address, SimServer* server) { servers_[address] = server; }
  void RemoveServer(SimServer* server);
  SimServer* FindServer(const std::string& address) const;
  End EndOfServer(const std::string& address) const;
  int NextPort() { return next_port_++; }
  // What is under way ends with the network.
  const Scope& scope() const { return scope_; }
  void NoteQueued(size_t bytes) { queued_bytes_max_ = std::max(queued_bytes_max_, bytes); }
  const NetworkOptions& options() const { return options_; }
  VirtualTime& time() { return time_; }
  Rng& rng() { return rng_; }
  // Belongs to no process.
  SimLoop& loop() { return *loop_; }

 private:
  // Those that somebody still holds, in order of creation.
  std::vector<std::shared_ptr<Connection>> AllConnections();

  VirtualTime& time_;
  Rng rng_;
  const NetworkOptions options_;
  std::unique_ptr<SimLoop> loop_;
  std::map<std::pair<std::string, std::string>, LinkState> links_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::map<std::pair<std::string, std::string>, Duration> slow_;  // process, host
  std::map<std::string, SimServer*> servers_;
  std::map<uint64_t, SimLoop*> loops_;
  std::map<std::pair<uint64_t, std::string>, std::shared_ptr<Connection>> by_client_;
  std::vector<std::weak_ptr<Connection>> connections_;
  int next_port_ = 1;
  size_t queued_bytes_max_ = 0;
  Scope scope_;
};

}  // namespace tailcast::sim
