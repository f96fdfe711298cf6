// Where a consumer stands in a shard, as people and programs keep it (design rule "in order"): the
// same text means the same place in every cell, because it counts from the shard's first message
// and not within a file.
//
//   t1.9f3a00c2d1e4b576.3.16842.17251200
//   |  |                | |     data bytes of the shard before the place
//   |  |                | messages of the shard before the place: the next one has this number
//   |  |                shard
//   |  incarnation of the stream, 16 hex digits: a recreated stream's positions are other ones
//   version of the format
//
// Number and byte say the same place twice, so that a position made up or cut off is noticed.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/stream/names.h"

namespace tailcast::stream {

struct Position {
  StreamIncarnation incarnation = StreamIncarnation::kNone;
  int32_t shard = 0;
  int64_t number = 0;
  int64_t byte = 0;

  auto operator<=>(const Position&) const = default;
  std::string ToString() const;
  // InvalidArgument that quotes the text and shows an example, unless it is exactly what ToString
  // gives for some position.
  static Result<Position> Parse(std::string_view text);
};

}  // namespace tailcast::stream
