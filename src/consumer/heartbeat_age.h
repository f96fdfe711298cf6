// How old heartbeats of a shard are, without the clock of this host: the heartbeats are wall times
// of the producer's host, which may be an hour ahead or behind. They are held against the newest
// one, and the time since that was seen.
//
//   seen here at       t0          t0 + 2 s     t0 + 5 s
//   heartbeat          12:00:00    12:00:03
//   age of 12:00:00    0           3 s          6 s
//
// It is a hint: an old file's first reader may take it for new, until it has seen a newer one, and
// where the producer has moved to a host whose clock is behind, what is new looks old.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "tailcast/base/time.h"

namespace tailcast::consumer {

class HeartbeatAge {
 public:
  // A heartbeat of any file of the shard was seen, in microseconds of wall time; 0: there is none.
  void OnSeen(MonotonicTime now, int64_t heartbeat_us) {
    if (heartbeat_us == 0) return;
    const int64_t ahead = heartbeat_us - now.micros();
    ahead_us_ = std::max(ahead_us_.value_or(ahead), ahead);
  }
  // Whether it is older than that. One that is not known is.
  bool Over(MonotonicTime now, int64_t heartbeat_us, Duration age) const {
    if (heartbeat_us == 0 || !ahead_us_) return true;
    return now.micros() + *ahead_us_ - heartbeat_us > age.micros();
  }

 private:
  std::optional<int64_t> ahead_us_;  // the newest heartbeat's wall time less when it was seen
};

}  // namespace tailcast::consumer
