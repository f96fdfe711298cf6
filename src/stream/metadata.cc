#include "tailcast/stream/metadata.h"

#include <algorithm>
#include <cstring>

#include "tailcast/base/check.h"

namespace tailcast::stream {
namespace {

using Lanes = std::array<int64_t, kRecordLanes>;
constexpr size_t kRecordBytes = sizeof(Lanes);

Lanes ToLanes(const FileRecord& r) {
  Lanes lanes{};
  lanes[0] = r.created_us;
  lanes[1] = r.start_byte;
  lanes[2] = r.start_record;
  for (int part = 0; part < kParts; ++part) {
    lanes[3 + part] = r.cache_length[part];
    lanes[5 + part] = r.primary_length[part];
    lanes[8 + part] = r.seal[part] ? *r.seal[part] + 1 : 0;
  }
  lanes[7] = r.primary_epoch;
  lanes[10] = r.heartbeat_us;
  lanes[11] = r.chunk_size;
  return lanes;
}

FileRecord FromLanes(const Lanes& lanes) {
  FileRecord r;
  r.created_us = lanes[0];
  r.start_byte = lanes[1];
  r.start_record = lanes[2];
  for (int part = 0; part < kParts; ++part) {
    r.cache_length[part] = lanes[3 + part];
    r.primary_length[part] = lanes[5 + part];
    if (lanes[8 + part] > 0) r.seal[part] = lanes[8 + part] - 1;
  }
  r.primary_epoch = lanes[7];
  r.heartbeat_us = lanes[10];
  r.chunk_size = lanes[11];
  return r;
}

}  // namespace

std::string EncodeFileRecord(int64_t seq, const FileRecord& record) {
  TAILCAST_CHECK(seq > 0);
  const size_t slot = static_cast<size_t>(seq % kPairsPerGroup);
  std::string value((slot + 1) * kRecordBytes, '\0');
  const Lanes lanes = ToLanes(record);
  std::memcpy(value.data() + slot * kRecordBytes, lanes.data(), kRecordBytes);
  return value;
}

FileRecord DecodeFileRecord(int64_t seq, std::string_view group_value) {
  const size_t begin = static_cast<size_t>(seq % kPairsPerGroup) * kRecordBytes;
  if (seq <= 0 || group_value.size() % 8 != 0 || group_value.size() < begin + kRecordBytes) {
    return FileRecord();
  }
  Lanes lanes;
  std::memcpy(lanes.data(), group_value.data() + begin, kRecordBytes);
  for (int64_t lane : lanes) {
    if (lane < 0) return FileRecord();
  }
  return FromLanes(lanes);
}

FileRecord Merge(const FileRecord& a, const FileRecord& b) {
  Lanes left = ToLanes(a);
  const Lanes right = ToLanes(b);
  for (int i = 0; i < kRecordLanes; ++i) left[i] = std::max(left[i], right[i]);
  return FromLanes(left);
}

}  // namespace tailcast::stream
