// What the shm driver's two ends say to each other over the unix socket: one packet each way, then
// silence until one of them closes. Drawn in docs/formats/fabric_shm.md. Same host, same byte
// order.
#pragma once

#include <cstdint>

#include "tailcast/fabric/fabric.h"

namespace tailcast::fabric {

inline constexpr uint64_t kShmMagic = 0x4d48534241464354;  // "TCFABSHM" in memory
inline constexpr uint32_t kShmVersion = 1;

// Why a server does not hand out its memory; same values as on tcp.
enum class HelloStatus : uint32_t {
  kWelcome = 0,
  kVersion = 1,      // the server speaks another version: the one in its reply
  kGoingAway = 2,    // invalidated
  kIncarnation = 3,  // another server than the one asked for
  kTooMany = 4,      // connections
};

struct ShmHello {
  uint64_t magic;
  uint32_t version;
  uint32_t flags;                            // 0
  ExporterIncarnation expected_incarnation;  // kAny is 0
  uint32_t credential_bytes;                 // 0; room for authentication: so many bytes follow
  uint32_t reserved;
};
static_assert(sizeof(ShmHello) == 32);

struct ShmRegion {
  uint64_t size;
  Generation generation;
};

// Followed by region_count times ShmRegion. With kWelcome the packet carries 1 + region_count
// descriptors: the control page's, then those of the regions in order.
struct ShmReply {
  uint64_t magic;
  uint32_t version;
  HelloStatus status;
  ExporterIncarnation incarnation;
  uint32_t region_count;
  uint32_t reserved;
};
static_assert(sizeof(ShmReply) == 32);

const char* HelloStatusText(HelloStatus status);

}  // namespace tailcast::fabric
