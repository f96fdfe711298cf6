// When a read that has no answer is hedged, and how many may be: another replica is asked after
// what 95 % of this client's reads take, between 1 and `delay_max`, and for 2 % of its reads. Under
// overload everything is slow: hedging it all would double the load that makes it slow.
//
// What is read together is hedged together or not at all: it is done when the last of it is there,
// and a message costs nearly as much with a few keys as with many. Who couldn't pay for all of it
// as it begins is not woken to look at it, either: under overload those wake-ups are much of what
// is to be spared. Of more reads than can be saved up for, those that are left are looked at.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tailcast/base/time.h"

namespace tailcast::cache {

class HedgeCore {
 public:
  static constexpr Duration kDelayMin = Duration::Millis(1);
  static constexpr int64_t kReadsPerHedge = 50;
  // That may be saved up: a replica that dies is found out by reads that wait for it.
  static constexpr int64_t kHedgesMax = 256;

  explicit HedgeCore(Duration delay_max)
      : delay_max_(delay_max), p95_us_(static_cast<double>(delay_max.micros())) {}

  void OnRead() { savings_ = std::min(savings_ + 1, kHedgesMax * kReadsPerHedge); }
  // Of a read that was answered. One in twenty that is slower weighs as much as the other nineteen.
  void OnLatency(Duration latency) {
    p95_us_ *= static_cast<double>(latency.micros()) > p95_us_ ? 1 + 19 * kStep : 1 - kStep;
    p95_us_ = std::clamp(p95_us_, static_cast<double>(kDelayMin.micros()),
                         static_cast<double>(std::max(kDelayMin, delay_max_).micros()));
  }
  Duration delay() const {
    return std::min(delay_max_, Duration::Micros(static_cast<int64_t>(p95_us_)));
  }
  // Whether so many reads, which are waited for together, may be hedged now.
  bool Take(int64_t reads) {
    if (savings_ < reads * kReadsPerHedge) return false;
    savings_ -= reads * kReadsPerHedge;
    return true;
  }
  // Whether to look after the delay which of so many reads are to be hedged.
  bool MayTake(int64_t reads) const {
    return savings_ >= std::min(reads, kHedgesMax) * kReadsPerHedge;
  }

 private:
  static constexpr double kStep = 0.005;

  const Duration delay_max_;
  double p95_us_;
  int64_t savings_ = kHedgesMax * kReadsPerHedge;  // in reads
};

}  // namespace tailcast::cache
