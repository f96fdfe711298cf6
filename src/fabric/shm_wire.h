// What the shm driver's two ends say to each other over the unix socket: the packets of a handshake
// (handshake.h), then silence until one of them closes. Drawn in docs/formats/fabric_shm.md. Same
// host, same byte order.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/fabric/fabric.h"
#include "tailcast/fabric/handshake.h"
#include "tailcast/fabric/region_memory.h"

namespace tailcast::fabric {

inline constexpr uint64_t kShmMagic = 0x4d48534241464354;  // "TCFABSHM" in memory

// Client to server.
struct ShmHello {
  uint64_t magic;
  Hello hello;
};
static_assert(sizeof(ShmHello) == 64);

// Client to server, after a reply with kProve. The last packet of a message channel's client
// carries one descriptor: the channel's memory (message_ring.h).
struct ShmProof {
  uint64_t magic;
  CellKey::Proof proof;
};
static_assert(sizeof(ShmProof) == 40);

struct ShmRegion {
  uint64_t size;
  Generation generation;
};

// With kProve followed by a Challenge; else by region_count times ShmRegion. With kWelcome the
// packet carries 1 + region_count descriptors: the control page's, then those of the regions in
// order. A message channel is told of no region, and handed none.
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

// As send, without waiting, with copies of `fds`. At most 1 + kRegionsMax of them.
ssize_t SendPacket(int fd, std::string_view packet, std::span<const int> fds);
// As recvmsg without waiting, which also takes the packet's descriptors into `fds`. One that does
// not fit is cut: `*cut`, if given, says so.
ssize_t ReceivePacket(int fd, std::span<char> packet, std::vector<Descriptor>* fds,
                      bool* cut = nullptr);

}  // namespace tailcast::fabric
