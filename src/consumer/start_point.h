// Where in a shard a consumer begins.
#pragma once

#include <cstdint>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/stream/position.h"

namespace tailcast::consumer {

// Beginning: the oldest message that the cell keeps. End: behind the newest one. Time: the first
// message with that producer's time or a later one. Number: that message of each shard, from 0.
// Position: exactly there. Both are waited for if the cell has not got so far.
struct StartPoint {
  enum class Kind : uint8_t { kBeginning, kEnd, kTime, kNumber, kPosition };
  Kind kind = Kind::kBeginning;
  WallTime time;
  int64_t number = 0;
  stream::Position position;
  // kEnd: that a shard without files has none is believed only when the metadata caches say so.
  // Else it is also taken for so when they could not be asked for a while, and what comes from then
  // on is consumed.
  bool certain = false;

  static StartPoint Beginning() { return {}; }
  static StartPoint End() { return {.kind = Kind::kEnd}; }
  static StartPoint CertainEnd() { return {.kind = Kind::kEnd, .certain = true}; }
  static StartPoint At(WallTime time) { return {.kind = Kind::kTime, .time = time}; }
  static StartPoint At(const stream::Position& position) {
    return {.kind = Kind::kPosition, .position = position};
  }
  static StartPoint AtNumber(int64_t number) { return {.kind = Kind::kNumber, .number = number}; }
  // "beginning", "end", "time:T", "number:N", or a position. T: microseconds since 1970, UTC as
  // 2013-01-31T12:00:00Z or 2013-01-31T12:00:00.25Z, or a while before `now`: -90s, -5m, -2h, -1d.
  static Result<StartPoint> Parse(std::string_view text, WallTime now);
  // `now` is that of this host's clock.
  static Result<StartPoint> Parse(std::string_view text);
};

}  // namespace tailcast::consumer
