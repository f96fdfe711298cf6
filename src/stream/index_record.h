// The records of index files: one per message, 32 bytes, so that a replay from a time or a message
// number is a binary search (docs/formats/index.md).
//
//   0        8        12       16           24       28      32
//   | offset | length | crc    | time us    | flags  | check |
//   offset   u64  of the payload within the data file of the pair, bytes
//   length   u32  of the payload, bytes
//   crc      u32  crc32c of the payload
//   time     i64  producer's wall time, microseconds since the Unix epoch; never decreases
//   flags    u32  0 in version 1
//   check    u32  crc32c of bytes 0..27
// Little-endian. A record is appended only after the flush of its payload was acknowledged.
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
  uint32_t payload_crc = 0;
  int64_t time_us = 0;

  int64_t end() const { return offset + length; }
  friend bool operator==(const IndexRecord&, const IndexRecord&) = default;

  void AppendTo(std::string& out) const;
  // nullopt if the 32 bytes at `bytes` are no valid record: wrong check sum, unknown flags, or an
  // offset whose end overflows.
  static std::optional<IndexRecord> Decode(const char* bytes);
};

}  // namespace tailcast::stream
