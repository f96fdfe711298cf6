// What the shm driver's two ends say to each other over the unix socket: one packet each way, then
// silence until one of them closes. Drawn in docs/formats/fabric_shm.md. Same host, same byte
// order.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tailcast/fabric/fabric.h"
#include "tailcast/fabric/region_memory.h"

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
  kNoMessages = 5,   // it serves no message channels
};

// In a hello's flags, on shm as on tcp: the connection is a message channel (channel.h), not one of
// reads. On shm the packet then carries one descriptor: the channel's memory (message_ring.h).
inline constexpr uint32_t kHelloMessages = 1;

struct ShmHello {
  uint64_t magic;
  uint32_t version;
  uint32_t flags;                            // kHelloMessages or 0
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
// descriptors: the control page's, then those of the regions in order. A message channel is told of
// no region, and handed none.
struct ShmReply {
  uint64_t magic;
  uint32_t version;
  HelloStatus status;
  ExporterIncarnation incarnation;
  uint32_t region_count;
  uint32_t reserved;
};
static_assert(sizeof(ShmReply) == 32);

// The address of the unix socket `path` for bind and connect, also when it is longer than the 107
// bytes that the kernel takes: then it goes through a descriptor of its directory, kept in
// `directory` while the address is in use.
Status UnixAddress(const std::string& path, Descriptor* directory, sockaddr_un* address);
// A socket that is connected to the server at `path`. Unavailable: nobody listens there.
Result<Descriptor> ConnectUnix(const std::string& path);

// As recvmsg without waiting, which also takes the packet's descriptors into `fds`. One that does
// not fit is cut: `*cut`, if given, says so.
ssize_t ReceivePacket(int fd, std::span<char> packet, std::vector<Descriptor>* fds,
                      bool* cut = nullptr);

const char* HelloStatusText(HelloStatus status);

}  // namespace tailcast::fabric
