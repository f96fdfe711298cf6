// Log lines that a peer can cause as often as it likes: ten at once and one a second after that are
// written, each with how many were left out before it. Counters count them all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "tailcast/base/time.h"

namespace tailcast::fabric {

class LogLimit {
 public:
  // What to end the line with (nothing, or how many were left out), if one may be written now.
  std::optional<std::string> Admit(MonotonicTime now) {
    const int64_t earned = (now - since_).millis() / 1000;
    if (earned > 0) {
      tokens_ = std::min(kTokensMax, tokens_ + earned);
      since_ = now;
    }
    if (tokens_ == 0) {
      ++left_out_;
      return std::nullopt;
    }
    --tokens_;
    const uint64_t left_out = std::exchange(left_out_, 0);
    if (left_out == 0) return std::string();
    return " (and " + std::to_string(left_out) + " more like it before)";
  }

 private:
  static constexpr int64_t kTokensMax = 10;
  int64_t tokens_ = kTokensMax;
  uint64_t left_out_ = 0;
  MonotonicTime since_;
};

}  // namespace tailcast::fabric
