// Names of streams, shards and message files (paper §2.1; docs/formats/names.md; spec RollOver).
//
// A stem carries the file's sequence number, its creation time, where it begins in the shard and,
// where its producer chose it, the size of its chunks in the caches:
//
//   0000000007-0001763722199123456-0000000012345678-00000000012345-16384
//   seq (10)   created us (19)     start byte (16)  start number (14)  chunk size (5)
//
// Fixed widths, so that names sort as numbers. A listing alone gives every closed file's seal (the
// next one's start), message numbers survive garbage collection, and a hole is seen as a hole.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"

namespace tailcast::stream {

// The two files of a message file's pair, and the `part` of keys.
enum class Part : uint8_t { kData = 0, kIndex = 1 };
inline constexpr int kParts = 2;

// Of a stream or a file, in bytes.
inline constexpr int64_t kChunkSizeMin = 512;
inline constexpr int64_t kChunkSizeMax = 64 << 10;

struct Stem {
  int64_t seq = 0;           // 1, 2, 3, ... without gaps
  int64_t created_us = 0;    // wall time; grows from file to file
  int64_t start_byte = 0;    // data bytes of the shard before this file
  int64_t start_number = 0;  // messages of the shard before this file
  int64_t chunk_size = 0;    // a power of two, kChunkSizeMin to kChunkSizeMax; 0: the stream's

  auto operator<=>(const Stem&) const = default;
  std::string ToString() const;
  // nullopt unless `text` is exactly what ToString gives for some stem.
  static std::optional<Stem> Parse(std::string_view text);
};

// Whether a stem may have this chunk size.
bool IsStemChunkSize(int64_t bytes);
// Of a file, in a stream whose files have `stream_chunk_size` unless they say otherwise.
inline int64_t ChunkSizeOf(const Stem& stem, int64_t stream_chunk_size) {
  return stem.chunk_size > 0 ? stem.chunk_size : stream_chunk_size;
}

// "<stem>.data", "<stem>.index"
std::string FileName(const Stem& stem, Part part);
struct ParsedFileName {
  Stem stem;
  Part part;
};
// nullopt for names that are none of ours.
std::optional<ParsedFileName> ParseFileName(std::string_view name);
// What CreateExclusive is exclusive on: one file per sequence number and part, whatever its stem.
std::string CreationKey(int64_t seq, Part part);

// A stream's identity. Names can be used again after a delete; an incarnation never is, so no byte
// of an old stream can be taken for one of a new stream.
enum class StreamIncarnation : uint64_t { kNone = 0 };
struct StreamId {
  std::string name;
  StreamIncarnation incarnation = StreamIncarnation::kNone;
  auto operator<=>(const StreamId&) const = default;
};

struct ShardId {
  StreamId stream;
  int32_t shard = 0;
  auto operator<=>(const ShardId&) const = default;
  // "flights/3", for people
  std::string ToString() const;
};

// A message file of a shard.
struct FileId {
  ShardId shard;
  Stem stem;
  auto operator<=>(const FileId&) const = default;
  std::string ToString() const;
};

// Folder of a shard below the cell's: "streams/<name>/<incarnation, 16 hex>/<shard, 5 digits>".
std::string ShardDir(const ShardId& shard);

// InvalidArgument with the rule that was broken: 1 to 100 of [a-zA-Z0-9_.-], beginning with a
// letter or digit.
Status ValidateStreamName(std::string_view name);

inline constexpr int kShardsMax = 10000;

}  // namespace tailcast::stream
