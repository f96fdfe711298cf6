// The seam between every agent of tailcast and the world: time, timers, and the place where
// completions arrive. ThreadLoop (thread_loop.h) is the real one; sim::SimLoop is virtual.
//
// An agent lives on one loop. Ports (storage, fabric, cache, rpc) call its callbacks on that loop,
// never inside the call that registered them. So an agent needs no locks, and runs unchanged in the
// deterministic world.
#pragma once

#include <cstdint>

#include "tailcast/base/callback.h"
#include "tailcast/base/time.h"

namespace tailcast {

// 0 is no timer.
using TimerId = uint64_t;

class EventLoop {
 public:
  virtual ~EventLoop() = default;

  // Time of the current turn: it does not move within one callback. Loop thread only.
  virtual MonotonicTime Now() const = 0;
  virtual WallTime WallNow() const = 0;

  // Runs `task` on the loop after everything posted before. Any thread. A loop that was shut down
  // destroys what it was given before, and takes nothing more: the task stays with the caller, who
  // may hold a lock that its destruction must not.
  virtual void Post(Task&& task) = 0;

  // Runs `task` on the loop at `when` or as soon as possible after. Equal times run in the order in
  // which they were set. Loop thread only.
  virtual TimerId At(MonotonicTime when, Task task) = 0;
  TimerId After(Duration delay, Task task) { return At(Now() + delay, std::move(task)); }
  // Forgets a timer; one that already ran, or 0, is ignored. Loop thread only.
  virtual void Cancel(TimerId id) = 0;
};

}  // namespace tailcast
