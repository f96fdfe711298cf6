// The way from a driver's threads back to its loop: open as long as the driver is there. A thread
// that comes back later, from a call that hung, finds it closed, and touches nothing.
#pragma once

#include <mutex>
#include <utility>

#include "tailcast/base/event_loop.h"

namespace tailcast::storage {

class LoopGate {
 public:
  // `loop` is there until Close.
  explicit LoopGate(EventLoop* loop) : loop_(loop) {}
  // Any thread. A task that comes when the gate is closed, or the loop shut down, stays with the
  // caller: what it holds may hang as it is destroyed, and Close must not wait for that.
  void Post(Task&& task) {
    const std::lock_guard lock(mutex_);
    if (loop_ != nullptr) loop_->Post(std::move(task));
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    loop_ = nullptr;
  }

 private:
  std::mutex mutex_;
  EventLoop* loop_;  // guarded by mutex_
};

}  // namespace tailcast::storage
