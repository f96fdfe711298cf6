// Where the bytes of a message file come from. An open file has a list of sources in the order in
// which they are preferred: today the cell's cache, then the cell's primary layer
// (cell_sources.h). TailCore (tail_core.h) chooses among them by what SourceLengths says, and knows
// nothing else of them; another source is one more class here and one more entry in the list that
// ConsumerAgent makes.
//
// Bytes of no source are believed: what fails a check is asked of the next one in the list, and the
// last one's failure is the data's (DataLoss).
//
// Threads: the loop's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tailcast/base/callback.h"
#include "tailcast/consumer/counters.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/range_reader.h"

namespace tailcast::consumer {

// Of one part of the file, bytes.
struct SourceLengths {
  // Bytes below it are there, as far as anybody has said: a hint.
  int64_t known = 0;
  // Bytes below it may be asked for at once; for the rest an earlier source is waited for.
  // allowed <= known.
  int64_t allowed = 0;
  // Bytes below it, and beyond `known`, may be asked for although nobody said that they are there.
  int64_t perhaps = 0;
};

inline constexpr size_t kSourcesMax = 4;

class Source {
 public:
  virtual ~Source() = default;

  // For messages to people: "the cell's cache". A literal.
  virtual std::string_view name() const = 0;
  virtual SourceLengths lengths(stream::Part part) const = 0;
  // What a fetch from here is counted as if the primary layer answers any of it.
  virtual int64_t Counters::*fallback() const = 0;
  // Reads as stream::RangeReader::Read does: the answer at once, or nullopt and the answer by
  // `done` on a later turn. The request's two limits are bounds, which the source lowers to what
  // it knows to be there. Fewer bytes than asked for are a result. `done` is dropped when the
  // source is destroyed.
  virtual std::optional<stream::RangeResult> Read(stream::Part part, stream::RangeRequest request,
                                                  Callback<void(stream::RangeResult)> done) = 0;
};

}  // namespace tailcast::consumer
