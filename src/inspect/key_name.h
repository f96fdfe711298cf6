// What people call the keys of the caches:
//
//   flights/0/7             what the metadata cache knows of file 7 of shard 0 of stream flights, and
//                           of its neighbours (stream/metadata.h)
//   flights/0/7/12          chunk 12 of its data
//   flights/0/7/index:3     chunk 3 of its index
//   flights/0/7/lock:cache  its lock in one layer: primary or cache
//   0123456789abcdef0123456789abcdef   whatever has this key
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "tailcast/base/status.h"
#include "tailcast/cache/types.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/operation.h"

namespace tailcast::inspect {

// The two caches of a cell.
enum class Instance : uint8_t { kData, kMetadata };
std::string_view InstanceName(Instance instance);  // "data", "metadata"
// Chunks are right wherever they are found: nothing of them is counted by epochs.
inline bool HasEpochs(Instance instance) { return instance == Instance::kMetadata; }

struct KeyName {
  enum class Kind : uint8_t { kMetadata, kLock, kChunk };

  std::string stream;
  int32_t shard = 0;
  int64_t seq = 0;
  Kind kind = Kind::kMetadata;
  stream::Layer layer = stream::Layer::kPrimary;  // of a lock
  stream::Part part = stream::Part::kData;        // of a chunk
  int64_t chunk = 0;

  auto operator<=>(const KeyName&) const = default;
  Instance instance() const { return kind == Kind::kChunk ? Instance::kData : Instance::kMetadata; }
  // As ParseKey takes it.
  std::string ToString() const;
};

// hi, then lo, as 32 hex digits.
std::string KeyText(const cache::Key& key);

// InvalidArgument says which part of `text` is wrong and what it may be.
Result<std::variant<cache::Key, KeyName>> ParseKey(const std::string& text);

// InvalidArgument if the stream has no such shard.
Status CheckShard(const KeyName& name, const v1::StreamConfig& stream);

// `chunk_size`: bytes, of a chunk's file.
cache::Key KeyOf(const KeyName& name, const stream::StreamId& stream, int64_t chunk_size);

}  // namespace tailcast::inspect
