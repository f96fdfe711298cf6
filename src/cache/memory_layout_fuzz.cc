// A copy of a server's memory, as a one-sided reader got it: header page, bucket, entry header.
#include "tailcast/cache/memory_layout.h"

#include <cstring>

#include "tailcast/base/check.h"
#include "tailcast/base/strong.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::cache::layout {
namespace {

enum class Kind : uint8_t { kPage, kBucket, kEntry };
constexpr uint8_t kKinds = 3;
Kind KindOf(uint8_t byte) { return static_cast<Kind>(byte % kKinds); }

constexpr Key kKey = {0x1122334455667788, 0x99aabbccddeeff00};
constexpr Generation kGeneration{77};

// Exact sizes on the heap, so that asan sees a read behind them.
std::vector<char> Exact(std::string_view bytes, size_t size) {
  std::vector<char> copy(size);
  if (size > 0) std::memcpy(copy.data(), bytes.data(), std::min(size, bytes.size()));
  return copy;
}

void TryPage(uint64_t index_bytes, uint64_t data_bytes, std::string_view bytes) {
  const std::vector<char> page = Exact(bytes, std::min<size_t>(bytes.size(), kHeaderBytes));
  const auto geometry = ParseGeometry(page, index_bytes, data_bytes);
  if (!geometry) return;
  TAILCAST_CHECK(geometry->generation != Generation::kNone && geometry->bucket_count > 0);
  TAILCAST_CHECK(geometry->index_bytes() <= index_bytes && geometry->data_bytes <= data_bytes,
                 "memory that is not there");
  TAILCAST_CHECK(LoadWord(page.data()) == kMagic && LoadHalf(page.data() + 8) == kVersion);
  for (const Key& key : {kKey, Key{0, 0}, Key{1, UINT64_MAX}}) {
    const uint64_t bucket = BucketOffset(BucketOf(key, geometry->bucket_count));
    TAILCAST_CHECK(bucket + kBucketBytes <= index_bytes, "every key's bucket is in the index");
  }
  std::vector<uint64_t> again(kHeaderPageBytes / 8);
  char* const stored = reinterpret_cast<char*>(again.data());
  StoreGeometry(stored, *geometry);
  const auto second = ParseGeometry({stored, kHeaderBytes}, index_bytes, data_bytes);
  TAILCAST_CHECK(second && second->generation == geometry->generation &&
                     second->bucket_count == geometry->bucket_count &&
                     second->data_bytes == geometry->data_bytes &&
                     second->heartbeat_interval_us == geometry->heartbeat_interval_us,
                 "what was read is written as the same");
}

void TryBucket(uint64_t data_bytes, std::string_view bytes) {
  const std::vector<char> bucket = Exact(bytes, kBucketBytes);
  BucketHeader header;
  if (!ParseBucket(bucket.data(), header)) return;
  for (const Key& key : {kKey, Key{0, 5}, Key{1, 5}}) {
    uint32_t way = 0, found = 0;
    while (const auto location = FindInBucket(bucket.data(), key, way)) {
      TAILCAST_CHECK(way <= kBucketEntries && ++found <= kBucketEntries);
      TAILCAST_CHECK(location->offset % kSlotAlignment == 0);
      TAILCAST_CHECK(PackLocation(*location) == LoadWord(bucket.data() + 8 + size_t{16} * way));
      if (!LocationFits(*location, data_bytes)) continue;
      TAILCAST_CHECK(location->offset + kEntryHeaderBytes + location->length <= data_bytes &&
                         location->length <= kValueBytesMax,
                     "an entry that is not there");
    }
  }
}

void TryEntry(std::string_view bytes) {
  const std::vector<char> entry = Exact(bytes, kEntryHeaderBytes);
  EntryHeader header;
  if (!ParseEntryHeader(entry.data(), kKey, kGeneration, header)) return;
  TAILCAST_CHECK(header.key == kKey && header.generation == kGeneration, "another value");
  TAILCAST_CHECK(header.length <= kValueBytesMax, "a length that no slot has");
  char again[kEntryHeaderBytes];
  FormatEntryHeader(header, again);
  TAILCAST_CHECK(std::memcmp(again, entry.data(), 49) == 0, "what is read is what was written");
}

}  // namespace
}  // namespace tailcast::cache::layout

using namespace tailcast;                 // NOLINT(google-build-using-namespace): its own program
using namespace tailcast::cache;          // NOLINT(google-build-using-namespace)
using namespace tailcast::cache::layout;  // NOLINT(google-build-using-namespace)

// Kind, size of the index region, size of the data region, then the bytes.
constexpr size_t kBodyOffset = 17;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const Kind kind = KindOf(input.Take<uint8_t>());
  const auto index_bytes = input.Take<uint64_t>();
  const auto data_bytes = input.Take<uint64_t>();
  switch (kind) {
    case Kind::kPage:
      TryPage(index_bytes, data_bytes, input.Rest());
      break;
    case Kind::kBucket:
      TryBucket(data_bytes, input.Rest());
      break;
    case Kind::kEntry:
      TryEntry(input.Rest());
      break;
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  return fuzz::MutateAndRepair(data, size, size_max, seed, [](uint8_t* bytes, size_t count) {
    const size_t body = count < kBodyOffset ? 0 : count - kBodyOffset;
    const char* const at = reinterpret_cast<const char*>(bytes) + kBodyOffset;
    switch (KindOf(count > 0 ? bytes[0] : 0)) {
      case Kind::kPage:
        if (body < kHeaderBytes) return;
        fuzz::StoreAt(bytes, kBodyOffset + 12,
                      Crc32cExtend(Crc32cExtend(0, at, 12), at + 16, kHeartbeatOffset - 16));
        return;
      case Kind::kBucket:
        if (body >= kBucketBytes) fuzz::StoreAt(bytes, kBodyOffset + 12, BucketCrc(at));
        return;
      case Kind::kEntry:
        if (body < kEntryHeaderBytes) return;
        fuzz::StoreAt(bytes, kBodyOffset + 56, Crc32cExtend(0, at, 56));
        return;
    }
  });
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  const auto head = [](Kind kind) {
    std::string seed(1, static_cast<char>(kind));
    Append<uint64_t>(seed, kHeaderPageBytes + uint64_t{64} * kBucketBytes);
    Append<uint64_t>(seed, 4 * kSlabBytes);
    return seed;
  };
  std::vector<uint64_t> page(kHeaderPageBytes / 8);
  StoreGeometry(reinterpret_cast<char*>(page.data()), {.generation = kGeneration,
                                                       .bucket_count = 64,
                                                       .data_bytes = 4 * kSlabBytes,
                                                       .heartbeat_interval_us = 100'000});
  const std::string page_seed =
      head(Kind::kPage) + std::string(reinterpret_cast<const char*>(page.data()), kHeaderBytes);

  std::string bucket(kBucketBytes, '\0');
  for (const size_t way : {0, 1, 6}) {
    const uint64_t entry[] = {TagOf(kKey), PackLocation({way * 4096, 512})};
    bucket.replace(16 + 16 * way, 16, reinterpret_cast<const char*>(entry), 16);
  }
  const uint32_t crc = BucketCrc(bucket.data());
  bucket.replace(12, 4, reinterpret_cast<const char*>(&crc), 4);

  char entry[kEntryHeaderBytes];
  FormatEntryHeader({.key = kKey, .version = 3, .length = 512, .generation = kGeneration}, entry);
  return {page_seed, head(Kind::kBucket) + bucket,
          head(Kind::kEntry) + std::string(entry, sizeof entry)};
}
