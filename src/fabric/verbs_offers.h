// How the tcp door gets RDMA for the readers it let in: the seam between it and the verbs door.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tailcast::fabric {

// Reactor thread.
class VerbsOffers {
 public:
  struct Made {
    std::string body;     // of the frame: VerbsOfferHead and the regions' keys
    size_t regions = 0;   // 0: no offer, and the body says why
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

}  // namespace tailcast::fabric
