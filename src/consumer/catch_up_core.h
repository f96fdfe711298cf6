// How long a tail that is behind leaves off between rounds on a machine that is full. Such a round
// reads as much as a fetch asks for at most, and more is known to be there: without a pause the
// next one follows at once.
//
// But a crowd that is behind then fills the machine for good. All of it wants a processor all the
// time, so what a server sends to one of 256 lies in memory until the 255 others had their turn,
// and by then it has left the processors' caches, as has all else that the consumer touches. Each
// byte costs half as much again, which is why they are behind. So who is behind pauses as who keeps
// up does (stream/pace_core.h), from the end of a round: the longer rounds take, the larger the
// part of the crowd that is not under way.
//
// A pause of the whole time in which the messages of a round were sent would never let it catch up.
// An eighth of that time is left for reading:
//
//   messages of the last round were sent in    1 s    100 ms     8 ms    0 (files of long ago)
//   pause, where the machine's is 200 ms       200    87.5       7       0
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tailcast/base/time.h"

namespace tailcast::consumer {

class CatchUpCore {
 public:
  // 0: the machine has time left, and rounds follow each other.
  void SetPause(Duration pause) { pause_ = pause; }
  Duration pause() const { return pause_; }

  // When the next round may begin.
  MonotonicTime Due() const {
    return ended_ == MonotonicTime() ? ended_ : ended_ + std::min(between_, pause_);
  }
  // One begins. The last message that the user was given was sent at `sent_us`, by any clock.
  void Begin(int64_t sent_us) {
    const Duration sent_in = Duration::Micros(std::max<int64_t>(0, sent_us - sent_us_));
    if (behind_) between_ = sent_in - sent_in / 8;
    behind_ = under_way_ = true;
    sent_us_ = sent_us;
  }
  // A fetch ended.
  void End(MonotonicTime now) {
    if (std::exchange(under_way_, false)) ended_ = now;
  }
  // A fetch begins that reads all that is known.
  void Stop() {
    behind_ = under_way_ = false;
    ended_ = MonotonicTime();
  }

 private:
  Duration pause_;
  Duration between_ = Duration::Micros(INT64_MAX);  // not known yet
  MonotonicTime ended_;  // the last round
  bool behind_ = false;  // the last fetch was such a round
  bool under_way_ = false;
  int64_t sent_us_ = 0;
};

}  // namespace tailcast::consumer
