// A token bucket: the consumer's passive rate limit (paper §2.4), so that a producer that comes
// back with a large backlog does not make all its consumers pull it from the cache at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tailcast/base/time.h"

namespace tailcast::consumer {

class RateLimiter {
 public:
  // 0 bytes per second: no limit. The bucket begins full.
  RateLimiter(int64_t bytes_per_s, int64_t burst_bytes)
      : bytes_per_s_(bytes_per_s),
        burst_bytes_(std::max<int64_t>(burst_bytes, 1)),
        tokens_(static_cast<double>(burst_bytes_)) {}

  // Bytes that may be read now.
  int64_t Available(MonotonicTime now) {
    if (bytes_per_s_ == 0) return INT64_MAX;
    if (!started_) last_ = now;
    started_ = true;
    if (now > last_) {
      tokens_ += (now - last_).seconds() * static_cast<double>(bytes_per_s_);
      tokens_ = std::min(tokens_, static_cast<double>(burst_bytes_));
      last_ = now;
    }
    return std::max<int64_t>(0, static_cast<int64_t>(tokens_));
  }
  // Bytes that were read; may be more than were available (whole chunks), which is then owed.
  void Spend(int64_t bytes) { tokens_ -= static_cast<double>(bytes); }
  // How long until `bytes` (at most the burst) are available.
  Duration Wait(int64_t bytes) const {
    if (bytes_per_s_ == 0) return Duration();
    const double missing = static_cast<double>(std::min(bytes, burst_bytes_)) - tokens_;
    if (missing <= 0) return Duration();
    return Duration::Micros(
        static_cast<int64_t>(missing * 1e6 / static_cast<double>(bytes_per_s_)) + 1);
  }

 private:
  const int64_t bytes_per_s_;
  const int64_t burst_bytes_;
  double tokens_;
  MonotonicTime last_;
  bool started_ = false;
};

}  // namespace tailcast::consumer
