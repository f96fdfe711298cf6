// The receive buffers that the channels of one server share, in a shared receive queue: carries out
// what VerbsPoolCore decides.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/verbs_device.h"
#include "tailcast/fabric/verbs_pool_core.h"

namespace tailcast::fabric {

// Any thread, but for construction and destruction.
class VerbsPool {
 public:
  // Whether senders wait where there is no buffer. iWARP ends the connection instead: there each
  // channel has its own.
  static bool Suits(const ibv_context* device, const ibv_device_attr& attributes);
  // For `channels` at most. `low`: few buffers are posted; as VerbsEvents::Watch. `patience`: as
  // VerbsPoolCore. `pd` outlives it.
  //   Unavailable: the device has none left.
  static Result<std::unique_ptr<VerbsPool>> Make(ibv_pd* pd, const ibv_device_attr& attributes,
                                                 uint32_t channels, Duration patience,
                                                 UniqueFunction<void()> low);
  // After all queue pairs that take of it.
  ~VerbsPool();
  VerbsPool(const VerbsPool&) = delete;
  VerbsPool& operator=(const VerbsPool&) = delete;

  ibv_srq* queue() const { return queue_.get(); }
  // A channel comes. False: it shall have buffers of its own.
  //   ResourceExhausted: no more memory can be registered.
  Result<bool> Attach();
  void Detach();
  // The packet in a buffer that came back; post it again after that. Null: it was not posted.
  const char* Take(uint64_t buffer);
  bool Post(uint64_t buffer);
  // `low` was called: makes up for what is lost, and is told again. Take what there is after it.
  void Watch();
  // No channel has it, and a new one would be whole, or smaller.
  bool spent() const;

 private:
  VerbsPool(ibv_pd* pd, uint32_t most, Duration patience) : pd_(pd), core_(most, patience) {}
  // Each under mutex_.
  Status Fill();
  bool PostLocked(uint32_t buffer);
  void Arm();
  void ShowLost();
  char* At(uint32_t buffer) {
    return slabs_[buffer / VerbsPoolCore::kSlab].memory.data() +
           size_t{buffer % VerbsPoolCore::kSlab} * kVerbsPacketBytes;
  }

  struct Slab {
    Mapping memory;
    VerbsOwned<ibv_mr> key;
  };
  ibv_pd* const pd_;
  mutable std::mutex mutex_;
  // Guarded.
  VerbsPoolCore core_;
  int64_t shown_lost_ = 0;
  std::vector<Slab> slabs_;
  VerbsOwned<ibv_srq> queue_;  // constant from Make on
};

}  // namespace tailcast::fabric
