// A user's process attached to one cell: the cell's view, kept fresh, and ports to its two caches
// and its primary layer. What the libraries `producer` and `consumer` open from a scheduler's
// address.
//
// Threads: one ThreadLoop; all calls and the destruction on its thread, in a turn of their own: not
// inside a callback of the session or of what it owns.
#pragma once

#include <memory>
#include <string>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/base/step_log.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/cache/client.h"
#include "tailcast/cell/cache_clients.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/cell/scheduler_finder.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/ports.h"

namespace tailcast::session {

enum class FabricPreference : uint8_t {
  kAuto,  // shared memory where the server is on this host, else RDMA where both have it, else tcp
  kShm,
  kTcp,
  kVerbs,  // RDMA
};

struct Options {
  std::string cell;  // host:port of the scheduler
  FabricPreference fabric = FabricPreference::kAuto;
  bool writes_caches = true;  // else it is one of many that hear of a change later
};
// A scheduler that is not where it was any more is looked for in the cell's registry, in its
// primary layer. When it is lost, and when it is found again, is logged as a warning; meanwhile
// bytes flow on by what was known of the cell.
class Session {
 public:
  // `loop` outlives the session and is turned by the caller.
  Session(ThreadLoop* loop, Options options);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Fetches the view and opens the ports. The cell's key is read from the file that
  // TAILCAST_CELL_KEY in the environment names ("none": caches that ask for none are used), or else
  // from where the cell says.
  //   InvalidArgument     `cell` is no host:port
  //   Unavailable         nobody answers at the address, which the message names
  //   PermissionDenied, NotFound, FailedPrecondition   the primary layer: as storage::OpenStore,
  //                                                    for which the loop is blocked, 5 s at most
  //   PermissionDenied, NotFound, InvalidArgument      the cell's key: as fabric::CellKey::Load
  //   FailedPrecondition  who writes: what is there is not this cell's store, as
  //                       cell::RegistryReader::CheckOwner says; DeadlineExceeded: it can't be said
  void Start(Duration timeout, Callback<void(Status)> done);

  stream::CellPorts ports() const;
  cell::CellClient& cell() { return *cell_; }

 private:
  void OnView(Status status, Callback<void(Status)> done);
  // Who writes to a folder that is not the cell's store, as where its volume is not mounted, writes
  // what nobody reads.
  void CheckStore(Callback<void(Status)> done);
  void AskOwner();
  void OnStoreChecked(Status status);
  void UpdateCaches(const cell::CellView& view);
  cache::RingConfig Filtered(cache::RingConfig ring) const;

  ThreadLoop* const loop_;
  const Options options_;
  Duration timeout_;  // of Start
  // In order of use: clients end before what they speak through.
  std::shared_ptr<StepLog> steps_;  // null: not logged
  std::unique_ptr<rpc::Connector> rpc_;
  std::unique_ptr<fabric::Connector> fabric_;  // from the first view on
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<cell::RegistryReader> registry_;  // while the store is checked
  Callback<void(Status)> checked_;
  Timer deadline_, again_;  // of that
  std::unique_ptr<cell::CacheClients> caches_;
  std::unique_ptr<cell::CellClient> cell_;
  std::unique_ptr<cell::SchedulerFinder> finder_;
  Scope scope_;
};

}  // namespace tailcast::session
