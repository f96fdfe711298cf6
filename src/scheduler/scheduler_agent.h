// The scheduler of a cell: serves its registry (src/cell), passes stream configurations on along
// the copy trees, and runs the life cycle of operations (scheduler_core.h) over its readers.
//
//   producers, writers --- NotifyFile ---------> |           | --- StartOperations --> readers of
//   all processes -------- Register, GetView --> | scheduler | --- ListOperations ---> this cell
//                                                |           |     (long poll: heartbeat, report)
//   neighbours' schedulers <--- InstallStream, ShardProgress, GetView ---> (both ways)
//
// One scheduler per cell may change the registry: a second one fences the first, whose next write
// fails; it then calls `on_fatal` and answers nothing more.
//
// Threads: everything on one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/cell/registry_core.h"
#include "tailcast/cell/registry_store.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/scheduler/scheduler_core.h"
#include "tailcast/storage/store.h"

namespace tailcast::scheduler {

struct Neighbour {
  std::string cell;
  std::string scheduler_address;  // host:port
  std::string via;                // HTTP CONNECT proxy on the way, or empty
};

struct SchedulerOptions {
  cell::RegistryOptions registry;     // of this cell
  CoreOptions core;                   // cell and incarnation are filled in
  std::vector<Neighbour> neighbours;  // the cells that streams may be copied to
  v1::ProcessInfo self;               // how the scheduler shows in the view; no name: not at all
  // The copy tree of a stream that is created without one. Null: the tree must be given.
  std::function<Result<std::vector<v1::TreeEdge>>(const v1::StreamConfig&)> plan_tree;
  // Steps of changes of trees, as they are carried out here; for tests. May be null.
  std::function<void(const StepTaken&)> on_step;
  Duration list_wait = Duration::Millis(500);    // of the long poll of readers
  Duration call_timeout = Duration::Seconds(1);  // beyond waits; a reader that is slower is lost
  Duration peer_timeout = Duration::Seconds(5);
  Duration peer_retry = Duration::Millis(500);
  // After a start: orphans are heard of first, and the view is not shown before the cell's
  // processes had time to register, or else clients would take them for gone.
  Duration decide_grace = Duration::Millis(500);
  Duration view_grace = Duration::Millis(1500);
  Duration rescan_interval = Duration::Seconds(30);
  Duration shed_interval = Duration::Seconds(5);
  int waiting_views_max = 20000;
  uint64_t seed = 1;
};

class SchedulerAgent {
 public:
  // All outlive the agent.
  SchedulerAgent(EventLoop& loop, storage::Store& store, rpc::Connector& connector,
                 MetricRegistry& metrics, SchedulerOptions options);
  ~SchedulerAgent();
  SchedulerAgent(const SchedulerAgent&) = delete;
  SchedulerAgent& operator=(const SchedulerAgent&) = delete;

  // Serves tailcast.v1.Cell and tailcast.v1.Peer on `server`. Before the server starts.
  void Attach(rpc::Server& server);
  // Opens the registry, fencing any earlier scheduler, and begins. `on_fatal` runs at most once,
  // later: the process must end (fenced, or the registry cannot be written).
  //   Aborted, DataLoss, Unavailable: as RegistryStore::Open.
  void Start(Callback<void(Status)> started, Callback<void(Status)> on_fatal);

  const SchedulerCore* core() const { return core_.get(); }  // null before the start
  const cell::RegistryCore* registry() const { return registry_.get(); }
  // Operations and counters, for `tailcast status`.
  std::string StatusJson() const;

 private:
  struct ReaderLink {
    std::string address;
    uint64_t incarnation = 0;
    std::unique_ptr<rpc::Client> client;
    uint64_t version = 0;
    int failures = 0;
    TimerId retry = 0;
    bool listed = false;
  };
  // What is known of a stream: here applied, or to a neighbour told.
  struct Told {
    uint64_t incarnation = 0, tree_version = 0;
    bool settled = false, complete = false;
    bool operator==(const Told&) const = default;
  };
  struct PeerLink {
    std::unique_ptr<rpc::Client> client;
    std::unique_ptr<cell::CellClient> view;
    std::string via;
    std::map<std::string, Told> installed;
    std::set<std::string> installing;
    std::vector<v1::RemoveStreamRequest> removals;  // not answered yet
    bool removing = false;
    TimerId retry = 0;
  };
  struct WaitingView {
    uint64_t known_version = 0;
    rpc::Responder respond;
    TimerId timer = 0;
  };
  using Handler = void (SchedulerAgent::*)(const std::string&, rpc::Responder);

  void OnGetView(const std::string& request, rpc::Responder respond);
  void OnRegister(const std::string& request, rpc::Responder respond);
  void OnNotifyFile(const std::string& request, rpc::Responder respond);
  void OnCreateStream(const std::string& request, rpc::Responder respond);
  void OnListStreams(const std::string& request, rpc::Responder respond);
  void OnDeleteStream(const std::string& request, rpc::Responder respond);
  void OnInstallStream(const std::string& request, rpc::Responder respond);
  void OnRemoveStream(const std::string& request, rpc::Responder respond);
  void OnShardProgress(const std::string& request, rpc::Responder respond);

  void OnOpened(v1::RegistrySnapshot snapshot);
  void RegisterSelf();
  void Fatal(Status status);
  // Writes what the registry core changed; then shows it and runs `then`.
  void Persist(Callback<void(Status)> then);
  void ApplyStreams();
  bool Settled(const v1::StreamConfig& stream) const;
  void CheckFinished();
  void OnStepTaken(const StepTaken& step);
  void RemoveStream(const v1::StreamConfig& stream);
  void ViewChanged();
  bool ViewIsReady() const;
  void FlushViews();
  void UpdateReaders();
  void ListReader(const std::string& name);
  void OnReaderList(const std::string& name, uint64_t incarnation,
                    const Result<std::string>& reply);
  void UpdatePeers();
  void OnPeerView(const std::string& cell);
  void PushStreams(const std::string& cell);
  void RetryPeer(const std::string& cell);
  void Kick();
  void Run();
  void Apply(const Effects& effects);
  void ListShard(const stream::ShardId& shard);
  void AskProgress(const stream::ShardId& shard, const std::string& cell);
  struct Progress {
    int64_t floor = 1;
    std::vector<PairLengths> files;
  };
  void ReadProgress(const stream::ShardId& shard, int64_t from_seq, int files_max,
                    Callback<void(Result<Progress>)> done);
  void ArmExpiry();
  void Rescan();
  void ExportCounters();

  EventLoop& loop_;
  storage::Store& store_;
  rpc::Connector& connector_;
  MetricRegistry& metrics_;
  SchedulerOptions options_;
  std::unique_ptr<cell::RegistryStore> log_;
  std::unique_ptr<cell::RegistryCore> registry_;
  std::unique_ptr<SchedulerCore> core_;
  Callback<void(Status)> started_;
  Callback<void(Status)> on_fatal_;
  bool dead_ = false;
  MonotonicTime started_at_;
  std::map<std::string, ReaderLink> readers_;
  std::map<std::string, PeerLink> peers_;
  std::set<std::string> unknown_neighbours_;  // complained about
  std::map<std::string, Told> applied_streams_;
  std::map<uint64_t, WaitingView> waiting_views_;
  uint64_t next_waiting_ = 1;
  bool flush_posted_ = false;
  bool run_posted_ = false;
  Effects pending_;
  TimerId expiry_timer_ = 0;
  TimerId decide_timer_ = 0;
  TimerId view_timer_ = 0;
  TimerId rescan_timer_ = 0;
  TimerId shed_timer_ = 0;
  TimerId self_timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tailcast::scheduler
