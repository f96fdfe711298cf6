// Points in time and spans of it. Monotonic and wall time are different types, so that a deadline
// is never computed from a clock that can be set. Both count microseconds; no core reads a clock:
// time comes in as an argument or from an EventLoop.
#pragma once

#include <compare>
#include <cstdint>

namespace tailcast {

class Duration {
 public:
  constexpr Duration() = default;
  static constexpr Duration Micros(int64_t us) { return Duration(us); }
  static constexpr Duration Millis(int64_t ms) { return Duration(ms * 1000); }
  static constexpr Duration Seconds(int64_t s) { return Duration(s * 1000000); }
  static constexpr Duration Infinite() { return Duration(INT64_MAX / 4); }
  constexpr int64_t micros() const { return us_; }
  constexpr int64_t millis() const { return us_ / 1000; }
  constexpr double seconds() const { return static_cast<double>(us_) / 1e6; }
  constexpr auto operator<=>(const Duration&) const = default;
  constexpr Duration operator+(Duration d) const { return Duration(us_ + d.us_); }
  constexpr Duration operator-(Duration d) const { return Duration(us_ - d.us_); }
  constexpr Duration operator*(int64_t k) const { return Duration(us_ * k); }
  constexpr Duration operator/(int64_t k) const { return Duration(us_ / k); }

 private:
  constexpr explicit Duration(int64_t us) : us_(us) {}
  int64_t us_ = 0;
};

namespace internal {
template <typename Tag>
class TimePoint {
 public:
  constexpr TimePoint() = default;
  static constexpr TimePoint FromMicros(int64_t us) {
    TimePoint t;
    t.us_ = us;
    return t;
  }
  static constexpr TimePoint Max() { return FromMicros(INT64_MAX / 2); }
  constexpr int64_t micros() const { return us_; }
  constexpr auto operator<=>(const TimePoint&) const = default;
  constexpr TimePoint operator+(Duration d) const { return FromMicros(us_ + d.micros()); }
  constexpr TimePoint operator-(Duration d) const { return FromMicros(us_ - d.micros()); }
  constexpr Duration operator-(TimePoint t) const { return Duration::Micros(us_ - t.us_); }

 private:
  int64_t us_ = 0;
};
}  // namespace internal

// For deadlines and intervals. Comparable within one host's boot only.
using MonotonicTime = internal::TimePoint<struct MonotonicTag>;
// Microseconds since the Unix epoch. For names, records and what people read.
using WallTime = internal::TimePoint<struct WallTag>;

// The machine's clocks, for drivers. Cores take time as an argument.
MonotonicTime ReadMonotonicClock();
WallTime ReadWallClock();

}  // namespace tailcast
