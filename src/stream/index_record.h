// The records of index files: one per message, 32 bytes, so that a replay from a time or a message
// number is a binary search (docs/formats/index.md).
//
//   0        8        12       16           24        26      28      32
//   | offset | length | crc    | time us    | headers | flags | check |
//   offset   u64  of the message within the data file of the pair, bytes
//   length   u32  of the message, bytes: its headers, and then its payload
//   crc      u32  crc32c of both
//   time     i64  producer's wall time, microseconds since the Unix epoch; never decreases
//   headers  u16  bytes of the headers (message_headers.h); 0: it has none
//   flags    u16  0 in version 1
//   check    u32  crc32c of bytes 0..27
// Little-endian. A record is appended only after the flush of its message was acknowledged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tailcast::stream {

inline constexpr int64_t kIndexRecordSize = 32;

struct IndexRecord {
  int64_t offset = 0;
  uint32_t length = 0;
  uint32_t crc = 0;
  int64_t time_us = 0;
  uint16_t headers_length = 0;

  int64_t end() const { return offset + length; }
  friend bool operator==(const IndexRecord&, const IndexRecord&) = default;

  void AppendTo(std::string& out) const;
  // nullopt if the 32 bytes at `bytes` are no valid record: wrong check sum, unknown flags, more
  // headers than message, or an offset whose end overflows.
  static std::optional<IndexRecord> Decode(const char* bytes);
};

}  // namespace tailcast::stream
