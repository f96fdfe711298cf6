// How long one end of an operation takes for its part of the way: the reader from asking for bytes
// until it has them, the writer from being sent bytes until it says that they are written. By these
// the scheduler finds the machines that are slow (scheduler/worker_speed.h).
//
// Core; positions only grow, and what was given first is taken to be done first.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tailcast/base/time.h"
#include "tailcast/reader/lag_clock.h"

namespace tailcast::reader {

class StepClock {
 public:
  // What was done so long ago says nothing of now.
  static constexpr Duration kLately = Duration::Seconds(1);

  // The end has all bytes up to there to do.
  void OnGiven(MonotonicTime now, int64_t bytes) { clock_.OnSource(now, bytes); }
  // It has done all up to there.
  void OnDone(MonotonicTime now, int64_t bytes) {
    if (clock_.OnWritten(now, bytes)) done_ = now;
  }
  // The longer of what the last bytes took, if that was lately, and of how long the first ones that
  // are not done are waited for; at least a microsecond. 0: it had nothing to do lately.
  Duration takes(MonotonicTime now) const {
    const Duration lag = clock_.lag(now);
    if (now - done_ >= kLately) return lag;
    return std::max({lag, clock_.delay(), Duration::Micros(1)});
  }

 private:
  LagClock clock_;
  MonotonicTime done_ = MonotonicTime::FromMicros(INT64_MIN / 4);  // never
};

}  // namespace tailcast::reader
