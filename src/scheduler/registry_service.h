// Serves the cell's registry (src/cell) to the processes and clients of this cell, and to the
// schedulers of others: the view with its long polls, leases, the catalogue of streams. Durable
// changes are written before anything of them is shown or answered.
//
// Calls are answered by their `respond`, exactly once. A call that does not parse is answered with
// InvalidArgument.
//
// Threads: everything on one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/types.h"
#include "tailcast/cell/registry_core.h"
#include "tailcast/cell/registry_store.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/scheduler/view_waiters.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/term.h"

namespace tailcast::scheduler {

// Calls back on the loop, later.
using PlanTree = std::function<void(const v1::StreamConfig& stream,
                                    Callback<void(Result<std::vector<v1::TreeEdge>>)> done)>;

struct RegistryServiceOptions {
  cell::RegistryOptions registry;
  v1::ProcessInfo self;  // how the scheduler shows in the view; no name: not at all
  // Plans the copy tree of a stream that is created without one, off the loop: it may take seconds.
  // Null: the tree must be given.
  PlanTree plan_tree;
  // After a start the view is not shown before the cell's processes had time to register, or else
  // clients would take them for gone; unless all cache replicas are back sooner.
  Duration view_grace = Duration::Millis(1500);
  int waiting_views_max = 20000;
  uint64_t seed = 1;
  // How often it is looked whether another scheduler has taken over; and after each stall.
  Duration fence_check = Duration::Seconds(1);
  MetricRegistry* metrics = nullptr;  // outlives the service; null: nothing is counted
};

class RegistryService {
 public:
  // Who is told what happens, on the loop. It may call the service.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnProcessesChanged() = 0;
    // Changes of the catalogue, or of how far a stream's tree is carried out, became durable.
    virtual void OnCatalogueChanged(const cell::CatalogueChanges& changed) = 0;
    // It is known no more, durably.
    virtual void OnStreamRemoved(const v1::StreamConfig& stream) = 0;
    // A name is reserved durably: do all other cells agree? As CatalogueLinks::Reserve.
    virtual void Reserve(const std::string& stream, Callback<void(Status)> done) = 0;
    // Nothing can be written any more: another scheduler has fenced us, or the store fails. Once.
    virtual void OnRegistryLost(const Status& why) = 0;
  };

  // All outlive it.
  RegistryService(EventLoop& loop, storage::Store& store, RegistryServiceOptions options,
                  Owner& owner);
  RegistryService(const RegistryService&) = delete;
  RegistryService& operator=(const RegistryService&) = delete;

  // Opens the registry, fencing any earlier scheduler. Then all of the below may be called.
  //   Aborted, DataLoss, Unavailable: as RegistryStore::Open. ResourceExhausted: the cell has used
  //   up its scheduler incarnations.
  void Open(Callback<void(Status)> done);
  bool is_open() const { return core_ != nullptr; }
  // Shows the scheduler itself, and the view when the time has come.
  void Begin();
  // The scheduler ends: whoever waits for the view is told so.
  void End();

  // tailcast.v1.Cell
  void GetView(const std::string& request, rpc::Responder respond);
  void Register(const std::string& request, rpc::Responder respond);
  void CreateStream(const std::string& request, rpc::Responder respond);
  void ListStreams(const std::string& request, rpc::Responder respond);
  void DeleteStream(const std::string& request, rpc::Responder respond);
  void SetRetention(const std::string& request, rpc::Responder respond);
  void ChangeRing(const std::string& request, rpc::Responder respond);
  // tailcast.v1.Peer
  void InstallStream(const std::string& request, rpc::Responder respond);
  void RemoveStream(const std::string& request, rpc::Responder respond);
  void AskName(const std::string& request, rpc::Responder respond);
  void LeaveStream(const std::string& request, rpc::Responder respond);
  void AskToLeave(const std::string& request, rpc::Responder respond);

  const cell::RegistryCore& core() const { return *core_; }
  const v1::CellView& view() const { return core_->view(); }
  // To be changed by its owner: what the parts of the scheduler have found out; before a Persist.
  cell::Catalogue& catalogue() { return core_->catalogue(); }
  // As RegistryCore's; to whoever waits for the view, too.
  void ShowLacking(const std::vector<v1::LackingFile>& lacking, int64_t total);
  // ResourceExhausted: a write, or the opening, waits for room on the disk. What is shown and
  // answered is what was written before.
  const Status& no_room() const { return log_.no_room(); }
  // ResourceExhausted: changes would wait for room, and whoever asks for one is refused.
  Status CanChange() const;
  // Writes what changed, if anything did, and shows it. What changes while a write is under way is
  // written with the next one, all of it: however long there is no room, no more than one waits.
  void Persist();
  // Then runs `then`. ResourceExhausted: so many wait for room on the disk already; it is written
  // with what they changed.
  void Persist(Callback<void(Status)> then);
  // OK: no other scheduler had taken the registry over when this was called.
  void Confirm(Callback<void(Status)> then) { Write(std::move(then)); }

 private:
  void RegisterSelf();
  void ArmExpiry();
  // Writes the state, whether it changed or not: when that is done, no other scheduler had taken
  // the registry over before.
  void Write(Callback<void(Status)> then);
  void WriteNext();
  void OnWritten(const Status& status);
  void Create(const v1::StreamConfig& stream, const std::vector<v1::TreeEdge>& planned,
              rpc::Responder respond);
  void FinishCreate(const v1::StreamConfig& stream, const Status& reserved, rpc::Responder respond);
  // Says what step the ring has taken since `before`, if any.
  void LogRing(const v1::Ring& before);
  // Logs and counts what became durable of the cell's caches.
  void Report(const std::vector<cell::CacheMembers::Event>& events);
  void ShowCaches();
  void Expire();
  void CheckFence();
  void Lose(const Status& why);
  bool ViewIsReady() const;
  void OnViewChanged();
  void AnswerWaiting();
  // Persist, then answers with `reply`, if that went well.
  void PersistAndAnswer(rpc::Responder respond, std::string reply);

  EventLoop& loop_;
  const RegistryServiceOptions options_;
  Owner& owner_;
  cell::RegistryStore log_;
  std::unique_ptr<cell::RegistryCore> core_;  // from Open on
  MonotonicTime opened_at_;
  bool ended_ = false;  // or lost
  struct Writing {
    cell::RegistryCore::Snapshot snapshot;
    std::vector<cell::CacheMembers::Event> events;
    std::vector<Callback<void(Status)>> then;
  };
  std::unique_ptr<Writing> writing_;                // under way; null: nothing is
  bool write_next_ = false;                         // a write is wanted behind that one
  std::vector<Callback<void(Status)>> after_next_;  // who waits for it
  ViewWaiters waiters_;
  bool answer_posted_ = false;
  cache::ConfigurationId told_ring_{};  // that waiters_ was told of last
  Timer expiry_timer_{loop_};
  Timer view_timer_{loop_};
  Timer self_timer_{loop_};
  Timer fence_timer_{loop_};
  bool checking_fence_ = false;
  int64_t stalls_ = 0;  // of core_, when the fence was looked at
  Scope scope_;
};

}  // namespace tailcast::scheduler
