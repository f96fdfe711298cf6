// Monotonic time without the spans in which this process did not run: stopped, starved, its machine
// suspended. Who judges others by their silence measures it by this clock, so that it does not take
// its own silence for theirs: after a stall what they said meanwhile may still be on its way to it.
//
// One thread. A value: no clock, no timers.
#pragma once

#include <cstdint>

#include "tailcast/base/time.h"

namespace tailcast {

class RunningClock {
 public:
  // While the process runs, At is called at least once in a `tick`. Who calls it after more than
  // two of them did not run meanwhile: just one of them counts.
  explicit RunningClock(Duration tick) : tick_(tick) {}
  // From the next call on.
  void SetTick(Duration tick) { tick_ = tick; }

  // The running time at `now`, the loop's. Never falls.
  MonotonicTime At(MonotonicTime now) {
    if (now - last_ > tick_ * 2) {
      stood_ = stood_ + (now - last_ - tick_);
      ++stalls_;
    }
    last_ = now;
    return now - stood_;
  }
  // When it will be `running`, if the process runs on. Max() stays Max().
  MonotonicTime When(MonotonicTime running) const {
    return running == MonotonicTime::Max() ? running : running + stood_;
  }
  // How often the process stood still, and for how long altogether.
  int64_t stalls() const { return stalls_; }
  Duration stood() const { return stood_; }

 private:
  Duration tick_;
  MonotonicTime last_ = MonotonicTime::Max();  // when it was asked last; Max(): never
  Duration stood_;
  int64_t stalls_ = 0;
};

}  // namespace tailcast
