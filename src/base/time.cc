#include "tailcast/base/time.h"

#include <ctime>

namespace tailcast {
namespace {
int64_t ReadMicros(clockid_t clock) {
  timespec ts;
  clock_gettime(clock, &ts);
  return static_cast<int64_t>(ts.tv_sec) * 1000000 + ts.tv_nsec / 1000;
}
}  // namespace

MonotonicTime ReadMonotonicClock() {
  return MonotonicTime::FromMicros(ReadMicros(CLOCK_MONOTONIC));
}
WallTime ReadWallClock() { return WallTime::FromMicros(ReadMicros(CLOCK_REALTIME)); }

}  // namespace tailcast
