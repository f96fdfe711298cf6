// What the two ends of the verbs driver tell each other: the offers, frames of the tcp connection
// with which every verbs connection begins (docs/formats/fabric_verbs.md), and the private data of
// the connection request. All numbers are little-endian.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/fabric/control_page.h"
#include "tailcast/fabric/fabric.h"

namespace tailcast::fabric {

inline constexpr uint32_t kVerbsVersion = 1;
// Devices fetch a READ's bytes from memory by cache lines, but the network cuts it into packets,
// which on iWARP end anywhere: so much goes into one.
inline constexpr uint32_t kVerbsWordAtomicBytesMax = 512;
inline constexpr uint64_t kVerbsMagic = 0x4252455642464354;  // "TCFBVERB" in memory

// Lets one connection request in, once.
using VerbsToken = std::array<uint64_t, 2>;

// Private data of a connection request. RoCE and InfiniBand leave 56 bytes for it.
struct VerbsHello {
  uint64_t magic;
  VerbsToken token;
};
static_assert(sizeof(VerbsHello) <= 56);
// Devices fill up what was said. Nothing: it begins with no hello of ours.
std::optional<VerbsHello> DecodeVerbsHello(std::string_view private_data);

// READs of one connection on the wire at a time: what `ours` does of them and what `theirs` does,
// as either end's device says; both ends keep to it. Connection requests have a byte for it.
inline constexpr uint8_t VerbsReadDepth(int64_t ours, int64_t theirs) {
  return static_cast<uint8_t>(std::clamp<int64_t>(std::min(ours, theirs), 1, 255));
}

// Where a region, or the control page from its heartbeat on, lies in the server's memory.
struct VerbsKey {
  uint64_t address;
  uint32_t key;
  uint32_t reserved;
};
static_assert(sizeof(VerbsKey) == 16);

// Body of a TcpOp::kVerbsOffer, followed by a VerbsKey of each region; the frame's count is their
// number, or 0: no offer, and `host` says why.
struct VerbsOfferHead {
  uint32_t version;
  uint32_t port;
  VerbsToken token;
  uint64_t beat_timeout_us;
  uint64_t stall_timeout_us;  // a READ without a completion for so long will never have one
  uint32_t reads_max;         // READs that the server's device answers at a time, per connection
  uint32_t reserved;
  VerbsKey control;
  char host[48];  // a numeric address, ended by a zero
};
static_assert(sizeof(VerbsOfferHead) == 112);

struct VerbsOffer {
  VerbsOfferHead head{};
  std::vector<VerbsKey> regions;
};
std::string EncodeVerbsOffer(const VerbsOffer& offer);
// Nothing unless it adds up for `regions` regions.
std::optional<VerbsOffer> DecodeVerbsOffer(std::string_view body, size_t regions);

// Body of a TcpOp::kVerbsOffer on a message channel; the frame's count is 1, or 0: no offer, and
// `host` says why.
struct VerbsChannelOffer {
  uint32_t version;
  uint32_t port;
  VerbsToken token;
  uint64_t stall_timeout_us;  // what was sent and did not arrive for so long never will
  char host[48];              // a numeric address, ended by a zero
};
static_assert(sizeof(VerbsChannelOffer) == 80);
std::string EncodeVerbsChannelOffer(const VerbsChannelOffer& offer);
// Nothing unless it adds up.
std::optional<VerbsChannelOffer> DecodeVerbsChannelOffer(std::string_view body, size_t count);

// What a READ of the control page fetches: from the heartbeat to the last region's generation.
inline constexpr uint64_t kVerbsControlAt = offsetof(ControlPage, heartbeat_us);
inline uint32_t VerbsControlBytes(size_t regions) {
  return static_cast<uint32_t>(offsetof(ControlPage, generations) - kVerbsControlAt + regions * 8);
}
class VerbsControl {
 public:
  // `bytes`: VerbsControlBytes of them.
  explicit VerbsControl(const char* bytes) : bytes_(bytes) {}
  uint64_t heartbeat() const { return Word(0); }
  Generation generation(RegionId id) const {
    return Generation{Word(offsetof(ControlPage, generations) - kVerbsControlAt + id * 8)};
  }

 private:
  uint64_t Word(uint64_t at) const {
    uint64_t word;
    std::memcpy(&word, bytes_ + at, sizeof(word));
    return word;
  }
  const char* const bytes_;
};

}  // namespace tailcast::fabric
