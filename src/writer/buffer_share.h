// How much the operations of one layer may hold in a writer's memory, together and each. Bytes
// count as soon as their sender may send them, until the layer has acknowledged them: what was
// promised cannot be taken back, and who is behind uses all of it. A window is a third of what the
// others leave, so that two parts of it leave another third; so n operations that are behind come
// to 1/(2n+1) each, whoever began (a switch's memory is shared between its ports by such a rule,
// "dynamic thresholds"), and one that comes always finds room.
//
//   capacity 48 MiB, one operation   -> a window of 16 MiB (most) of each part
//   another one comes                -> 5 MiB, and with each progress of both they come nearer to 9.6
//   200 begin at once                -> 16, 5, 2 MiB ..., the others the least: 256 KiB
//
// Bounds: the capacity, and the least window of each part of each operation. What was promised to
// an operation that was sent nothing for two seconds does not count, so that quiet ones take
// nothing from the others; so it is more for a moment when many of them begin again at once.
//
// Threads: one loop. Internal to the module.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tailcast/base/metrics.h"
#include "tailcast/base/time.h"
#include "tailcast/stream/names.h"

namespace tailcast::writer {

class BufferShare {
 public:
  // `held` tells what is held; it outlives the share.
  BufferShare(int64_t capacity_bytes, Gauge& held) : capacity_(capacity_bytes), held_(held) {}
  BufferShare(const BufferShare&) = delete;
  BufferShare& operator=(const BufferShare&) = delete;

  class Hold;
  // Bytes of each part that the operation may be sent now beyond what is written.
  int64_t Window(MonotonicTime now, int64_t least, int64_t most, const Hold& own) {
    Advance(now);
    const int64_t others = held() + promised() - own.bytes();
    return std::max(least, std::min(most, (capacity_ - others) / (stream::kParts + 1)));
  }
  int64_t held() const { return held_.value(); }
  // May be sent, and did not come so far, of operations that are sent something.
  int64_t promised() const { return promised_[0] + promised_[1]; }

  // What one operation holds and may be sent, until it goes. The share outlives it.
  class Hold {
   public:
    explicit Hold(BufferShare& share) : share_(share) {}
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() { Set(0, 0); }
    void Set(int64_t held, int64_t promised) {
      share_.held_.Add(held - held_);
      if (int64_t* counted = share_.Of(second_)) *counted += promised - promised_;
      held_ = held;
      promised_ = promised;
    }
    // Something was sent to it.
    void OnActive(MonotonicTime now) {
      share_.Advance(now);
      if (int64_t* counted = share_.Of(second_)) *counted -= promised_;
      second_ = share_.second_;
      *share_.Of(second_) += promised_;
    }
    int64_t held() const { return held_; }
    // Of the share.
    int64_t bytes() const { return held_ + (share_.Of(second_) != nullptr ? promised_ : 0); }

   private:
    BufferShare& share_;
    int64_t held_ = 0, promised_ = 0;
    int64_t second_ = -1;  // in which it was active last
  };

 private:
  void Advance(MonotonicTime now) {
    const int64_t second = now.micros() / 1'000'000;
    if (second <= second_) return;
    promised_[1] = second == second_ + 1 ? promised_[0] : 0;
    promised_[0] = 0;
    second_ = second;
  }
  // Null: too long ago to count.
  int64_t* Of(int64_t second) {
    return second < 0 || second < second_ - 1 ? nullptr : &promised_[second_ - second];
  }

  const int64_t capacity_;
  Gauge& held_;
  int64_t second_ = 0;            // of the loop's time
  int64_t promised_[2] = {0, 0};  // to those that were active in it, and in the one before
};

}  // namespace tailcast::writer
