// Keys of the cache (design rule "longer wins": identity). A key is a 128-bit hash of everything
// that determines a value's final bytes, so that two values under one key are prefixes of the same
// bytes.
#pragma once

#include <cstdint>

#include "tailcast/cache/types.h"
#include "tailcast/stream/names.h"

namespace tailcast::stream {

// Makes the keys of one shard; holds the hash of the shard's identity so that a chunk's key costs
// one short hash.
class KeyMaker {
 public:
  explicit KeyMaker(const ShardId& shard);
  // Chunk `number` of a part of file `seq`, cut in `chunk_size` bytes.
  cache::Key Chunk(int64_t seq, Part part, int64_t chunk_size, int64_t number) const;
  // The metadata value that holds the metadata of file `seq` and of its neighbours (metadata.h).
  cache::Key MetadataGroup(int64_t seq) const;
  // The lock of file `seq` in one layer (0 primary, 1 cache; operation.h).
  cache::Key Lock(int64_t seq, int layer) const;

 private:
  cache::Key Make(uint64_t kind, uint64_t a, uint64_t b, uint64_t c) const;
  cache::Key shard_;
};

}  // namespace tailcast::stream
