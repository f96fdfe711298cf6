// Keeps a process in its cell's registry: registers it, renews its lease, and registers at once
// with a scheduler that has just begun and knows nobody yet.
//
//   Register ──► lease ──► after a third of it: Register ──► ...
//      ▲  not answered: 100 ms later               │
//      ├───────────── another scheduler's view ◄───┤
//      └── nobody answers for the view: 100 ms ◄───┘
//
// Threads: the loop's.
#pragma once

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/proto/cell.pb.h"

namespace tailcast::cell {

class Registration {
 public:
  struct Hooks {
    // The process as it is now; its role and name stay.
    UniqueFunction<v1::ProcessInfo()> info;
    // `sent`: when the call went out, from which on the lease counts at the latest.
    UniqueFunction<void(MonotonicTime sent, const v1::RegisterReply& reply)> on_renewed;
    // FailedPrecondition: another process has its name. InvalidArgument: the cell does not know it.
    // It is not tried again.
    UniqueFunction<void(Status why)> on_refused;
  };

  // Begins at once. `loop` and `client` outlive it. Hooks are called on later turns.
  Registration(EventLoop& loop, CellClient& client, Hooks hooks);
  // At once, because the process is another than it was.
  void RegisterNow();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  void Register();
  void OnReply(MonotonicTime sent, const Result<v1::RegisterReply>& reply);
  void OnView(const CellView& view);
  void OnSilence();
  // The scheduler whose lease this is has a successor.
  bool IsOld() const;

  EventLoop& loop_;
  CellClient& client_;
  Hooks hooks_;
  uint64_t scheduler_ = 0;  // incarnation, of the last lease
  bool calling_ = false;
  bool again_ = false;  // at once when it is answered
  Timer timer_{loop_};
  Scope scope_;
};

}  // namespace tailcast::cell
