// How late the far end of an operation is, in time: what `tailcast status` shows of a hop. Decides
// nothing.
//
//   bytes known here    100 @ t0       250 @ t5                 400 @ t9
//   confirmed                                     100 @ t7                250 @ t12
//   lag()                0 . . . . growing from t0 until t7, then from t5 until t12, then from t9
//   delay()                                       t7 - t0                 t12 - t5
//
// Core; lengths are those of both parts together. Marks are bounded: when there are too many,
// neighbours become one that is as old as the older.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tailcast/base/time.h"

namespace tailcast::reader {

class LagClock {
 public:
  static constexpr size_t kMarksMax = 128;

  // The source has so many bytes. Less than before is ignored.
  void OnSource(MonotonicTime now, int64_t bytes) {
    if (bytes <= known_) return;
    known_ = bytes;
    if (bytes <= confirmed_) return;
    if (marks_.size() == kMarksMax) {
      for (size_t i = 0; i < kMarksMax / 2; ++i)
        marks_[i] = {marks_[2 * i + 1].bytes, marks_[2 * i].at};
      marks_.resize(kMarksMax / 2);
    }
    marks_.push_back({bytes, now});
  }
  // The far end has so many. True: delay() is a new one.
  bool OnWritten(MonotonicTime now, int64_t bytes) {
    if (bytes <= confirmed_) return false;
    confirmed_ = bytes;
    const auto open = std::find_if(marks_.begin(), marks_.end(),
                                   [&](const Mark& mark) { return mark.bytes > bytes; });
    if (open == marks_.begin()) return false;
    delay_ = now - (open - 1)->at;
    marks_.erase(marks_.begin(), open);
    return true;
  }

  // How long ago the first byte that is not confirmed became known; 0: there is none.
  Duration lag(MonotonicTime now) const {
    return marks_.empty() ? Duration() : now - marks_.front().at;
  }
  // From knowing to the confirmation, of the newest bytes that were confirmed.
  Duration delay() const { return delay_; }

 private:
  struct Mark {
    int64_t bytes;
    MonotonicTime at;
  };
  std::vector<Mark> marks_;
  int64_t known_ = 0, confirmed_ = 0;
  Duration delay_;
};

}  // namespace tailcast::reader
