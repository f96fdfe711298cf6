// The bytes of a cache server's memory, as its writer stores them and one-sided readers decode them
// (paper §2.2; drawn with offsets in docs/formats/cache_memory.md). Pure functions: no I/O, no
// state.
//
// Region 0, the index: a header page, then buckets of 128 bytes with 7 entries each; key.lo chooses
// the bucket, key.hi is the tag of an entry. Region 1, the data: slabs of slots in size classes; a
// slot is a 64-byte entry header and the payload.
//
// What a reader may trust is decided here and nowhere else:
//  - everything is decoded from a private copy, never from mapped memory;
//  - a bucket counts only if its crc fits, so an index seen in mid-change is "torn", not "absent";
//  - an entry counts only if its header's crc fits and names this key and this generation, and its
//    payload only if its crc fits; lengths and offsets are checked against the region before use.
// A server stores whole aligned words, so that a copy can be torn at words only.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "tailcast/base/crc32c.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache::layout {

static_assert(std::endian::native == std::endian::little,
              "cache memory is little-endian and read in place");

inline constexpr uint32_t kIndexRegion = 0;
inline constexpr uint32_t kDataRegion = 1;

inline constexpr uint64_t kMagic = 0x3145'4843'4143'4354;  // "TCCACHE1"
inline constexpr uint32_t kVersion = 1;

inline constexpr uint32_t kHeaderPageBytes = 4096;
inline constexpr uint32_t kBucketBytes = 128;
inline constexpr uint32_t kBucketEntries = 7;
inline constexpr uint32_t kEntryHeaderBytes = 64;
inline constexpr uint32_t kSlotAlignment = 64;
inline constexpr uint32_t kSlabBytes = 1u << 20;
inline constexpr uint32_t kValueBytesMax = 64u << 10;
// Payload bytes of a slot of each size class.
inline constexpr uint32_t kClassPayloadBytes[] = {512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
inline constexpr uint32_t kClassCount = 8;

// Smallest class whose payload holds `bytes`; nullopt above kValueBytesMax.
constexpr std::optional<uint32_t> ClassFor(uint64_t bytes) {
  for (uint32_t i = 0; i < kClassCount; ++i) {
    if (bytes <= kClassPayloadBytes[i]) return i;
  }
  return std::nullopt;
}
constexpr uint32_t SlotBytes(uint32_t size_class) {
  return kClassPayloadBytes[size_class] + kEntryHeaderBytes;
}
constexpr uint32_t SlotsPerSlab(uint32_t size_class) { return kSlabBytes / SlotBytes(size_class); }

// ---- Words ----

inline void StoreWord(char* at, uint64_t word) {
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at))
      .store(word, std::memory_order_relaxed);
}
inline uint64_t LoadWord(const char* at) {  // of a private copy, any alignment
  uint64_t word;
  std::memcpy(&word, at, 8);
  return word;
}
inline uint32_t LoadHalf(const char* at) {
  uint32_t half;
  std::memcpy(&half, at, 4);
  return half;
}
constexpr uint64_t Halves(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }
// Copies bytes into shared memory by whole aligned words. Bytes of the first and last word outside
// [to, to + bytes.size()) keep their values; only one thread writes.
void StoreBytes(char* to, std::string_view bytes);

// ---- Header page ----

// Tells one layout of a server's memory from the others: the incarnation of its process. Not the
// generation of its regions (fabric.h), which also changes when they are opened anew.
enum class Generation : uint64_t { kNone = 0 };

struct Geometry {
  Generation generation = Generation::kNone;  // never kNone
  uint32_t bucket_count = 0;
  uint64_t data_bytes = 0;  // size of the data region
  uint64_t heartbeat_interval_us = 0;

  uint64_t index_bytes() const { return kHeaderPageBytes + uint64_t{bucket_count} * kBucketBytes; }
};
inline constexpr uint32_t kHeartbeatOffset = 64;      // word: grows every heartbeat_interval_us
inline constexpr uint32_t kConfigurationOffset = 72;  // word: the server's configuration id
inline constexpr uint32_t kHeaderBytes = 128;         // of the page that mean something

// Writes the constant part; the two words stay as they are. `page` is kHeaderPageBytes of memory.
void StoreGeometry(char* page, const Geometry& geometry);
// Decodes a copy of the first kHeaderBytes. nullopt: not our format or version, torn, or it does
// not fit regions of these sizes.
std::optional<Geometry> ParseGeometry(std::span<const char> page, uint64_t index_region_bytes,
                                      uint64_t data_region_bytes);

// ---- Buckets ----

// Maps key.lo, which is uniform, to [0, bucket_count) without a division.
inline uint64_t BucketOf(const Key& key, uint32_t bucket_count) {
  return ((key.lo >> 32) * bucket_count + (((key.lo & 0xffffffff) * bucket_count) >> 32)) >> 32;
}
inline uint64_t BucketOffset(uint64_t bucket) { return kHeaderPageBytes + bucket * kBucketBytes; }

// Where an entry lies: its slot's offset in the data region and the length of its payload when the
// index was written (the entry's own header is what counts).
struct Location {
  uint64_t offset = 0;
  uint32_t length = 0;
  bool operator==(const Location&) const = default;
};
constexpr uint64_t PackLocation(Location location) {
  return (location.offset / kSlotAlignment) << 24 | location.length;
}
constexpr Location UnpackLocation(uint64_t word) {
  return {(word >> 24) * kSlotAlignment, static_cast<uint32_t>(word & 0xffffff)};
}
// Whether header and payload of such an entry lie within a data region of this size.
constexpr bool LocationFits(Location location, uint64_t data_bytes) {
  return location.length <= kValueBytesMax && location.offset <= data_bytes &&
         kEntryHeaderBytes + location.length <= data_bytes - location.offset;
}

inline constexpr uint32_t kFlagOverflow = 1;  // some keys of the bucket are served by rpc only

struct BucketHeader {
  uint32_t doorbell = 0;  // changes with each change of a value that can be watched
  uint32_t flags = 0;
  uint32_t configuration = 0;  // low 32 bits of the server's configuration id
};
// A tag is never 0: 0 marks a free entry. (Keys whose tags collide are told apart by the entry.)
constexpr uint64_t TagOf(const Key& key) { return key.hi == 0 ? 1 : key.hi; }

// crc32c of a copy of a bucket, its crc field left out.
inline uint32_t BucketCrc(const char* bucket) {
  return Crc32cExtend(Crc32cExtend(0, bucket, 12), bucket + 16, kBucketBytes - 16);
}
// Decodes a copy of kBucketBytes. False: torn (or damaged); read it again.
inline bool ParseBucket(const char* bucket, BucketHeader& header) {
  header.doorbell = LoadHalf(bucket);
  header.flags = LoadHalf(bucket + 4);
  header.configuration = LoadHalf(bucket + 8);
  return LoadHalf(bucket + 12) == BucketCrc(bucket);
}
// The next location of `key` at or after entry `way` of a copy that parsed; `way` is moved behind
// it.
inline std::optional<Location> FindInBucket(const char* bucket, const Key& key, uint32_t& way) {
  const uint64_t tag = TagOf(key);
  while (way < kBucketEntries) {
    const char* entry = bucket + 16 + size_t{16} * way++;
    if (LoadWord(entry) == tag) return UnpackLocation(LoadWord(entry + 8));
  }
  return std::nullopt;
}

// ---- Entries ----

struct EntryHeader {
  Key key;
  uint64_t version = 0;      // of the value: grows with each change on this server
  uint32_t length = 0;       // payload bytes
  uint32_t payload_crc = 0;  // crc32c of the payload alone, so that it extends
  int64_t expiry_us = 0;     // wall time after which the server forgets the value
  Generation generation = Generation::kNone;
  MergeRule rule = MergeRule::kLongerWins;
};

// The header's 64 bytes, crc included.
void FormatEntryHeader(const EntryHeader& header, char (&out)[kEntryHeaderBytes]);
// Stores the header over a slot's first 64 bytes, word by word, the word with the crc last.
void StoreEntryHeader(char* slot, const EntryHeader& header);
// Makes a slot undecodable, so that a reader with an old location misses.
void PoisonEntryHeader(char* slot);

// Decodes a copy of a header. False: torn, of another key or generation, or a length that no slot
// has: nothing about the payload is known then.
inline bool ParseEntryHeader(const char* bytes, const Key& key, Generation generation,
                             EntryHeader& header) {
  if (LoadHalf(bytes + 56) != Crc32cExtend(0, bytes, 56)) return false;
  header.key = {LoadWord(bytes), LoadWord(bytes + 8)};
  header.version = LoadWord(bytes + 16);
  header.length = LoadHalf(bytes + 24);
  header.payload_crc = LoadHalf(bytes + 28);
  header.expiry_us = static_cast<int64_t>(LoadWord(bytes + 32));
  header.generation = Generation{LoadWord(bytes + 40)};
  header.rule = static_cast<MergeRule>(bytes[48]);
  return header.key == key && header.generation == generation && header.length <= kValueBytesMax;
}

}  // namespace tailcast::cache::layout
