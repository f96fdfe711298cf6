// DrainCore on a loop, for both clients.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <utility>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/quorum_core.h"

namespace tailcast::cache {

// What waits runs on a later turn than what it waited for, and not once this is gone. The loop
// outlives it.
class Drains {
 public:
  explicit Drains(EventLoop* loop) : loop_(loop) {}

  uint64_t Begin() { return core_.Begin(); }
  void End(uint64_t call) {
    core_.End(call);
    PostDue();
  }
  void Drain(Callback<void()> done) {
    core_.Drain(std::move(done));
    PostDue();
  }

 private:
  void PostDue() {
    while (Callback<void()> done = core_.TakeDue()) {
      loop_->Post(scope_.Bind([done = std::move(done)]() mutable { done(); }));
    }
  }

  EventLoop* const loop_;
  DrainCore core_;
  Scope scope_;
};

}  // namespace tailcast::cache
