#include "tailcast/stream/metadata.h"

#include <algorithm>
#include <cstring>

#include "tailcast/base/check.h"
#include "tailcast/base/strong.h"

namespace tailcast::stream {
namespace {

using Lanes = std::array<int64_t, kPairLanes>;
constexpr size_t kPairBytes = sizeof(Lanes);
// More than any length, number or time comes to, and little enough that sums of some, and a number
// of messages times the size of a record, are numbers still.
constexpr int64_t kLaneMax = int64_t{1} << 56;

Lanes ToLanes(const PairMetadata& r) {
  Lanes lanes{};
  lanes[0] = r.created_us;
  lanes[1] = r.start_byte;
  lanes[2] = r.start_number;
  for (int part = 0; part < kParts; ++part) {
    lanes[3 + part] = r.cache_length[part];
    lanes[5 + part] = r.primary_length[part];
    lanes[8 + part] = r.seal[part] ? *r.seal[part] + 1 : 0;
  }
  lanes[7] = static_cast<int64_t>(Raw(r.primary_epoch));
  lanes[10] = r.heartbeat_us;
  lanes[11] = r.chunk_size;
  lanes[12] = r.stem_chunk_size;
  return lanes;
}

PairMetadata FromLanes(const Lanes& lanes) {
  PairMetadata r;
  r.created_us = lanes[0];
  r.start_byte = lanes[1];
  r.start_number = lanes[2];
  for (int part = 0; part < kParts; ++part) {
    r.cache_length[part] = lanes[3 + part];
    r.primary_length[part] = lanes[5 + part];
    if (lanes[8 + part] > 0) r.seal[part] = lanes[8 + part] - 1;
  }
  r.primary_epoch = storage::Epoch{static_cast<uint64_t>(lanes[7])};
  r.heartbeat_us = lanes[10];
  r.chunk_size = lanes[11];
  r.stem_chunk_size = lanes[12];
  return r;
}

}  // namespace

std::string EncodePairMetadata(int64_t seq, const PairMetadata& metadata) {
  TAILCAST_CHECK(seq > 0);
  const size_t slot = static_cast<size_t>(seq % kPairsPerGroup);
  std::string value((slot + 1) * kPairBytes, '\0');
  const Lanes lanes = ToLanes(metadata);
  std::memcpy(value.data() + slot * kPairBytes, lanes.data(), kPairBytes);
  return value;
}

PairMetadata DecodePairMetadata(int64_t seq, std::string_view group_value) {
  const size_t begin = static_cast<size_t>(seq % kPairsPerGroup) * kPairBytes;
  if (seq <= 0 || group_value.size() % 8 != 0 || group_value.size() < begin + kPairBytes) {
    return PairMetadata();
  }
  Lanes lanes;
  std::memcpy(lanes.data(), group_value.data() + begin, kPairBytes);
  for (int64_t lane : lanes) {
    if (lane < 0 || lane > kLaneMax) return PairMetadata();
  }
  if (!IsStemChunkSize(lanes[12])) return PairMetadata();
  return FromLanes(lanes);
}

PairMetadata Merge(const PairMetadata& a, const PairMetadata& b) {
  Lanes left = ToLanes(a);
  const Lanes right = ToLanes(b);
  for (int i = 0; i < kPairLanes; ++i) left[i] = std::max(left[i], right[i]);
  return FromLanes(left);
}

}  // namespace tailcast::stream
