// How long a party of a low-latency path leaves off before it goes on: a consumer before it reads
// lengths again, a producer before it flushes again. Nothing, as long as the machine has time
// left. On one that is full it is the flushes and wake-ups of many that fill it, and what is taken
// together costs one of them.
//
// The pause is steered: each 100 ms, or two pauses if that is more, it becomes longer or shorter by
// the share by which the machine was busier or less busy than is aimed at, as far as all of the
// last five such intervals agree. What fills a machine for less than that, as a process
// that ends or starts does, is over before longer pauses could help. Where they don't agree the
// pause follows their mean, at a quarter of the speed. With an aim of 65 %:
//
//   busy, % of each interval   60  95  95  95  62  61   x 1.04
//                              60  95  95  80  75  70   x 1.08 at the last one
//                              63  58  66  55  60  62   x 0.99
//
// A pause is a part of the delay, and so is the queue before a processor, which grows beyond all
// bounds on one that is always busy: with 64 consumers and a producer on two processors the
// slowest hundredth of the messages is least late at some 75 % (60 % and 80 %: a third later).
//
// What is aimed at grows with the logarithm of the pause, from `percent_shortest` at 0.5 ms (below
// that there is none) to `percent_longest` at `pause_max`:
//
//   pause, ms     0.5     1     2     4     8    16    32    64   128   200
//   aim, %       70.0  72.8  75.6  78.4  81.2  84.0  86.8  89.5  92.3  94.0
//
// For whoever shares the machine sees the same load. With one aim for all they would become longer
// and shorter by the same share, and who has once had a pause four times as long as the others
// would keep that for good. So the longest go back first, and all come to the same one (as
// generators share a load by their droop). And a machine that is full for all that shall be: what
// is taken at a time has to grow until it costs little enough, or everybody falls behind for good.
//
// A crowd that begins at once would be seconds behind before that has found its pause. So from none
// it doubles in each interval, from the second that is too busy to the first that is not, as long
// as a thread that runs for a moment waits for four (kCrowd).
//
// A thread that waits for a processor less than half as long as it runs is in nobody's way, and its
// pause goes: others may fill the machine. That is not asked of a thread that runs before others
// (base/thread_priority.h), which waits for nobody, whatever it does to them.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "tailcast/base/thread_times.h"
#include "tailcast/base/time.h"

namespace tailcast::stream {

struct PaceOptions {
  // Less than 0.5 ms: there are no pauses.
  Duration pause_max = Duration::Millis(200);
  // Of the time of all processors.
  int percent_shortest = 70;
  int percent_longest = 94;
  // Its thread does: how long that waits says nothing.
  bool runs_before_others = false;
};

class PaceCore {
 public:
  static constexpr Duration kInterval = Duration::Millis(100);
  static constexpr int64_t kPauses = 2;  // between two looks, at least
  static constexpr Duration kPauseMin = Duration::Micros(500);
  static constexpr int64_t kAgree = 5;   // intervals
  static constexpr int64_t kSlower = 4;  // times, if they don't agree
  static constexpr int64_t kCrowd = 4;   // times as long as it runs a thread waits in one

  explicit PaceCore(PaceOptions options = {}) : options_(options) {}

  // Whether OnTimes is due.
  bool Due(MonotonicTime now) const { return now >= last_at_ + interval(); }
  void OnTimes(MonotonicTime now, const ThreadTimes& times) {
    const Duration ran = times.ran - last_.ran, waited = times.waited - last_.waited;
    const Duration idle = times.idle - last_.idle, elapsed = now - last_at_;
    const bool first = last_at_ == MonotonicTime();
    last_ = times;
    last_at_ = now;
    if (first || elapsed <= Duration()) return;
    int64_t busy = 1000 * std::max<int64_t>(0, (elapsed - idle).micros()) / elapsed.micros();
    if (!options_.runs_before_others && waited < ran / 2) busy = 0;
    const int64_t before = busy_[(at_ + kAgree - 1) % kAgree];
    busy_[at_++ % busy_.size()] = busy;
    const auto [least, most] = std::minmax_element(busy_.begin(), busy_.end());
    const int64_t aim = AimPerMille(pause_);
    if (pause_ == Duration()) begins_ = true;
    if (busy <= aim && pause_ > Duration()) begins_ = false;
    if (begins_ && busy > aim && before > aim && waited >= ran * kCrowd) {
      pause_ = std::max(pause_ * 2, kPauseMin);
    } else {
      if (*least > aim) pause_ = std::max(pause_, kPauseMin);
      const bool agree = *least > aim || *most < aim;
      const int64_t missed = agree ? kSlower * kAgree * (std::clamp(aim, *least, *most) - aim)
                                   : std::accumulate(busy_.begin(), busy_.end(), -kAgree * aim);
      const int64_t whole = kSlower * kAgree * aim;  // it is longer by missed / whole
      pause_ = pause_ * (whole + std::clamp(missed, -whole / 4, whole / 2)) / whole;
    }
    pause_ = std::min(options_.pause_max, pause_);
    if (pause_ < kPauseMin) pause_ = Duration();
  }
  Duration pause() const { return pause_; }
  // Between two looks. One costs a tenth of what a round does, or more.
  Duration interval() const { return std::max(kInterval, pause_ * kPauses); }

  // How busy the machine should be with such a pause, in thousandths of its time.
  int64_t AimPerMille(Duration pause) const {
    const int64_t shortest = 10 * options_.percent_shortest,
                  longest = 10 * options_.percent_longest;
    return shortest + (longest - shortest) * Doublings(pause) /
                          std::max<int64_t>(1, Doublings(options_.pause_max));
  }

 private:
  // Thousandths of such, from kPauseMin on; the logarithm between two powers is a straight line.
  static int64_t Doublings(Duration pause) {
    const int64_t us = std::max(pause, kPauseMin).micros();
    const int whole = std::bit_width(static_cast<uint64_t>(us / kPauseMin.micros())) - 1;
    const int64_t power = kPauseMin.micros() << whole;
    return 1000 * whole + 1000 * (us - power) / power;
  }

  const PaceOptions options_;
  MonotonicTime last_at_;
  ThreadTimes last_;
  std::array<int64_t, kAgree> busy_{};  // thousandths, of the last intervals
  size_t at_ = 0;
  Duration pause_;
  bool begins_ = true;  // it has grown from none, and was never too long
};

}  // namespace tailcast::stream
