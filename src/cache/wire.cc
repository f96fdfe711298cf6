#include "tailcast/cache/wire.h"

#include <cstring>

namespace tailcast::cache::wire {

void AppendKey(std::string& keys, const Key& key) {
  char bytes[16];
  std::memcpy(bytes, &key.hi, 8);
  std::memcpy(bytes + 8, &key.lo, 8);
  keys.append(bytes, 16);
}

Key KeyAt(std::string_view keys, size_t index) {
  Key key;
  std::memcpy(&key.hi, keys.data() + 16 * index, 8);
  std::memcpy(&key.lo, keys.data() + 16 * index + 8, 8);
  return key;
}

void Append(v1::CacheBatch& batch, const Key& key, MergeRule rule, bool erase_or_absent,
            std::string_view value, std::optional<uint32_t> remaining_ms) {
  AppendKey(*batch.mutable_keys(), key);
  const auto byte = static_cast<uint8_t>(rule) | (erase_or_absent ? kEraseOrAbsent : 0);
  batch.mutable_rules()->push_back(static_cast<char>(byte));
  batch.add_lengths(static_cast<uint32_t>(value.size()));
  batch.mutable_payload()->append(value);
  if (remaining_ms.has_value()) batch.add_remaining_ms(*remaining_ms);
}

void AppendNotLookedAt(v1::CacheBatch& batch, const Key& key) {
  Append(batch, key, MergeRule::kLongerWins, false, "", 0);
  batch.mutable_rules()->back() = static_cast<char>(kNotLookedAt);
}

Status Reader::Check(const v1::CacheBatch& batch) {
  const size_t count = batch.rules().size();
  if (batch.keys().size() != 16 * count || batch.lengths_size() != static_cast<int64_t>(count) ||
      (batch.remaining_ms_size() != 0 &&
       batch.remaining_ms_size() != static_cast<int64_t>(count))) {
    return InvalidArgumentError("batch.keys, rules, lengths and remaining_ms differ in size (" +
                                std::to_string(batch.keys().size()) + " bytes, " +
                                std::to_string(count) + ", " +
                                std::to_string(batch.lengths_size()) + ", " +
                                std::to_string(batch.remaining_ms_size()) + ")");
  }
  uint64_t bytes = 0;
  for (const uint32_t length : batch.lengths()) bytes += length;
  if (bytes != batch.payload().size()) {
    return InvalidArgumentError("batch.lengths sum to " + std::to_string(bytes) +
                                ", batch.payload has " + std::to_string(batch.payload().size()) +
                                " bytes");
  }
  for (const char byte : batch.rules()) {
    if ((byte & kRuleMask) > static_cast<uint8_t>(MergeRule::kMaxBytes)) {
      return InvalidArgumentError("batch.rules holds the unknown merge rule " +
                                  std::to_string(byte & kRuleMask));
    }
  }
  return OkStatus();
}

bool Reader::Next(Entry& entry) {
  if (index_ >= size()) return false;
  const char byte = batch_.rules()[index_];
  const uint32_t length = batch_.lengths(static_cast<int>(index_));
  entry.key = KeyAt(batch_.keys(), index_);
  entry.rule = static_cast<MergeRule>(byte & kRuleMask);
  entry.erase_or_absent = (byte & kEraseOrAbsent) != 0;
  entry.not_looked_at = (byte & kNotLookedAt) != 0;
  entry.value = std::string_view(batch_.payload()).substr(position_, length);
  entry.remaining_ms.reset();
  if (batch_.remaining_ms_size() > 0) {
    entry.remaining_ms = batch_.remaining_ms(static_cast<int>(index_));
  }
  position_ += length;
  ++index_;
  return true;
}

}  // namespace tailcast::cache::wire
