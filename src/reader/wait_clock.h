// Which end an operation waits for, and since when: back-pressure, for people (`tailcast status`).
// Decides nothing. Cores.
//
//   an operation waits   while its first byte that is not confirmed is known here for a second or
//                        more; what takes less is under way
//   it waits for         the end that was in the way at most of the looks of the last second
//   since                what it waits for first has been waited for; changes with the end
//
//   lag   0.3 s   1.2 s   2.2 s   2.0 s   0.1 s for a second
//   in the way     writer  writer  source ...
//   waits for     nobody  writer, 1.2 s  writer, 2.2 s  ...  nobody
//
// WaitClock::Look is called at even intervals.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "tailcast/base/time.h"
#include "tailcast/proto/copy.pb.h"

namespace tailcast::reader {

// Whether a writer has nothing to write most of the time, as its progress says.
class WriterLoad {
 public:
  explicit WriterLoad(MonotonicTime begin) : heard_(begin), judged_(begin) {}
  // `busy`: since the operation began, by the writer's clock.
  void OnProgress(MonotonicTime now, Duration busy) {
    heard_ = now;
    if (now - judged_ < kJudged) return;
    idle_ = (busy - busy_) * 2 < now - judged_;
    judged_ = now;
    busy_ = busy;
  }
  // One that is silent is not taken to be idle any more.
  bool idle(MonotonicTime now) const { return idle_ && now - heard_ < kSilent; }

 private:
  static constexpr Duration kJudged = Duration::Millis(200);
  static constexpr Duration kSilent = Duration::Seconds(5);
  bool idle_ = false;
  MonotonicTime heard_, judged_;
  Duration busy_;
};

class WaitClock {
 public:
  static constexpr Duration kLagMin = Duration::Seconds(1);
  // One that waits no more is shown for so long: it may wait again at once.
  static constexpr Duration kHold = Duration::Seconds(1);

  // `lag` is of the first byte that is not confirmed; `in_the_way`: the end that could do more for
  // it now.
  void Look(MonotonicTime now, Duration lag, v1::WaitsFor in_the_way) {
    if (lag < kLagMin) {
      if (waits_for_ != v1::WAITS_FOR_NOBODY && now - waited_ >= kHold) *this = WaitClock();
      return;
    }
    waited_ = now;
    for (double& score : scores_) score *= kKept;
    scores_[static_cast<size_t>(in_the_way)] += 1;
    const auto most = static_cast<v1::WaitsFor>(
        std::distance(scores_.begin(), std::max_element(scores_.begin(), scores_.end())));
    if (most == waits_for_) return;
    since_ = waits_for_ == v1::WAITS_FOR_NOBODY ? now - lag : now;
    waits_for_ = most;
  }

  v1::WaitsFor waits_for() const { return waits_for_; }
  // 0 while it waits for nobody.
  Duration waited(MonotonicTime now) const {
    return waits_for_ == v1::WAITS_FOR_NOBODY ? Duration() : now - since_;
  }

 private:
  static constexpr double kKept = 0.95;  // at 20 looks a second the last one counts most
  v1::WaitsFor waits_for_ = v1::WAITS_FOR_NOBODY;
  MonotonicTime since_, waited_;
  std::array<double, v1::WaitsFor_ARRAYSIZE> scores_ = {};
};

}  // namespace tailcast::reader
