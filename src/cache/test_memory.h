// A server's two regions in plain memory, and the dumbest possible reader of them, for tests.
#pragma once

#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/server_core.h"

namespace tailcast::cache {

struct TestMemory {
  TestMemory(uint32_t buckets, uint32_t slabs)
      : index_words((layout::kHeaderPageBytes + uint64_t{buckets} * layout::kBucketBytes) / 8),
        data_words(uint64_t{slabs} * layout::kSlabBytes / 8) {}
  std::span<char> index() {
    return {reinterpret_cast<char*>(index_words.data()), index_words.size() * 8};
  }
  std::span<char> data() {
    return {reinterpret_cast<char*>(data_words.data()), data_words.size() * 8};
  }
  std::vector<uint64_t> index_words, data_words;
};

struct Peek {
  enum { kFound, kAbsent, kOverflowed, kTorn } outcome = kAbsent;
  std::string value;
  layout::BucketHeader bucket;
};

// What a one-sided reader that copies at this very moment would find.
inline Peek PeekAt(std::span<const char> index, std::span<const char> data, const Key& key) {
  Peek peek;
  const auto geometry =
      layout::ParseGeometry(index.first(layout::kHeaderBytes), index.size(), data.size());
  if (!geometry) return {Peek::kTorn, "", {}};
  const char* bucket =
      index.data() + layout::BucketOffset(layout::BucketOf(key, geometry->bucket_count));
  if (!layout::ParseBucket(bucket, peek.bucket)) return {Peek::kTorn, "", {}};
  uint32_t way = 0;
  while (const auto location = layout::FindInBucket(bucket, key, way)) {
    layout::EntryHeader header;
    if (!layout::LocationFits(*location, geometry->data_bytes)) return {Peek::kTorn, "", {}};
    const char* slot = data.data() + location->offset;
    if (!layout::ParseEntryHeader(slot, key, geometry->generation, header) ||
        !layout::LocationFits({location->offset, header.length}, geometry->data_bytes)) {
      peek.outcome = Peek::kTorn;
      continue;
    }
    peek.value.assign(slot + layout::kEntryHeaderBytes, header.length);
    peek.outcome = Crc32c(peek.value) == header.payload_crc ? Peek::kFound : Peek::kTorn;
    return peek;
  }
  if (peek.outcome == Peek::kAbsent && (peek.bucket.flags & layout::kFlagOverflow) != 0) {
    peek.outcome = Peek::kOverflowed;
  }
  return peek;
}

}  // namespace tailcast::cache
