// Whether a producer writes in bulk: as fast as it gets, so that how late a message is depends on
// how far its readers are behind, and not on how soon it is flushed.
//
// It does from the first second in which kBulkBytes came until one in which less than half of that
// did (a second or longer, if nothing came meanwhile: on average). Neither how much of a processor
// it takes tells that (a paced one flushes more often, and takes more), nor whether its callers
// wait for room (on a machine that is full of its readers they are what is slow, and find some).
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>

#include "tailcast/base/time.h"

namespace tailcast::producer {

// Between the paced streams of the bench, 4 MB/s, also while one catches up with a second or two,
// and the 40 MB/s that each of 64 consumers takes over tcp on two processors. A crowd that takes
// less, as 256 do, can be outrun by who is no bulk.
inline constexpr int64_t kBulkBytes = 16 << 20;

class BulkCore {
 public:
  // So many bytes came at `now`, which never falls. Whether a second has ended: in_bulk() may have
  // become another.
  bool Add(int64_t bytes, MonotonicTime now) {
    bytes_ += bytes;
    const Duration passed = now - since_;
    if (passed < Duration::Seconds(1)) return false;
    const int64_t in_a_second = static_cast<int64_t>(static_cast<double>(bytes_) * 1e6 /
                                                     static_cast<double>(passed.micros()));
    since_ = now;
    bytes_ = 0;
    in_bulk_ = in_a_second >= (in_bulk_ ? kBulkBytes / 2 : kBulkBytes);
    return true;
  }
  bool in_bulk() const { return in_bulk_; }

 private:
  MonotonicTime since_;
  int64_t bytes_ = 0;
  bool in_bulk_ = false;
};

}  // namespace tailcast::producer
