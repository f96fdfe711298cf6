// The receive buffers that the channels of one server share: how many there are, and which of them
// are lost. No I/O.
//
// Where devices can say "receiver not ready", and senders repeat what was not taken, a queue for
// all may hold less than all may send: kBase, and kShare for each channel that there is. When few
// are left the device says so (`limit`), and who has taken packets gives the buffers back.
//
// A buffer comes back with the packet in it. Some never do: a queue pair ended while its device
// filled one (rxe says nothing of it), or its completion queue was full. Nobody says which, so it
// is told by time: one is lost that has not come back, though another did that was posted later,
// and `patience` has passed since. New ones take its place, up to kLostMost; after that the pool is
// worn, and serves the channels that it has until all are gone.
//
// A client has credits, and who sends more loses its queue pair as soon as that is seen. Before it
// is, it can hold as many buffers as its completion queue has entries.
#pragma once

#include <cstdint>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/fabric/verbs_messages_core.h"

namespace tailcast::fabric {

// Not thread-safe.
class VerbsPoolCore {
 public:
  static constexpr uint32_t kBase = 2 * kVerbsServerReceives;
  static constexpr uint32_t kShare = 8;
  static constexpr uint32_t kLostMost = 256;
  // Of buffers that are made at a time.
  static constexpr uint32_t kSlab = 64;
  // What a queue for so many channels may come to hold.
  static constexpr uint32_t Most(uint32_t channels) {
    return (kBase + kShare * channels + kLostMost + kSlab - 1) / kSlab * kSlab;
  }

  // `most`: buffers that the queue takes. `patience`: in which a buffer that holds a packet is
  // taken, whatever else there is to do.
  VerbsPoolCore(uint32_t most, Duration patience) : most_(most), patience_(patience) {}

  // A channel comes. False: not to this pool.
  bool Attach(MonotonicTime now);
  void Detach(MonotonicTime now);
  uint32_t attached() const { return attached_; }

  // So many buffers are to be made and posted.
  uint32_t missing() const;
  uint32_t buffers() const { return static_cast<uint32_t>(posted_.size()); }
  // A new one: its number.
  uint32_t Add();
  // It is posted: before the device hears of it.
  void OnPosted(uint32_t buffer) { posted_[buffer] = ++posts_; }
  // It came back. False: it was not posted, so the device is wrong.
  bool OnArrived(uint32_t buffer);

  // Fewer than so many posted ones: give back what was taken, now.
  uint32_t limit() const { return (kBase + kShare * attached_) / 4; }
  // Finds out what is lost. Each call of the others that take the time does so, too.
  void Look(MonotonicTime now);
  uint32_t lost() const { return lost_; }
  bool worn() const { return lost_ > kLostMost; }

 private:
  const uint32_t most_;
  const Duration patience_;
  uint32_t attached_ = 0;
  uint32_t lost_ = 0;
  uint64_t posts_ = 0;
  uint64_t newest_ = 0;           // of the posts that came back
  std::vector<uint64_t> posted_;  // of each buffer the last post; 0: it is not posted
  // What was newest at a time long enough ago.
  uint64_t mark_ = 0;
  MonotonicTime marked_;
};

}  // namespace tailcast::fabric
