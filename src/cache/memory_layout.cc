#include "tailcast/cache/memory_layout.h"

#include <cstring>

namespace tailcast::cache::layout {
namespace {

constexpr uint32_t kCrcFieldOffset = 12;

uint32_t GeometryCrc(const char* page) {
  const uint32_t crc = Crc32cExtend(0, page, kCrcFieldOffset);
  return Crc32cExtend(crc, page + 16, kHeartbeatOffset - 16);
}

}  // namespace

void StoreBytes(char* to, std::string_view bytes) {
  if (bytes.empty()) return;
  const auto address = reinterpret_cast<uintptr_t>(to);
  char* word = to - address % 8;
  const char* from = bytes.data();
  size_t left = bytes.size();
  if (word != to) {
    uint64_t merged = LoadWord(word);
    const size_t skip = address % 8;
    const size_t count = left < 8 - skip ? left : 8 - skip;
    std::memcpy(reinterpret_cast<char*>(&merged) + skip, from, count);
    StoreWord(word, merged);
    word += 8;
    from += count;
    left -= count;
  }
  for (; left >= 8; left -= 8, from += 8, word += 8) StoreWord(word, LoadWord(from));
  if (left > 0) {
    uint64_t merged = LoadWord(word);
    std::memcpy(&merged, from, left);
    StoreWord(word, merged);
  }
}

void StoreGeometry(char* page, const Geometry& geometry) {
  char copy[kHeartbeatOffset] = {};
  const auto put = [&](uint32_t at, auto value) { std::memcpy(copy + at, &value, sizeof(value)); };
  put(0, kMagic);
  put(8, kVersion);
  put(16, geometry.generation);
  put(24, geometry.bucket_count);
  put(28, kBucketBytes);
  put(32, geometry.data_bytes);
  put(40, kSlabBytes);
  put(44, kValueBytesMax);
  put(48, geometry.heartbeat_interval_us);
  put(kCrcFieldOffset, GeometryCrc(copy));
  StoreBytes(page, std::string_view(copy, sizeof(copy)));
}

std::optional<Geometry> ParseGeometry(std::span<const char> page, uint64_t index_region_bytes,
                                      uint64_t data_region_bytes) {
  if (page.size() < kHeaderBytes) return std::nullopt;
  const char* p = page.data();
  if (LoadWord(p) != kMagic || LoadHalf(p + 8) != kVersion) return std::nullopt;
  if (LoadHalf(p + kCrcFieldOffset) != GeometryCrc(p)) return std::nullopt;
  Geometry geometry;
  geometry.generation = Generation{LoadWord(p + 16)};
  geometry.bucket_count = LoadHalf(p + 24);
  geometry.data_bytes = LoadWord(p + 32);
  geometry.heartbeat_interval_us = LoadWord(p + 48);
  const bool fits = geometry.generation != Generation::kNone && geometry.bucket_count > 0 &&
                    LoadHalf(p + 28) == kBucketBytes && LoadHalf(p + 44) == kValueBytesMax &&
                    geometry.index_bytes() <= index_region_bytes &&
                    geometry.data_bytes <= data_region_bytes;
  if (!fits) return std::nullopt;
  return geometry;
}

void FormatEntryHeader(const EntryHeader& header, char (&out)[kEntryHeaderBytes]) {
  std::memset(out, 0, sizeof(out));
  const auto put = [&](uint32_t at, auto value) { std::memcpy(out + at, &value, sizeof(value)); };
  put(0, header.key.hi);
  put(8, header.key.lo);
  put(16, header.version);
  put(24, header.length);
  put(28, header.payload_crc);
  put(32, header.expiry_us);
  put(40, header.generation);
  put(48, static_cast<uint8_t>(header.rule));
  put(56, Crc32cExtend(0, out, 56));
}

void StoreEntryHeader(char* slot, const EntryHeader& header) {
  char bytes[kEntryHeaderBytes];
  FormatEntryHeader(header, bytes);
  for (uint32_t at = 0; at < kEntryHeaderBytes; at += 8) StoreWord(slot + at, LoadWord(bytes + at));
}

void PoisonEntryHeader(char* slot) { StoreWord(slot + 56, Crc32cExtend(0, slot, 56) ^ 1u); }

}  // namespace tailcast::cache::layout
