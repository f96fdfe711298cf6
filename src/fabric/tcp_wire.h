// Frames of the tcp driver. Drawn and explained in docs/formats/fabric_tcp.md. All numbers are
// little-endian; every frame starts on a multiple of 8 of the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "tailcast/fabric/fabric.h"
#include "tailcast/fabric/handshake.h"

namespace tailcast::fabric {

// Reads up to this length are copied by the engine, word by word. Longer ones are sent straight
// from the region, and the kernel may cut anywhere.
inline constexpr uint32_t kTcpWordAtomicBytesMax = 512;
inline constexpr uint64_t kTcpMagic = 0x5043544241464354;  // "TCFABTCP" in memory
// Most read descriptors in one kRead frame, and most answers in one kAnswer frame.
inline constexpr uint16_t kTcpBatchMax = 128;
// Most scans in one kScanAndRead frame, and most answers in one kScanned frame.
inline constexpr uint16_t kTcpScansMax = 64;

enum class TcpOp : uint8_t {
  // Reader to server.
  kHello = 1,
  kRead = 2,
  kWatch = 3,
  kCancelWatch = 4,
  kPing = 5,
  kScanAndRead = 6,
  kMessage = 7,  // on a message channel, as kMessageAnswer
  kVerbsAsk = 8,
  kProof = 9,
  // Server to reader.
  kWelcome = 129,
  kAnswer = 130,
  kNotify = 131,
  kPong = 132,
  kMessageAnswer = 133,
  kScanned = 134,
  kVerbsOffer = 135,  // verbs_wire.h
  kChallenge = 136,
};

struct TcpFrame {
  uint32_t body_bytes;  // after this header, without an answer's payload; a multiple of 8
  TcpOp op;
  uint8_t flags;  // kTcpFlag...; 0 but in a welcome
  // Of the descriptors in the body; a notification's outcome; of a message, the bytes of padding
  // that end its body.
  uint16_t count;
  uint64_t argument;
};
static_assert(sizeof(TcpFrame) == 16);

inline constexpr uint8_t kTcpFlagScans = 1;  // the server answers kScanAndRead

// The handshake's frames have argument = kTcpMagic: kHello has a Hello, kChallenge a Challenge,
// kProof a CellKey::Proof for body.

// kWelcome, argument = kTcpMagic, count = regions; followed by as many TcpRegion.
struct TcpWelcome {
  uint32_t version;
  HelloStatus status;
  ExporterIncarnation incarnation;
  uint32_t reads_max;        // credit: reads that may be outstanding
  uint32_t watches_max;      // watches beyond are refused
  uint64_t peer_timeout_us;  // the server hangs up on a reader that is silent for so long
};
static_assert(sizeof(TcpWelcome) == 32);
struct TcpRegion {
  uint64_t size;
  Generation generation;
};

// kRead: `count` of them.
struct TcpRead {
  uint64_t offset;
  uint32_t length;
  uint32_t region;
  uint64_t tag;  // handed back
};
static_assert(sizeof(TcpRead) == 24);

// kAnswer: `count` of them, then `argument` bytes of payload: the bytes of each answer in order,
// each padded to a multiple of 8.
struct TcpAnswer {
  uint64_t tag;
  uint32_t length;  // 0 unless the status is kOk
  ReadStatus status;
  uint8_t reserved[3];
};
static_assert(sizeof(TcpAnswer) == 16);

// kScanAndRead: `count` of them.
struct TcpScan {
  uint64_t tag;  // handed back; of the same numbers as those of reads
  ScanRequest request;
};
static_assert(sizeof(TcpScan) == 40);

// kScanned: `count` of them, then `argument` bytes of payload: of each answer in order its ranges
// in order, each padded to a multiple of 8.
struct TcpScanned {
  uint64_t tag;
  ReadStatus status;
  uint8_t ranges;  // that are used; 0 unless the status is kOk
  uint8_t reserved[6];
  struct Part {
    uint64_t offset;
    uint32_t length;
    uint32_t region;
  } parts[kScanRangesMax];  // 0 beyond `ranges`
};
static_assert(sizeof(TcpScanned) == 64);

// kWatch, argument = id. kCancelWatch and kNotify have no body, argument = id.
struct TcpWatch {
  uint64_t offset;
  uint32_t region;
  uint32_t last_seen;
};
static_assert(sizeof(TcpWatch) == 16);

inline constexpr uint32_t kTcpRequestBodyMax = kTcpBatchMax * sizeof(TcpRead);
inline constexpr uint32_t kTcpReplyBodyMax = kTcpScansMax * sizeof(TcpScanned);
static_assert(kTcpScansMax * sizeof(TcpScan) <= kTcpRequestBodyMax);
static_assert(kTcpBatchMax * sizeof(TcpAnswer) <= kTcpReplyBodyMax);

inline uint32_t PaddedLength(uint32_t length) { return (length + 7) & ~uint32_t{7}; }

// kMessage and kMessageAnswer: the body is the message, padded; argument = its number on this
// connection, from 0. Of a channel's welcome count, reads_max and watches_max are 0.
inline bool MessageFits(const TcpFrame& frame, uint32_t bytes_max) {
  return frame.flags == 0 && frame.count < 8 && frame.body_bytes % 8 == 0 &&
         frame.count <= frame.body_bytes && frame.body_bytes - frame.count <= bytes_max;
}
inline uint32_t MessageBytes(const TcpFrame& frame) { return frame.body_bytes - frame.count; }
inline TcpFrame MessageFrame(TcpOp op, uint64_t number, uint32_t bytes) {
  const uint32_t body = PaddedLength(bytes);
  return {.body_bytes = body,
          .op = op,
          .flags = 0,
          .count = static_cast<uint16_t>(body - bytes),
          .argument = number};
}

// Appends the bytes of plain structs to a frame under construction.
template <typename T>
void AppendTo(std::string& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
// A frame of the handshake.
template <typename T>
std::string HandshakeFrame(TcpOp op, const T& body) {
  static_assert(sizeof(body) % 8 == 0);
  std::string frame;
  AppendTo(
      frame,
      TcpFrame{
          .body_bytes = sizeof(body), .op = op, .flags = 0, .count = 0, .argument = kTcpMagic});
  AppendTo(frame, body);
  return frame;
}
inline void AppendMessage(std::string& out, TcpOp op, uint64_t number, std::string_view message) {
  const TcpFrame frame = MessageFrame(op, number, static_cast<uint32_t>(message.size()));
  AppendTo(out, frame);
  out.append(message);
  out.append(frame.count, '\0');
}
template <typename T>
T TakeFrom(const char* bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

}  // namespace tailcast::fabric
