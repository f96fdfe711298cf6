// Whether it says something of a worker that its part of an operation takes long. What is moved to
// another worker and takes as long there is slow by itself (so many bytes, say): for ten minutes
// nobody is judged by it. Right after a move nobody is, either: what waited has to be done first.
//
// A core.
#pragma once

#include "tailcast/base/time.h"

namespace tailcast::scheduler {

class SlowPart {
 public:
  static constexpr Duration kSettles = Duration::Seconds(3);
  static constexpr Duration kSlowByItself = Duration::Seconds(600);

  // It takes so long now. Whether its worker is to be judged by that. `slow_after`: as
  // SpeedOptions'.
  bool OnTime(MonotonicTime now, Duration took, Duration slow_after) {
    took_ = took;
    if (now < silent_until_) return false;
    if (elsewhere_ == Duration()) return true;
    if (took > slow_after && took * 2 >= elsewhere_) silent_until_ = now + kSlowByItself;
    elsewhere_ = Duration();
    return now >= silent_until_;
  }
  // It is moved, because its worker is slow.
  void OnMoved(MonotonicTime now) {
    if (now < silent_until_) return;
    elsewhere_ = took_;
    silent_until_ = now + kSettles;
  }

 private:
  Duration took_;       // as said last
  Duration elsewhere_;  // where it was before the move, until that is compared; else 0
  MonotonicTime silent_until_;
};

}  // namespace tailcast::scheduler
