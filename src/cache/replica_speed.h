// Which replicas answer so slowly that reads do better to ask others first: a CPU that is starved,
// a link with a delay. Such a replica is the first choice for its share of the keys, and each of
// those reads would wait for the hedge.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <span>

#include "tailcast/base/time.h"

namespace tailcast::cache {

// One replica as one client knows it. Avoided: asked after all others. It comes to that when its
// estimate is more than kSlowFactor times that of the other replicas and kSlowMin longer, and ends
// when it is less than kFastFactor times theirs and kFastMin longer. "The others": the median of
// their estimates, the lower one of two; the fastest is never avoided.
//
//   others 100 us: avoided from 1.4 ms on, until 0.7 ms;  others 5 ms: from 21 ms on, until 10.5 ms
class ReplicaSpeed {
 public:
  static constexpr int kSlowFactor = 4, kFastFactor = 2;
  static constexpr Duration kSlowMin = Duration::Millis(1), kFastMin = Duration::Micros(500);
  // Latencies that are needed before it is judged, and before others are judged by it.
  static constexpr uint32_t kLatenciesMin = 8;
  // While it is avoided: of so many reads that could have asked it one does, and one in so long if
  // they are few.
  static constexpr uint32_t kReadsPerProbe = 100;
  static constexpr Duration kProbeInterval = Duration::Millis(100);

  // A read was answered after `latency`, or has waited for so long when it was hedged. One that is
  // out of the ordinary at most about doubles the estimate, so that it takes several of them.
  void OnLatency(Duration latency);
  // Exponentially weighted, 1/8 for the last one.
  Duration estimate() const { return estimate_; }
  bool known() const { return latencies_ >= kLatenciesMin; }
  bool avoided() const { return avoided_; }
  // It is avoided, and a read begins that could have asked it first or later. True: send it there
  // too, for its latency alone.
  bool TakeProbe(MonotonicTime now);

 private:
  friend uint32_t JudgeSpeeds(std::span<ReplicaSpeed* const> replicas);

  Duration estimate_;
  uint32_t latencies_ = 0;
  bool avoided_ = false;
  uint32_t reads_since_probe_ = 0;
  MonotonicTime next_probe_;
};

// Compares all replicas of a client with each other. Returns how many came to be avoided.
uint32_t JudgeSpeeds(std::span<ReplicaSpeed* const> replicas);

}  // namespace tailcast::cache
