// Doorbells for values (Client::WatchValue): each watch waits at one replica whose doorbell was
// seen when the value was last read, and moves to the next one when that replica refuses or is
// gone.
//
//   WatchValue ─▶ waits at a replica ──refused, unreachable──▶ waits at another
//       │            │ changed, time-out                          │ nobody is left
//       │            └────────────▶ notify(true)                  ▼
//       └──nobody can watch─────────────────────────────────▶ notify(false)
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/client_context.h"
#include "tailcast/cache/replica_set.h"
#include "tailcast/cache/types.h"
#include "tailcast/fabric/fabric.h"

namespace tailcast::cache {

class Watches {
 public:
  // Both outlive it.
  Watches(ClientContext& context, const ReplicaSet& replicas)
      : context_(context), replicas_(replicas) {}
  ~Watches();

  uint64_t WatchValue(Key key, Duration timeout, Callback<void(bool watched)> notify);
  void CancelWatch(uint64_t id);
  // Another ring is read from now on: what somebody watches may have its next change elsewhere, so
  // all are told to look.
  void OnRing();

 private:
  struct Watch {
    uint64_t id = 0;
    Key key;
    MonotonicTime deadline;
    Callback<void(bool)> notify;
    ReplicaLinkPtr link;  // where it waits; null: nowhere
    uint64_t link_watch = 0;
    uint8_t tried = 0;  // owners that could not watch
    Scope scope;
  };

  // False: nobody is left who can watch.
  bool Place(Watch& watch);
  void OnDoorbell(Watch& watch, fabric::WatchOutcome outcome);
  void Notify(uint64_t id, bool watched);

  ClientContext& context_;
  const ReplicaSet& replicas_;
  std::map<uint64_t, std::unique_ptr<Watch>> watches_;
  uint64_t next_watch_ = 1;
};

}  // namespace tailcast::cache
