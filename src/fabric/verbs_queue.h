// The seam between the verbs driver's decisions and libibverbs: one reader's send queue, on which
// RDMA READs are posted, and its completion queue. verbs_device.h has the real one, tests have one
// that does what they want.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tailcast::fabric {

// Instead of a region's number: the control page, from its heartbeat on (verbs_wire.h).
inline constexpr uint32_t kVerbsControl = ~uint32_t{0};

// One RDMA READ.
struct VerbsWork {
  uint64_t id = 0;      // of its completion; each work's is one more than that before
  uint32_t region = 0;  // or kVerbsControl
  uint32_t length = 0;  // bytes
  uint64_t offset = 0;  // bytes from the region's start
  uint32_t memory = 0;  // which of the reader's registered memories they go to
  uint64_t memory_offset = 0;
  bool signaled = false;  // completes by itself; the others with the next one that does
};

enum class VerbsStatus : uint8_t {
  kOk,
  kRemoteAccess,  // the key or the range is not the server's (any more)
  kBroken,        // flushed, or whatever else ended the queue pair
};
struct VerbsDone {
  uint64_t id = 0;
  VerbsStatus status = VerbsStatus::kOk;
};

// One thread.
class VerbsQueue {
 public:
  virtual ~VerbsQueue() = default;
  // With one doorbell. False: the queue is broken, and what was posted of it is as good as lost.
  virtual bool Post(std::span<const VerbsWork> works) = 0;
  // In the order of posting. Fewer than asked for: there are no more now.
  virtual size_t Poll(std::span<VerbsDone> done) = 0;
  // The next completion that comes makes an event.
  virtual void Arm() = 0;
};

}  // namespace tailcast::fabric
