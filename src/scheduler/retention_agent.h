// Carries out the retention of the cell (retention_core.h; spec Retention): as a stream's source it
// tells the destinations the floors and hears what they have; as a destination it records the
// floors that it is told; and in either case the files below go (disk_collect.h).
//
//   users --- TrimStream --> | RetentionAgent | --- Collect --> schedulers of all destinations
//   sources --- Collect ---> |                | --> the registry, then the disk
//
// Threads: everything on one loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/scheduler/disk_collect.h"
#include "tailcast/scheduler/disk_progress.h"
#include "tailcast/scheduler/peer_links.h"
#include "tailcast/scheduler/registry_service.h"
#include "tailcast/scheduler/retention_core.h"
#include "tailcast/scheduler/stamp_watch.h"
#include "tailcast/storage/store.h"

namespace tailcast::scheduler {

struct RetentionAgentOptions {
  RetentionOptions core;
  std::vector<Neighbour> neighbours;  // all other cells
  Duration call_timeout = Duration::Seconds(5);
};

class RetentionAgent {
 public:
  // All outlive it; the registry is open. `list`: the shard's folder is to be listed, now; what it
  // shows is given to OnFiles, or to nobody. After each rise of a floor, too.
  RetentionAgent(EventLoop& loop, storage::Store& store, rpc::Connector& connector,
                 MetricRegistry& metrics, RegistryService& registry, DiskProgress& disk,
                 RetentionAgentOptions options, std::function<void(const stream::ShardId&)> list);
  RetentionAgent(const RetentionAgent&) = delete;
  RetentionAgent& operator=(const RetentionAgent&) = delete;

  // Streams became known, or changed.
  void OnStreams();
  void OnStreamRemoved(const stream::StreamId& stream);
  // Message files that are there: all of the shard (`all`), or one that was opened.
  void OnFiles(const stream::ShardId& shard, const std::vector<stream::Stem>& stems, bool all);
  // The registry's record has other floors than before.
  void OnFloorsWritten();
  // Looks for files below the floors that somebody slow has made.
  void Sweep();

  // tailcast.v1.Cell, Peer
  void TrimStream(const std::string& request, rpc::Responder respond);
  void Collect(const std::string& request, rpc::Responder respond);

  const RetentionCore& core() const { return core_; }
  // Of the shards whose source this cell is.
  std::vector<StampWatch::Off> WrongStamps() const { return stamps_.All(loop_.WallNow()); }
  const DiskCollect& collect() const { return collect_; }
  void End();

 private:
  struct Link {
    explicit Link(std::unique_ptr<rpc::Client> connection) : client(std::move(connection)) {}
    const std::unique_ptr<rpc::Client> client;
    bool calling = false;
  };
  struct Collecting;

  void Tick();
  void Export();
  void DoWorkSoon();
  void DoWork();
  void CarryOut(const RetentionEffects& effects);
  bool CollectWritten(const stream::ShardId& shard);
  void Talk(const std::string& cell, Link& link);
  void OnReply(const std::string& cell, Link& link, const std::vector<CollectAsk>& asks,
               const Result<std::string>& reply);
  void Trim(const v1::StreamConfig& stream, const stream::ShardId& shard, int64_t before_byte,
            const std::vector<stream::Stem>& stems, rpc::Responder respond);
  void FindNextDone(const std::shared_ptr<Collecting>& collecting);

  EventLoop& loop_;
  MetricRegistry& metrics_;
  RegistryService& registry_;
  DiskProgress& disk_;
  const RetentionAgentOptions options_;
  const std::function<void(const stream::ShardId&)> list_;
  RetentionCore core_;
  StampWatch stamps_;
  DiskCollect collect_;
  std::map<std::string, Link> links_;           // by cell
  std::map<stream::ShardId, int64_t> raising_;  // floors that are not durable yet
  std::set<stream::ShardId> listing_;           // asked for
  bool posted_ = false;
  Timer tick_{loop_};
  Timer due_{loop_};
  Scope scope_;
};

}  // namespace tailcast::scheduler
