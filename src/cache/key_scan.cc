#include "tailcast/cache/key_scan.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "tailcast/base/prefetch.h"

namespace tailcast::cache {
namespace {

using fabric::ScanPlan;
using fabric::ScanRequest;

// The entry's header, by its offsets in docs/formats/cache_memory.md.
constexpr uint32_t kKeyLowOffset = 8, kLengthOffset = 24;

Key KeyOf(const ScanRequest& request) {
  return {layout::LoadWord(request.data()), layout::LoadWord(request.data() + 8)};
}

uint32_t FromOf(const ScanRequest& request) { return layout::LoadHalf(request.data() + 16); }
uint32_t RoomOf(const ScanRequest& request) { return layout::LoadHalf(request.data() + 20); }

}  // namespace

ScanRequest EncodeKeyScan(const Key& key, uint32_t from, uint32_t room) {
  ScanRequest request{};
  std::memcpy(request.data(), &key.hi, 8);
  std::memcpy(request.data() + 8, &key.lo, 8);
  std::memcpy(request.data() + 16, &from, 4);
  std::memcpy(request.data() + 20, &room, 4);
  return request;
}

fabric::Scanner MakeKeyScanner(const layout::Geometry& geometry) {
  return [buckets = geometry.bucket_count, data_bytes = geometry.data_bytes](
             const ScanRequest& request, std::span<const std::span<const char>> regions) {
    const Key key = KeyOf(request);
    const uint32_t from = FromOf(request), room = RoomOf(request);
    const uint64_t bucket_offset = layout::BucketOffset(layout::BucketOf(key, buckets));
    ScanPlan plan;
    plan.count = 1;
    plan.ranges[kScannedBucket] = {layout::kIndexRegion, layout::kBucketBytes, bucket_offset};
    const char* const bucket = regions[layout::kIndexRegion].data() + bucket_offset;
    const char* const data = regions[layout::kDataRegion].data();
    uint32_t way = 0;
    while (const std::optional<layout::Location> found = layout::FindInBucket(bucket, key, way)) {
      if (!layout::LocationFits({found->offset, 0}, data_bytes)) continue;
      const char* const entry = data + found->offset;
      const uint32_t length = layout::LoadHalf(entry + kLengthOffset);
      if (layout::LoadWord(entry + kKeyLowOffset) != key.lo ||
          !layout::LocationFits({found->offset, length}, data_bytes)) {
        continue;
      }
      plan.count = 2;
      plan.ranges[kScannedHeader] = {layout::kDataRegion, layout::kEntryHeaderBytes, found->offset};
      if (length > from && length <= room) {
        plan.count = 3;
        plan.ranges[kScannedPayload] = {layout::kDataRegion, length - from,
                                        found->offset + layout::kEntryHeaderBytes + from};
      }
      break;
    }
    return plan;
  };
}

fabric::ScanPrefetch MakeKeyScanPrefetch(const layout::Geometry& geometry,
                                         uint32_t payload_bytes_max) {
  return [buckets = geometry.bucket_count, data_bytes = geometry.data_bytes, payload_bytes_max](
             const ScanRequest& request, std::span<const std::span<const char>> regions, int step) {
    const Key key = KeyOf(request);
    const char* const bucket =
        regions[layout::kIndexRegion].data() + layout::BucketOffset(layout::BucketOf(key, buckets));
    if (step == 0) {
      Prefetch(bucket, layout::kBucketBytes);
      return;
    }
    uint32_t way = 0;
    const std::optional<layout::Location> found = layout::FindInBucket(bucket, key, way);
    if (!found.has_value() || !layout::LocationFits(*found, data_bytes)) return;
    const char* const entry = regions[layout::kDataRegion].data() + found->offset;
    Prefetch(entry, layout::kEntryHeaderBytes);
    const uint32_t from = FromOf(request), to = std::min(found->length, RoomOf(request));
    if (from < to) {
      Prefetch(entry + layout::kEntryHeaderBytes + from, std::min(to - from, payload_bytes_max));
    }
  };
}

}  // namespace tailcast::cache
