// How long the other end of a stream of beats may be silent before it counts as stopped (paper §3,
// Fault Tolerance). A process that is stopped, or whose loop hangs, keeps its connections: only its
// silence tells.
//
// The limit follows what the beats did of late: on a quiet machine a stopped process is noticed
// within `least`; where every process waits long for a processor, none is given up for that.
//
//   limit = interval + 4 x the worst lateness of late (which halves in half a minute) + slack
//
// Who judges looks at its clock twice in an interval, and of its own stalls that are shorter than
// two looks it knows nothing (running_clock.h): the slack has room for one of them, and the limit
// of who is idle for one interval more.
//
// A core: no clock, no I/O. Times are running times of the one who judges (running_clock.h), so
// that its own stalls are nobody's silence.
#pragma once

#include <algorithm>

#include "tailcast/base/time.h"

namespace tailcast::rpc {

struct SilenceOptions {
  Duration interval = Duration::Millis(100);      // of the beats
  Duration idle_interval = Duration::Seconds(1);  // while nothing depends on whoever beats
  Duration slack = Duration::Millis(100);
  Duration least = Duration::Millis(200);  // bounds of the limit
  Duration most = Duration::Seconds(3);
};

class SilenceCore {
 public:
  explicit SilenceCore(SilenceOptions options) : options_(options) {}

  // On another connection: the next beat is a first one. What was learned stays.
  void Restart() { heard_ = {}; }
  // The first one begins the count. `idle`: the next one comes after the idle interval.
  void OnBeat(MonotonicTime now, bool idle) {
    if (heard_ != MonotonicTime()) {
      // One that was stopped for long says little of how late beats come.
      const Duration late = std::min(now - heard_ - interval(), limit_duration() * 2);
      const int64_t passed = std::min((now - heard_).micros(), kForgets.micros());
      const int64_t kept = (kForgets.micros() - passed) * worst_.micros() / kForgets.micros();
      worst_ = std::max(late, Duration::Micros(kept));
    }
    heard_ = now;
    idle_ = idle;
  }
  // Until the next beat.
  Duration interval() const { return idle_ ? options_.idle_interval : options_.interval; }
  // Silence from here on is too long.
  MonotonicTime limit() const { return heard_ + limit_duration(); }
  Duration limit_duration() const {
    const Duration slack = options_.slack + (idle_ ? interval() : Duration());
    return std::clamp(interval() + worst_ * 4 + slack, options_.least, options_.most);
  }

 private:
  // What is left of a lateness after a second: 1 - 1 / 51.2 of it.
  static constexpr Duration kForgets = Duration::Micros(51'200'000);
  const SilenceOptions options_;
  MonotonicTime heard_;  // the last beat
  bool idle_ = false;    // it said
  Duration worst_;
};

}  // namespace tailcast::rpc
