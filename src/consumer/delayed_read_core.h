// Algorithm 1 of the paper: whether a consumer should read new bytes from the primary layer
// although the cache usually is first and cheaper. It waits for the cache as long as no byte gets
// later than `delay_max` thereby.
//
//   primary  100 ......... 200 ........................
//   cache    100 ............................... 200
//                           |<-- at most 1 s -->|   else: read from the primary, and begin anew
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "tailcast/base/time.h"

namespace tailcast::consumer {

enum class DelayedRead : uint8_t {
  kCaughtUp,    // the cache has all that the primary had when last seen
  kMayCatchUp,  // it has not, but no byte is late yet
  kDelayed,     // it is late: read up to the primary's length from the primary
};

class DelayedReadCore {
 public:
  explicit DelayedReadCore(Duration delay_max) : delay_max_(delay_max) {}

  // One poll's sizes, in bytes. Sizes of the primary do not fall.
  DelayedRead OnSizes(MonotonicTime now, int64_t cache_size, int64_t primary_size) {
    // The paper pushes at every poll. A size that is in the queue already would be popped with its
    // twin and never be the front before it, so it is left out; and so is what a full queue can't
    // take, because only the front decides.
    if ((history_.empty() || history_.back().size != primary_size) &&
        history_.size() < kHistoryMax) {
      history_.push_back({now, primary_size});
    }
    while (!history_.empty() && history_.front().size <= cache_size) history_.pop_front();
    if (history_.empty()) return DelayedRead::kCaughtUp;
    if (now > history_.front().time + delay_max_) {
      history_.clear();
      return DelayedRead::kDelayed;
    }
    return DelayedRead::kMayCatchUp;
  }
  // The cache's size is not known any more: nothing is waited for.
  void Clear() { history_.clear(); }
  // When OnSizes with the same sizes would first give kDelayed; Max if there is nothing to wait
  // for.
  MonotonicTime Deadline() const {
    if (history_.empty()) return MonotonicTime::Max();
    return history_.front().time + delay_max_ + Duration::Micros(1);
  }
  size_t history_size() const { return history_.size(); }

  static constexpr size_t kHistoryMax = 4096;

 private:
  struct Entry {
    MonotonicTime time;
    int64_t size;
  };
  const Duration delay_max_;
  std::deque<Entry> history_;  // the paper's cfsSizeRec
};

}  // namespace tailcast::consumer
