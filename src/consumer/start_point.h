// Where in a shard a consumer begins.
#pragma once

#include <cstdint>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/stream/position.h"

namespace tailcast::consumer {

// Beginning: the oldest message that the cell keeps. End: behind the newest one. Time: the first
// message with that producer's time or a later one. Position: exactly there, waiting for it if the
// cell has not got so far.
struct StartPoint {
  enum class Kind : uint8_t { kBeginning, kEnd, kTime, kPosition };
  Kind kind = Kind::kBeginning;
  WallTime time;
  stream::Position position;

  static StartPoint Beginning() { return {}; }
  static StartPoint End() { return {.kind = Kind::kEnd}; }
  static StartPoint At(WallTime time) { return {.kind = Kind::kTime, .time = time}; }
  static StartPoint At(const stream::Position& position) {
    return {.kind = Kind::kPosition, .position = position};
  }
  // "beginning", "end", "time:<microseconds since 1970, or 2013-01-31T12:00:00Z>", or a position.
  static Result<StartPoint> Parse(std::string_view text);
};

}  // namespace tailcast::consumer
