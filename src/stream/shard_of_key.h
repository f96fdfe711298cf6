// Which shard a key's messages go to: in the library, the command line, C and Python alike.
#pragma once

#include <cstdint>
#include <string_view>

#include "tailcast/base/hash.h"

namespace tailcast::stream {

// In [0, shards), `shards` being at least 1. The second word of the key's 128-bit MurmurHash3 (seed
// 0), modulo `shards`; it never changes: messages of a key would come out of order.
inline int32_t ShardOfKey(std::string_view key, int32_t shards) {
  return static_cast<int32_t>(Hash128(key).lo % static_cast<uint64_t>(shards));
}

}  // namespace tailcast::stream
