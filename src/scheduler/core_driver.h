// Gives the scheduler's core its turns: whoever has an input calls the core, with effects() for
// what comes of it, and then DoWork or DoWorkSoon; what the core wants done is carried out by
// `carry_out`.
//
// Threads: everything on one loop.
#pragma once

#include <cstdint>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/scheduler/scheduler_core.h"

namespace tailcast::scheduler {

struct CoreDriverOptions {
  // Nothing is decided before: orphans are heard of first.
  MonotonicTime begin;
  Duration shed_interval = Duration::Seconds(5);
};

class CoreDriver {
 public:
  // `loop` outlives it. `carry_out` is called in each turn, also with nothing to do.
  CoreDriver(EventLoop& loop, CoreOptions core, uint64_t seed, CoreDriverOptions options,
             UniqueFunction<void(const Effects&)> carry_out);
  CoreDriver(const CoreDriver&) = delete;
  CoreDriver& operator=(const CoreDriver&) = delete;

  SchedulerCore& core() { return core_; }
  const SchedulerCore& core() const { return core_; }
  // Effects of inputs, carried out by the next DoWork.
  Effects& effects() { return effects_; }
  MonotonicTime now() const { return loop_.Now(); }

  // Decides, carries out, and sets the timer for the next time.
  void DoWork();
  // Once, after everything that is posted now.
  void DoWorkSoon();
  // No more turns.
  void End() { scope_.End(); }

 private:
  EventLoop& loop_;
  const CoreDriverOptions options_;
  UniqueFunction<void(const Effects&)> carry_out_;
  SchedulerCore core_;
  Effects effects_;
  bool posted_ = false;
  Timer work_timer_{loop_};
  Timer shed_timer_{loop_};
  Scope scope_;
};

}  // namespace tailcast::scheduler
