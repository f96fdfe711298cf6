#include "tailcast/stream/index_record.h"

#include <cstring>

#include "tailcast/base/crc32c.h"

namespace tailcast::stream {
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "formats are little-endian in memory too");

void IndexRecord::AppendTo(std::string& out) const {
  char bytes[kIndexRecordSize] = {};
  std::memcpy(bytes, &offset, 8);
  std::memcpy(bytes + 8, &length, 4);
  std::memcpy(bytes + 12, &crc, 4);
  std::memcpy(bytes + 16, &time_us, 8);
  std::memcpy(bytes + 24, &headers_length, 2);
  const uint32_t check = Crc32c(std::string_view(bytes, 28));
  std::memcpy(bytes + 28, &check, 4);
  out.append(bytes, sizeof bytes);
}

std::optional<IndexRecord> IndexRecord::Decode(const char* bytes) {
  uint32_t check;
  uint16_t flags;
  std::memcpy(&check, bytes + 28, 4);
  std::memcpy(&flags, bytes + 26, 2);
  if (flags != 0 || check != Crc32c(std::string_view(bytes, 28))) return std::nullopt;
  IndexRecord record;
  std::memcpy(&record.offset, bytes, 8);
  std::memcpy(&record.length, bytes + 8, 4);
  std::memcpy(&record.crc, bytes + 12, 4);
  std::memcpy(&record.time_us, bytes + 16, 8);
  std::memcpy(&record.headers_length, bytes + 24, 2);
  if (record.offset < 0 || record.offset > INT64_MAX - UINT32_MAX) return std::nullopt;
  if (record.headers_length > record.length) return std::nullopt;
  return record;
}

}  // namespace tailcast::stream
