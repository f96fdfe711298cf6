// Whether the owner of a server's memory is at work, as another host can tell: not by the time in
// its stamp, since the hosts' clocks differ, but by whether the stamp changes.
#pragma once

#include <cstdint>

#include "tailcast/base/time.h"

namespace tailcast::fabric {

// Not thread-safe.
class RemoteHeartbeat {
 public:
  explicit RemoteHeartbeat(Duration beat_timeout) : beat_timeout_(beat_timeout) {}

  // The stamp was fetched after `asked` and before `now`. False: it was the same for longer than
  // the owner promised, which began to beat once (0: not yet).
  bool Observe(uint64_t stamp, MonotonicTime asked, MonotonicTime now) {
    if (stamp != stamp_) {
      stamp_ = stamp;
      seen_ = now;
    }
    return stamp == 0 || asked - seen_ <= beat_timeout_;
  }

 private:
  const Duration beat_timeout_;
  uint64_t stamp_ = 0;
  MonotonicTime seen_;  // when stamp_ was there for certain, at the latest
};

}  // namespace tailcast::fabric
