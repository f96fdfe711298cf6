// Says which values contradict each other, and where they lie, for the log: DataLoss, which is a
// bug, broken memory, or two writers of one file (docs/ops/monitoring.md). The counters have all of
// them; of many in a short time the log has some.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

// As `tailcast cache locate` takes it: 32 hexadecimal digits.
inline std::string TextOf(const Key& key) {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(key.hi),
                static_cast<unsigned long long>(key.lo));
  return text;
}

class ContradictionLog {
 public:
  static constexpr int kLinesMax = 5;  // in an interval
  static constexpr Duration kInterval = Duration::Seconds(10);

  // "DataLoss: KEY: 100 bytes of cache-1 contradict 200 bytes of cache-2; ..."
  void Say(MonotonicTime now, const Key& key, std::string_view what) {
    if (now >= next_) {
      next_ = now + kInterval;
      lines_ = 0;
    }
    if (++lines_ > kLinesMax) {
      ++left_out_;
      return;
    }
    const std::string more =
        left_out_ > 0 ? " (" + std::to_string(std::exchange(left_out_, 0)) + " more before)" : "";
    log_.Error("DataLoss: ", TextOf(key), ": ", what, more);
  }

 private:
  const Logger log_{"cache"};
  MonotonicTime next_;
  int lines_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace tailcast::cache
