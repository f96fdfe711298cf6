// Where a run that writes messages to an output stands in each shard: behind the last message that
// was written whole, whatever else was taken from the consumer with it (design rule "in order": a
// position that is shown to a user lies behind what was handed over, nothing more).
//
// The reader of a pipe may go away with bytes still in it. These count as not written, so the last
// `unread_bytes_max` bytes are remembered message by message.
//
// A core: no I/O, one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>

#include "tailcast/stream/position.h"

namespace tailcast::app {

class OutputPositions {
 public:
  explicit OutputPositions(int64_t unread_bytes_max) : unread_bytes_max_(unread_bytes_max) {}

  // A message was taken that begins there. Of each shard in order, before its OnFrame.
  void OnTaken(const stream::Position& begin) { settled_.try_emplace(begin.shard, begin); }
  // The next `bytes` of the output are a message; `behind` is where the next one begins.
  void OnFrame(const stream::Position& behind, int64_t bytes);
  // So many more bytes of the output were written.
  void OnWritten(int64_t bytes);

  // By shard, of those of which a message was taken; if the last `unread_bytes` of what was written
  // never reached anybody.
  std::map<int32_t, stream::Position> Behind(int64_t unread_bytes) const;

 private:
  struct Frame {
    int64_t end = 0;  // in the output
    stream::Position behind;
  };
  const int64_t unread_bytes_max_;
  int64_t framed_bytes_ = 0, written_bytes_ = 0;
  std::deque<Frame> frames_;                     // not in settled_
  std::map<int32_t, stream::Position> settled_;  // read by now, or behind everything unread
};

}  // namespace tailcast::app
