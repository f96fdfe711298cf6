// How the tcp doors get RDMA for whom they let in: the seam between them and the verbs doors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tailcast/base/callback.h"
#include "tailcast/base/time.h"
#include "tailcast/fabric/message_service.h"

namespace tailcast::fabric {

// The device's queue pairs as far as one exporter may have them: its readers' and its channels'
// together. Any thread.
class VerbsQueuePairs {
 public:
  // Of `device` that it has, these are left to others.
  static constexpr int kSpared = 16;
  // False: there is none left.
  bool Take(int device) {
    if (taken_.fetch_add(1, std::memory_order_relaxed) < device - kSpared) return true;
    GiveBack(1);
    return false;
  }
  void GiveBack(size_t count) {
    taken_.fetch_sub(static_cast<int64_t>(count), std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> taken_{0};
};

// Reactor thread.
class VerbsOffers {
 public:
  struct Made {
    std::string body;     // of the frame: VerbsOfferHead and the regions' keys
    size_t regions = 0;   // of a channel 1; 0: no offer, and the body says why
    uint64_t ticket = 0;  // 0 with it
  };
  // An offer of nothing.
  static Made None(const std::string& why);

  // What lets one queue pair in, once, for as long as the ticket is not forgotten.
  virtual Made Offer() = 0;
  // The reader is gone: ends its queue pair.
  virtual void Forget(uint64_t ticket) = 0;

 protected:
  ~VerbsOffers() = default;
};

// The same of message channels. The tcp message door's reactor.
class VerbsChannelOffers {
 public:
  static VerbsOffers::Made None(const std::string& why);

  // `broke` is called, once at most and not inside a call, when the channel's queue pair ended:
  // with what the client did wrong, or "".
  virtual VerbsOffers::Made Offer(MessageService::Life life,
                                  Callback<void(const std::string& why)> broke) = 0;
  // As VerbsOffers.
  virtual void Forget(uint64_t ticket) = 0;
  // Since when the client has not ended what it began, or takes nothing; Max: it is well.
  virtual MonotonicTime StuckSince(uint64_t ticket) = 0;

 protected:
  ~VerbsChannelOffers() = default;
};

}  // namespace tailcast::fabric
