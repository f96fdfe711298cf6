// A cache server: ServerCore's memory opened to one-sided readers through a fabric::Exporter, whose
// message channels bring the mutations (mutate_message.h; who has none calls, proto/cache.proto),
// and repair: a server that starts empty, or whose ring has changed, pulls from its cohort what it
// should hold, with the remaining times to live, at a limited rate (repair_core.h decides).
//
// One process may run two, the data cache and the metadata cache, on one loop and one rpc::Server,
// with an exporter each.
//
// Threads: one loop.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/contradictions.h"
#include "tailcast/cache/mutate_message.h"
#include "tailcast/cache/repair_core.h"
#include "tailcast/cache/ring_pair.h"
#include "tailcast/cache/server_core.h"
#include "tailcast/cache/server_metrics.h"
#include "tailcast/cache/serving_core.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/rpc/rpc.h"

namespace tailcast::v1 {
class CacheScanRequest;
}  // namespace tailcast::v1

namespace tailcast::cache {

inline constexpr const char* kDataService = "tailcast.v1.DataCache";
inline constexpr const char* kMetadataService = "tailcast.v1.MetadataCache";

struct ServerOptions {
  std::string name;                    // as in RingConfig
  std::string service = kDataService;  // whose methods it serves
  uint64_t memory_bytes = 256u << 20;
  uint32_t value_bytes = 4096;  // typical; plans the index
  // Calls that mean another one are refused, and it is the generation of the memory, so that
  // readers know whose they read. kNone: all calls are taken, the generation is drawn.
  ProcessIncarnation incarnation = ProcessIncarnation::kNone;
  ServerCoreOptions core;
  RepairOptions repair;
  // Who did not run for longer than this may have been given up meanwhile: its memory is closed
  // before its heart beats again, until Confirm. Less than readers trust a heart that stands still.
  Duration stall_max = Duration::Infinite();
  Duration repair_timeout = Duration::Seconds(2);
  MetricRegistry* metrics = nullptr;  // outlives the server; null: it is shown to nobody
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

  // Whom this server stands beside, and which of them are whole; call it whenever the registry
  // changes. A ring without this server ends its service: nothing is readable or accepted any more,
  // until one names it again.
  void UpdateRing(RingConfig config);

  // The registry's word on this server. From the first one on the memory is open as long as a lease
  // lasts. A server that stalled, or whose lease has ended, goes on once it knows the ring and the
  // epoch that the registry has (serving_core.h).
  void Confirm(const Confirmation& confirmation);

  // It has copied what it should hold.
  bool repaired() const;
  // What it does to become whole, for people: "rests before it copies", "copies from cache-1,
  // cache-3", "has copied, and waits to be admitted".
  std::string RepairText() const;
  // For the registry: the epoch for which this server has rested and copied; 0: for none.
  CacheEpoch copied_epoch() const;
  // While the ring changes, the configuration for which it holds what it owns in the new ring; 0:
  // for none.
  ConfigurationId filled_configuration() const;
  // Readers of an older ring than this configuration's find out with each value.
  ConfigurationId sealed_configuration() const {
    return core_ == nullptr ? ConfigurationId{} : core_->sealed_configuration();
  }

  // Null before Start.
  const ServerCore* core() const { return core_.get(); }
  const ServerCounters& counters() const { return counters_; }
  ServerState state() const;

  // Limits of requests, checked before anything is done.
  static constexpr size_t kKeysPerGetMax = 4096;
  static constexpr size_t kMutateBytesMax = 8u << 20;
  // Of the values in an answer, and a value more. Copying that much keeps the loop, on which the
  // mutations are applied, for some milliseconds; one rpc message could carry 64 MiB.
  static constexpr uint32_t kGetBytesMax = 4u << 20;
  static constexpr uint32_t kScanPageBytesMax = 4u << 20;

 private:
  Instant Now() const { return {loop_->Now(), loop_->WallNow()}; }
  // Mutations come as messages of the fabric, or as calls of who has no channel.
  void OnMessage(std::string_view message, std::string& answer);
  Result<std::string> Mutate(const std::string& request);
  // kDone: the writer may write.
  MutateStatus JudgeWriter(const WriteContext& writer);
  Result<std::string> Get(const std::string& request);
  Result<std::string> Scan(const std::string& request);
  Result<std::string> Locate(const std::string& request);
  Result<std::string> Stat(const std::string& request);
  void Handle(const char* method, Result<std::string> (Server::*handler)(const std::string&));
  void NotifyAll();
  void OnTick();
  uint16_t IndexOf(const Replica& replica) const {
    return static_cast<uint16_t>(&replica - config_.replicas.data());
  }
  // `owner`: null, if the ring does not name it.
  bool IsAsked(const Key& key, const Replica* owner, const v1::CacheScanRequest& asked);
  // NotFound: its memory is closed.
  Status CheckServes();
  void CountNotServing();
  Status NotServing() const;
  // FailedPrecondition: the call means another life of this server.
  Status CheckIncarnation(uint64_t incarnation);
  Status OtherIncarnation() const;
  // Carries out what serving_ says by now. `goes_on`: it was doubtful.
  void FollowServing(bool goes_on);
  // Opens the memory, or closes it.
  void OpenOrClose();
  void SayMismatch(const Key& key, size_t length, const std::string& whose);
  void OnLeaseEnd();
  // Carries out what repair_ wants by now.
  void DoRepair();
  void PullPage(const RepairCore::Ask& ask);
  void OnPage(uint64_t ask, const std::string& member, const Result<std::string>& bytes);

  EventLoop* const loop_;
  fabric::Exporter* const exporter_;
  rpc::Server* const rpc_server_;
  rpc::Connector* const connector_;
  const ServerOptions options_;
  std::unique_ptr<ServerCore> core_;
  ServerCounters counters_;
  ContradictionLog contradictions_;
  RingConfig config_;
  RingPair rings_;
  Timer tick_;
  std::vector<uint64_t> doorbells_;
  std::string results_;  // of the message that is handled
  ServingCore serving_;
  bool open_ = false;  // the regions are, as serving_ says
  Timer lease_;
  std::unique_ptr<RepairCore> repair_;
  RepairCore::State repair_state_ = RepairCore::State::kIdle;    // that was logged last
  std::map<std::string, std::unique_ptr<rpc::Client>> members_;  // by address
  MonotonicTime next_complaint_;  // that it is not whole yet; 0: it has not begun to copy
  MonotonicTime next_room_complaint_;
  Timer next_pages_;
  std::optional<ServerMetrics> metrics_;
  Scope scope_;
};

}  // namespace tailcast::cache
