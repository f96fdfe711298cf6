// Building and taking apart the side-by-side arrays of proto/cache.proto. Decoding survives
// whatever a peer sends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/cache/types.h"
#include "tailcast/proto/cache.pb.h"

namespace tailcast::cache::wire {

inline constexpr uint8_t kRuleMask = 0x0f;
inline constexpr uint8_t kEraseOrAbsent = 0x10;
inline constexpr uint8_t kNotLookedAt = 0x20;

void AppendKey(std::string& keys, const Key& key);
Key KeyAt(std::string_view keys, size_t index);

// Adds an entry; `remaining_ms` only if all entries of the batch have one.
void Append(v1::CacheBatch& batch, const Key& key, MergeRule rule, bool erase_or_absent,
            std::string_view value, std::optional<uint32_t> remaining_ms = std::nullopt);

// Adds the answer to a key that was left out.
void AppendNotLookedAt(v1::CacheBatch& batch, const Key& key);

struct Entry {
  Key key;
  MergeRule rule = MergeRule::kLongerWins;
  bool erase_or_absent = false;
  bool not_looked_at = false;  // in an answer: nothing else of the entry means anything
  std::string_view value;      // into the batch
  std::optional<uint32_t> remaining_ms;
};

// Walks over a batch that was checked.
class Reader {
 public:
  // InvalidArgument: the arrays do not fit each other, or a rule that does not exist.
  static Status Check(const v1::CacheBatch& batch);
  explicit Reader(const v1::CacheBatch& batch) : batch_(batch) {}
  size_t size() const { return batch_.rules().size(); }
  bool Next(Entry& entry);

 private:
  const v1::CacheBatch& batch_;
  size_t index_ = 0, position_ = 0;
};

}  // namespace tailcast::cache::wire
