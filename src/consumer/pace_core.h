// How long a consumer leaves its doorbell unset after it has followed it. Nothing, as long as its
// thread runs when it wants to. A thread that waits for a processor longer than it runs is on a
// machine that is full, and the wake-ups of many consumers are what fills it: notifications that
// are taken together cost one of them.
//
//   waited for a processor, of each 50 ms      the pause
//     more than it ran                         half as long again, from 0.5 ms up to 8 ms
//     less than half of that                   a fifth shorter, down to nothing
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <algorithm>

#include "tailcast/base/thread_times.h"
#include "tailcast/base/time.h"

namespace tailcast::consumer {

class PaceCore {
 public:
  static constexpr Duration kInterval = Duration::Millis(50);
  static constexpr Duration kPauseMin = Duration::Micros(500);
  static constexpr Duration kPauseMax = Duration::Millis(8);
  // What a thread that hardly runs has waited says little.
  static constexpr Duration kRanMin = Duration::Micros(500);

  // Whether OnTimes is due.
  bool Due(MonotonicTime now) const { return now >= due_; }
  void OnTimes(MonotonicTime now, const ThreadTimes& times) {
    const Duration ran = times.ran - last_.ran, waited = times.waited - last_.waited;
    const bool first = due_ == MonotonicTime();
    due_ = now + kInterval;
    last_ = times;
    if (first || ran < kRanMin) return;
    if (waited > ran) {
      pause_ = std::min(kPauseMax, std::max(kPauseMin, pause_ * 3 / 2));
    } else if (waited < ran / 2) {
      pause_ = pause_ * 4 / 5;
      if (pause_ < kPauseMin) pause_ = Duration();
    }
  }
  Duration pause() const { return pause_; }

 private:
  MonotonicTime due_;
  ThreadTimes last_;
  Duration pause_;
};

}  // namespace tailcast::consumer
