// Where in a shard a consumer ends.
//
// A core: no clock, no I/O.
#pragma once

#include <cstdint>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/consumer/message.h"
#include "tailcast/stream/position.h"

namespace tailcast::consumer {

// Before which message it ends: the first one with that producer's time or a later one, the one of
// that number, or the one at that position.
struct EndPoint {
  enum class Kind : uint8_t { kNever, kTime, kNumber, kPosition };
  Kind kind = Kind::kNever;
  WallTime time;
  int64_t number = 0;
  stream::Position position;

  static EndPoint Never() { return {}; }
  static EndPoint Before(WallTime time) { return {.kind = Kind::kTime, .time = time}; }
  static EndPoint BeforeNumber(int64_t number) { return {.kind = Kind::kNumber, .number = number}; }
  static EndPoint Before(const stream::Position& position) {
    return {.kind = Kind::kPosition, .position = position};
  }
  // "time:T", "number:N" or a position, as StartPoint::Parse. InvalidArgument also for "beginning"
  // and "end", which are other ends for each shard.
  static Result<EndPoint> Parse(std::string_view text, WallTime now);

  // Whether the shard has ended before this message.
  bool IsBefore(const Message& message) const;
  // Whether nothing comes any more where message `number` would be the next one, and the producer's
  // side had published everything until `as_of` (0: not known).
  bool IsReached(int64_t number, WallTime as_of) const;
};

}  // namespace tailcast::consumer
