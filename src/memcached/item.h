// A value as memcached keeps it (docs/formats/memcached_item.md):
//
//   key     "tailcast:" + 16 hex digits of the key space's hash + ":" + 32 hex digits of the key
//   value   offset  0  u32 magic "TCM1"
//                   4  u32 crc32c of the key above, the bytes [8, 12) and the value
//                   8  u8 merge rule, then three zero bytes
//                  12  the value
//
// The checksum names the key, so an item of another key, of somebody else, or one that was damaged
// on its way is never believed. Little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tailcast/cache/types.h"

namespace tailcast::memcached {

inline constexpr size_t kItemHeaderBytes = 12;

class ItemFormat {
 public:
  explicit ItemFormat(std::string_view key_space);

  std::string KeyOf(const cache::Key& key) const;

  struct Value {
    cache::MergeRule rule = cache::MergeRule::kLongerWins;
    std::string_view bytes;  // in the item
  };
  // nullopt: not one of ours under this key.
  std::optional<Value> Decode(const cache::Key& key, std::string_view item) const;
  std::string Encode(const cache::Key& key, cache::MergeRule rule, std::string_view value) const;

 private:
  uint32_t Checksum(const cache::Key& key, std::string_view rule, std::string_view value) const;

  std::string prefix_;
};

}  // namespace tailcast::memcached
