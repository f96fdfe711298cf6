// How the tcp doors get RDMA for whom they let in: the seam between them and the verbs doors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tailcast/base/callback.h"
#include "tailcast/base/time.h"
#include "tailcast/fabric/message_service.h"

namespace tailcast::fabric {

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
