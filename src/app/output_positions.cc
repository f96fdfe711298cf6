#include "tailcast/app/output_positions.h"

#include <algorithm>

namespace tailcast::app {

void OutputPositions::OnFrame(const stream::Position& behind, int64_t bytes) {
  framed_bytes_ += bytes;
  frames_.push_back({framed_bytes_, behind});
}

void OutputPositions::OnWritten(int64_t bytes) {
  written_bytes_ += bytes;
  while (!frames_.empty() && frames_.front().end <= written_bytes_ - unread_bytes_max_) {
    settled_[frames_.front().behind.shard] = frames_.front().behind;
    frames_.pop_front();
  }
}

std::map<int32_t, stream::Position> OutputPositions::Behind(int64_t unread_bytes) const {
  std::map<int32_t, stream::Position> behind = settled_;
  const int64_t read = written_bytes_ - std::min(unread_bytes, unread_bytes_max_);
  for (const Frame& frame : frames_) {
    if (frame.end > read) break;
    behind[frame.behind.shard] = frame.behind;
  }
  return behind;
}

}  // namespace tailcast::app
