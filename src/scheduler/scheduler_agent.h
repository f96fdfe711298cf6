// The scheduler of a cell: serves its registry (src/cell), passes stream configurations on along
// the copy trees, and runs the life cycle of operations (scheduler_core.h) over its readers. It
// owns the parts and carries out what the core decides:
//
//   processes, clients --- Cell ---> RegistryService --+--> CatalogueLinks -------> schedulers of
//   other schedulers ----- Peer ---> (and the catalog) |                            all other cells
//                                                      +--> RetentionAgent -------> (and the disk)
//                                                      +--> LeaverLinks ----------> the same
//                                                      +--> DiskReclaim ----------> the disk
//                                                      v            +--> ReaderLinks ---> readers
//   producers, writers -- NotifyFile ------------> CoreDriver ------+--> PeerLinks ---> schedulers
//                                                  (the core)       |                   of peers
//                                             FileCheck ------------+--> DiskProgress -> the disk
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
#include "tailcast/base/scope.h"
#include "tailcast/cell/registry_core.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/scheduler/catalogue_links.h"
#include "tailcast/scheduler/core_driver.h"
#include "tailcast/scheduler/disk_progress.h"
#include "tailcast/scheduler/disk_reclaim.h"
#include "tailcast/scheduler/file_check.h"
#include "tailcast/scheduler/leaver_links.h"
#include "tailcast/scheduler/peer_links.h"
#include "tailcast/scheduler/reader_links.h"
#include "tailcast/scheduler/registry_service.h"
#include "tailcast/scheduler/retention_agent.h"
#include "tailcast/scheduler/room_watch.h"
#include "tailcast/scheduler/scheduler_core.h"
#include "tailcast/storage/store.h"

namespace tailcast::scheduler {

struct SchedulerOptions {
  cell::RegistryOptions registry;     // of this cell
  CoreOptions core;                   // cell and incarnation are filled in
  std::vector<Neighbour> neighbours;  // all other cells of the deployment
  v1::ProcessInfo self;               // how the scheduler shows in the view; no name: not at all
  // Plans the copy tree of a stream that is created without one, off the loop: it may take seconds.
  // Null: the tree must be given.
  PlanTree plan_tree;
  // Steps of changes of trees, as they are carried out here; for tests. May be null.
  std::function<void(const StepTaken&)> on_step;
  // A stream was deleted. May be null.
  std::function<void(const std::string& stream)> on_removed;
  ReaderLinksOptions readers;  // the incarnation is filled in
  Duration peer_timeout = Duration::Seconds(5);
  Duration peer_retry = Duration::Millis(500);
  // After a start: readers are heard of first. The view is not shown, and what a scheduler before
  // us may have started is not started again, before the cell's processes had time to register: or
  // else clients would take them for gone, and readers would lose what they run.
  Duration decide_grace = Duration::Millis(500);
  Duration view_grace = Duration::Millis(1500);
  Duration rescan_interval = Duration::Seconds(30);
  RetentionOptions retention;  // cell is filled in
  LeaverOptions leavers;
  Duration shed_interval = Duration::Seconds(5);
  int waiting_views_max = 20000;
  uint64_t seed = 1;
};

class SchedulerAgent : private RegistryService::Owner {
 public:
  // All outlive the agent.
  SchedulerAgent(EventLoop& loop, storage::Store& store, rpc::Connector& connector,
                 MetricRegistry& metrics, SchedulerOptions options);
  SchedulerAgent(const SchedulerAgent&) = delete;
  SchedulerAgent& operator=(const SchedulerAgent&) = delete;

  // Serves tailcast.v1.Cell and tailcast.v1.Peer on `server`. Before the server starts.
  void Attach(rpc::Server& server);
  // Opens the registry, fencing any earlier scheduler, and begins. `on_fatal` runs at most once,
  // later: the process must end (fenced, or the registry cannot be written).
  //   Aborted, DataLoss, Unavailable: as RegistryStore::Open.
  void Start(Callback<void(Status)> started, Callback<void(Status)> on_fatal);

  // All are null before the start.
  const SchedulerCore* core() const { return driver_ == nullptr ? nullptr : &driver_->core(); }
  const RetentionCore* retention() const {
    return retention_ == nullptr ? nullptr : &retention_->core();
  }
  const LeaverCore* leavers() const { return leavers_ == nullptr ? nullptr : &leavers_->core(); }
  std::vector<StampWatch::Off> WrongStamps() const {
    return retention_ == nullptr ? std::vector<StampWatch::Off>() : retention_->WrongStamps();
  }
  const cell::RegistryCore* registry() const {
    return registry_.is_open() ? &registry_.core() : nullptr;
  }
  // Operations and counters, for `tailcast status`.
  std::string StatusJson() const;

 private:
  void NotifyFile(const std::string& request, rpc::Responder respond);
  void AnswerProgress(const std::string& request, rpc::Responder respond);

  void OnOpened();
  void OnFirstWritten(const Status& status);
  // RegistryService::Owner
  void OnProcessesChanged() override { readers_->Update(registry_.view()); }
  void OnCatalogueChanged(const cell::CatalogueChanges& changed) override;
  void OnStreamRemoved(const v1::StreamConfig& stream) override;
  void Reserve(const std::string& stream, Callback<void(Status)> done) override {
    catalogue_links_->Reserve(stream, std::move(done));
  }
  void OnRegistryLost(const Status& why) override;

  // Records of which of these streams the change of the tree is carried out in this cell and below
  // it.
  void CheckFinished(const std::set<std::string>& streams);
  // What is left to do of streams that were deleted, or whose copy tree this cell has left.
  void TendDeleted(const std::set<stream::StreamId>& streams);
  void TendDropped();
  void OnReclaimed(const stream::StreamId& stream);
  // Files of the stream are here.
  void OnFilesOf(const stream::StreamId& stream);

  void CarryOut(const Effects& effects);
  void OnStepTaken(const StepTaken& step);
  void ListShard(const stream::ShardId& shard);
  void AskProgress(const stream::ShardId& shard, const std::string& cell);
  void OnPeerProgress(const stream::ShardId& shard, stream::TreeVersion tree_version,
                      const std::string& cell, int64_t from_seq, Result<ShardProgress> there);
  void Rescan();

  EventLoop& loop_;
  storage::Store& store_;
  rpc::Connector& connector_;
  MetricRegistry& metrics_;
  const SchedulerOptions options_;
  Callback<void(Status)> started_;
  Callback<void(Status)> on_fatal_;
  bool dead_ = false;
  RegistryService registry_;
  RoomWatch room_;
  DiskProgress disk_;
  std::map<std::string, ToldStream> applied_;  // by stream name: what the core knows
  // From the opening of the registry on.
  std::unique_ptr<CoreDriver> driver_;
  std::unique_ptr<ReaderLinks> readers_;
  std::unique_ptr<PeerLinks> peers_;
  std::unique_ptr<CatalogueLinks> catalogue_links_;
  std::unique_ptr<DiskReclaim> reclaim_;
  std::unique_ptr<LeaverLinks> leavers_;
  std::unique_ptr<FileCheck> check_;
  std::unique_ptr<RetentionAgent> retention_;
  std::map<stream::ShardId, Timer> relist_;  // after failed listings
  Timer rescan_timer_{loop_};
  int64_t put_off_ = 0;  // files, as was said last
  Scope work_scope_;     // ends when the registry is lost
  Scope scope_;
};

}  // namespace tailcast::scheduler
