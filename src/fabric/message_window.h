// A channel's credits, as its client counts them (spec Channel: credits): one for each message,
// which comes back with the answer and not before, so that rings and buffers of either end are
// bounded.
#pragma once

#include <cstdint>
#include <deque>

#include "tailcast/fabric/channel.h"

namespace tailcast::fabric {

// What a message of `bytes` takes of a ring, its header included.
inline constexpr uint64_t RecordBytes(uint64_t bytes) { return 8 + ((bytes + 7) & ~uint64_t{7}); }

class MessageWindow {
 public:
  bool HasRoomFor(uint64_t bytes) const {
    return sent_.size() < kMessageWindow && bytes_ + RecordBytes(bytes) <= kMessageWindowBytes;
  }
  void Add(uint64_t token, uint64_t bytes) {
    sent_.push_back({token, RecordBytes(bytes)});
    bytes_ += RecordBytes(bytes);
  }
  bool empty() const { return sent_.empty(); }
  // The oldest one was answered: its token.
  uint64_t Take() {
    const Sent oldest = sent_.front();
    sent_.pop_front();
    bytes_ -= oldest.bytes;
    return oldest.token;
  }

 private:
  struct Sent {
    uint64_t token, bytes;
  };
  std::deque<Sent> sent_;
  uint64_t bytes_ = 0;
};

}  // namespace tailcast::fabric
