// How long a party of a low-latency path leaves off before it goes on: a consumer before it reads
// lengths again, a producer before it flushes again. Nothing, as long as the machine has time
// left. On one that is full it is the flushes and wake-ups of many that fill it, and what is taken
// together costs one of them.
//
// The pause is steered so that the machine is busy for `busy_percent` of its time: each 100 ms it
// becomes longer or shorter by the share by which that was missed (from 0.5 ms up to `pause_full`;
// below that there is none), as far as all of the last five such intervals agree. What fills a
// machine for less than half a second, as a process that ends or starts does, is over before longer
// pauses could help. Where they don't agree the pause follows their mean, at a quarter of the
// speed:
//
//   busy, % of each interval   60  95  95  95  62  61   x 1.04
//                              60  95  95  80  75  70   x 1.08 at the last one
//                              63  58  66  55  60  62   x 0.99
//
// A crowd that begins at once would be seconds behind before that has found its pause. So from none
// it doubles in each interval, from the second that is too busy to the first that is not, as long
// as a thread that runs for a moment waits for four (kCrowd).
//
// Up to `pause_max` it becomes longer only while the machine is full for all that, and until it is
// busy for `full_percent`: what is taken at a time has to grow until it costs little enough, or
// everybody falls behind for good.
//
// Whoever shares the machine sees the same, and so all of a kind give
// way alike. A thread that waits for a processor less than half as long as it runs is in nobody's
// way, and its pause goes: others may fill the machine.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "tailcast/base/thread_times.h"
#include "tailcast/base/time.h"

namespace tailcast::stream {

struct PaceOptions {
  Duration pause_max = Duration::Millis(200);
  Duration pause_full = Duration::Millis(50);
  int busy_percent = 65;  // of the time of all processors
  int full_percent = 90;
};

class PaceCore {
 public:
  static constexpr Duration kInterval = Duration::Millis(100);
  static constexpr Duration kPauseMin = Duration::Micros(500);
  static constexpr int64_t kAgree = 5;   // intervals
  static constexpr int64_t kSlower = 4;  // times, if they don't agree
  static constexpr int64_t kCrowd = 4;   // times as long as it runs a thread waits in one

  explicit PaceCore(PaceOptions options = {}) : options_(options) {}

  // Whether OnTimes is due.
  bool Due(MonotonicTime now) const { return now >= due_; }
  void OnTimes(MonotonicTime now, const ThreadTimes& times) {
    const Duration ran = times.ran - last_.ran, waited = times.waited - last_.waited;
    const Duration idle = times.idle - last_.idle, elapsed = now - last_at_;
    const bool first = due_ == MonotonicTime();
    due_ = now + kInterval;
    last_ = times;
    last_at_ = now;
    if (first || elapsed <= Duration()) return;
    int64_t percent = 100 * std::max<int64_t>(0, (elapsed - idle).micros()) / elapsed.micros();
    if (waited < ran / 2) percent = 0;
    const int64_t before = busy_[(at_ + kAgree - 1) % kAgree];
    busy_[at_++ % busy_.size()] = percent;
    const auto [least, most] = std::minmax_element(busy_.begin(), busy_.end());
    const bool longest = pause_ >= options_.pause_full;
    const int64_t aim = longest ? options_.full_percent : options_.busy_percent;
    if (pause_ == Duration()) begins_ = true;
    if (percent <= aim && pause_ > Duration()) begins_ = false;
    if (begins_ && percent > aim && before > aim && waited >= ran * kCrowd) {
      pause_ =
          std::clamp(pause_ * 2, kPauseMin, longest ? options_.pause_max : options_.pause_full);
      return;
    }
    if (*least > aim) pause_ = std::max(pause_, kPauseMin);
    const bool agree = *least > aim || *most < aim;
    const int64_t missed = agree ? kSlower * kAgree * (std::clamp(aim, *least, *most) - aim)
                                 : std::accumulate(busy_.begin(), busy_.end(), -kAgree * aim);
    const int64_t whole = kSlower * kAgree * aim;  // it is longer by missed / whole
    pause_ = std::min(longest ? options_.pause_max : options_.pause_full,
                      pause_ * (whole + std::clamp(missed, -whole / 4, whole / 2)) / whole);
    if (pause_ < kPauseMin) pause_ = Duration();
  }
  Duration pause() const { return pause_; }

 private:
  const PaceOptions options_;
  MonotonicTime due_, last_at_;
  ThreadTimes last_;
  std::array<int64_t, kAgree> busy_{};  // percent, of the last intervals
  size_t at_ = 0;
  Duration pause_;
  bool begins_ = true;  // it has grown from none, and was never too long
};

}  // namespace tailcast::stream
