// One direction of a link as the world has it: bytes leave at the link's rate, arrive a fixed delay
// later, in order, and only so many are on the way.
//
// Core: time is an argument. Payloads are opaque to it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "tailcast/base/time.h"

namespace tailcast::link {

struct LinkShape {
  Duration delay;                // one way
  int64_t bytes_per_second = 0;  // 0: no limit
};

// What all connections of one direction share: its rate.
class LinkDirection {
 public:
  explicit LinkDirection(LinkShape shape) : shape_(shape) {}
  const LinkShape& shape() const { return shape_; }

  // When `bytes` that are offered now have arrived at the other end.
  MonotonicTime Arrival(MonotonicTime now, size_t bytes) {
    MonotonicTime left = now;
    if (shape_.bytes_per_second > 0) {
      busy_until_ =
          std::max(now, busy_until_) +
          Duration::Micros(static_cast<int64_t>(bytes) * 1000000 / shape_.bytes_per_second);
      left = busy_until_;
    }
    return left + shape_.delay;
  }
  // Room for what a full link carries during one delay, and then some.
  size_t bytes_in_flight_max() const {
    const int64_t rate = shape_.bytes_per_second > 0 ? shape_.bytes_per_second : 1250000000;
    return static_cast<size_t>(rate / 1000000 * shape_.delay.micros()) + (1 << 20);
  }

 private:
  const LinkShape shape_;
  MonotonicTime busy_until_;
};

// The bytes of one connection in one direction that are on their way.
class DelayLine {
 public:
  explicit DelayLine(LinkDirection& direction) : direction_(direction) {}

  bool full() const { return bytes_ >= direction_.bytes_in_flight_max(); }
  bool empty() const { return pieces_.empty(); }
  size_t bytes() const { return bytes_; }

  // Takes bytes in at `now`. Callers stop reading when full().
  void Push(MonotonicTime now, std::string bytes) {
    const MonotonicTime arrival = direction_.Arrival(now, bytes.size());
    bytes_ += bytes.size();
    pieces_.push_back({arrival, std::move(bytes), 0});
  }
  // When the next bytes arrive; Max if none are on the way.
  MonotonicTime NextArrival() const {
    return pieces_.empty() ? MonotonicTime::Max() : pieces_.front().arrival;
  }
  // Bytes that have arrived at `now`, in order; "" if none. Take them with Pop.
  std::string_view Front(MonotonicTime now) const {
    if (pieces_.empty() || pieces_.front().arrival > now) return {};
    return std::string_view(pieces_.front().bytes).substr(pieces_.front().taken);
  }
  // `count` bytes of Front were passed on.
  void Pop(size_t count) {
    Piece& piece = pieces_.front();
    piece.taken += count;
    bytes_ -= count;
    if (piece.taken == piece.bytes.size()) pieces_.pop_front();
  }

 private:
  struct Piece {
    MonotonicTime arrival;
    std::string bytes;
    size_t taken;
  };
  LinkDirection& direction_;
  std::deque<Piece> pieces_;
  size_t bytes_ = 0;
};

}  // namespace tailcast::link
