// When a process that was asked to end may: a reader's and a writer's operations are given to
// others first, make before break (scheduler/scheduler_core.h).
//
//     asked to end
//          |
//     tells its scheduler, which gives it nothing more, and moves what it runs
//          |
//     ends, when nothing runs any more          what others run already, it runs no more
//               or nobody is there to take it   the last reader, say: waiting would change nothing
//               or the scheduler does not answer for `unanswered`
//               or `limit` is over
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tailcast/base/time.h"

namespace tailcast::node {

struct LeavingOptions {
  // From when the scheduler knows. Schedulers of other cells, who use a writer, hear of it later by
  // a way over a link, and what was ordered before may be on its way.
  Duration least = Duration::Millis(500);
  Duration unanswered = Duration::Seconds(2);
  Duration limit = Duration::Seconds(10);
};

class Leaving {
 public:
  Leaving(MonotonicTime now, LeavingOptions options) : options_(options), began_(now) {}

  // The scheduler knows that it leaves.
  void OnKnown(MonotonicTime now) {
    if (!known_) known_ = now;
  }
  // `operations`: that it runs; `others`: somebody of its role is there, and stays. Why it may end
  // now, for people; nullopt: not yet.
  std::optional<std::string> MayEnd(MonotonicTime now, int64_t operations, bool others) const;

 private:
  const LeavingOptions options_;
  const MonotonicTime began_;
  std::optional<MonotonicTime> known_;
};

}  // namespace tailcast::node
