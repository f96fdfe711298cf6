// A cache server: ServerCore's memory opened to one-sided readers through a fabric::Exporter, its
// mutations offered by rpc (proto/cache.proto), and repair: a server that starts empty pulls from
// its cohort what it should hold, with the remaining times to live, at a limited rate.
//
// One process may run two, the data cache and the metadata cache, on one loop and one rpc::Server,
// with an exporter each.
//
// Threads: one loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/ring.h"
#include "tailcast/cache/server_core.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/rpc/rpc.h"

namespace tailcast::cache {

inline constexpr const char* kDataService = "tailcast.v1.DataCache";
inline constexpr const char* kMetadataService = "tailcast.v1.MetadataCache";

struct ServerOptions {
  std::string name;                    // as in RingConfig
  std::string service = kDataService;  // whose methods it serves
  uint64_t memory_bytes = 256u << 20;
  uint32_t value_bytes = 4096;                                // typical; plans the index
  layout::Generation generation = layout::Generation::kNone;  // kNone: drawn
  ServerCoreOptions core;
  // Repair reads at most so much from its peers together; a page at a time from each.
  uint64_t repair_bytes_per_second = 200u << 20;
  uint32_t repair_page_bytes = 512u << 10;
  // Of a page; a peer that fails thrice is left out.
  Duration repair_timeout = Duration::Seconds(2);
};

// What a server did beside its core.
struct ServerCounters {
  uint64_t mutate_calls = 0, get_calls = 0, scan_calls = 0, bad_requests = 0, notifications = 0;
  uint64_t repaired_values = 0, repaired_bytes = 0, repair_failures = 0;
  bool repairing = false;
};

class Server {
 public:
  // Everything outlives the server. Register before `rpc_server` starts: the constructor does.
  Server(EventLoop* loop, fabric::Exporter* exporter, rpc::Server* rpc_server,
         rpc::Connector* connector, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Lays out the memory and opens the doors. Returns the fabric addresses for the registry. Calls
  // before it are answered Unavailable.
  Result<std::vector<std::string>> Start();

  // Whom this server stands beside; call it whenever the registry changes. The first configuration
  // that names this server and others begins the repair, and so does each one that changes the
  // ring's names, because keys move then, and the next one after a repair that had to leave a peer
  // out.
  void UpdateRing(RingConfig config);

  // Null before Start.
  const ServerCore* core() const { return core_.get(); }
  const ServerCounters& counters() const { return counters_; }

  // Limits of requests, checked before anything is done.
  static constexpr size_t kKeysPerGetMax = 4096;
  static constexpr uint32_t kScanPageBytesMax = 4u << 20;

 private:
  struct Repair;

  Instant Now() const { return {loop_->Now(), loop_->WallNow()}; }
  Result<std::string> Mutate(const std::string& request);
  Result<std::string> Get(const std::string& request);
  Result<std::string> Scan(const std::string& request);
  Result<std::string> Stat(const std::string& request);
  void Handle(const char* method, Result<std::string> (Server::*handler)(const std::string&));
  void NotifyAll();
  void OnTick();
  void StartRepair();
  void PullPage(size_t peer);
  void OnPage(size_t peer, const Result<std::string>& bytes);

  EventLoop* const loop_;
  fabric::Exporter* const exporter_;
  rpc::Server* const rpc_server_;
  rpc::Connector* const connector_;
  const ServerOptions options_;
  std::unique_ptr<ServerCore> core_;
  ServerCounters counters_;
  RingConfig config_;
  HashRing ring_;
  Timer tick_;
  std::vector<uint64_t> doorbells_;
  std::unique_ptr<Repair> repair_;
  std::vector<std::string> repaired_names_;  // of the ring that the last repair began with; sorted
  ConfigurationId repaired_configuration_{};
  bool repair_again_ = true;
  Scope scope_;
};

}  // namespace tailcast::cache
