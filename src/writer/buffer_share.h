// How much the operations of one layer may hold in a writer's memory, together and each. Bytes
// count from when they came until the layer has acknowledged them. A window is what is free, so one
// operation alone may have half of everything, n that are behind a share of 1/(n+1) each, and one
// that comes always finds room (a switch's memory is shared between its ports by the same rule,
// "dynamic thresholds").
//
//   capacity 32 MiB, one operation holds 12 MiB  ->  its next window, and everybody's: 16 MiB (most)
//   four hold 6.4 MiB each                       ->  6.4 MiB: they stay there
//   64 MiB are held, given earlier               ->  the least: 256 KiB
//
// Bounds: what is held grows beyond the capacity by the least window of each operation, and for a
// moment when operations that had been quiet, and were given much, all begin at once.
//
// Threads: one loop. Internal to the module.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tailcast/base/metrics.h"

namespace tailcast::writer {

class BufferShare {
 public:
  // `held` tells what is held; it outlives the share.
  BufferShare(int64_t capacity_bytes, Gauge& held) : capacity_(capacity_bytes), held_(held) {}
  BufferShare(const BufferShare&) = delete;
  BufferShare& operator=(const BufferShare&) = delete;

  // Bytes of each part that an operation may be sent now beyond what is written.
  int64_t Window(int64_t least, int64_t most) const {
    return std::max(least, std::min(most, capacity_ - held_.value()));
  }
  int64_t held() const { return held_.value(); }

  // What one operation holds, until it goes. The share outlives it.
  class Hold {
   public:
    explicit Hold(BufferShare& share) : share_(share) {}
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() { Set(0); }
    void Set(int64_t bytes) {
      share_.held_.Add(bytes - bytes_);
      bytes_ = bytes;
    }

   private:
    BufferShare& share_;
    int64_t bytes_ = 0;
  };

 private:
  const int64_t capacity_;
  Gauge& held_;
};

}  // namespace tailcast::writer
