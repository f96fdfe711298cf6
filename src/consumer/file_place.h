// A place between two messages of a message file: where the tail begins to read.
#pragma once

#include <cstdint>
#include <optional>

#include "tailcast/stream/metadata.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/position.h"

namespace tailcast::consumer {

struct FilePlace {
  stream::Stem stem;
  // Bytes of each part before the place.
  int64_t at[stream::kParts] = {0, 0};
  // The user's position that the place was computed from, until an index record confirms that a
  // message begins there.
  std::optional<stream::Position> unverified;
  // What is known of the pair already: hints.
  stream::PairMetadata metadata;
  // The first file behind it that the cell's listing had when the place was found in it.
  std::optional<stream::Stem> later;
};

}  // namespace tailcast::consumer
