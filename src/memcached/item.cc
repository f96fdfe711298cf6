#include "tailcast/memcached/item.h"

#include <bit>
#include <cstring>

#include "tailcast/base/crc32c.h"
#include "tailcast/base/hash.h"
#include "tailcast/cache/merge.h"

namespace tailcast::memcached {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr std::string_view kMagic = "TCM1";
constexpr size_t kChecksumAt = 4, kRuleAt = 8;
static_assert(kRuleAt + 4 == kItemHeaderBytes);

void AppendHex(std::string& out, uint64_t number) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[(number >> shift) & 15];
}

}  // namespace

ItemFormat::ItemFormat(std::string_view key_space) : prefix_("tailcast:") {
  AppendHex(prefix_, Hash128(key_space).hi);
  prefix_ += ':';
}

std::string ItemFormat::KeyOf(const cache::Key& key) const {
  std::string text = prefix_;
  AppendHex(text, key.hi);
  AppendHex(text, key.lo);
  return text;
}

uint32_t ItemFormat::Checksum(const cache::Key& key, std::string_view rule,
                              std::string_view value) const {
  uint32_t crc = Crc32c(KeyOf(key));
  crc = Crc32cExtend(crc, rule.data(), rule.size());
  return Crc32cExtend(crc, value.data(), value.size());
}

std::string ItemFormat::Encode(const cache::Key& key, cache::MergeRule rule,
                               std::string_view value) const {
  std::string item(kItemHeaderBytes, '\0');
  std::memcpy(item.data(), kMagic.data(), kMagic.size());
  item[kRuleAt] = static_cast<char>(rule);
  const uint32_t crc =
      Checksum(key, std::string_view(item).substr(kRuleAt, kItemHeaderBytes - kRuleAt), value);
  std::memcpy(item.data() + kChecksumAt, &crc, sizeof crc);
  item += value;
  return item;
}

std::optional<ItemFormat::Value> ItemFormat::Decode(const cache::Key& key,
                                                    std::string_view item) const {
  if (item.size() < kItemHeaderBytes || !item.starts_with(kMagic)) return std::nullopt;
  uint32_t crc = 0;
  std::memcpy(&crc, item.data() + kChecksumAt, sizeof crc);
  const std::string_view bytes = item.substr(kItemHeaderBytes);
  if (Checksum(key, item.substr(kRuleAt, kItemHeaderBytes - kRuleAt), bytes) != crc) {
    return std::nullopt;
  }
  // Bytes that a later format may give a meaning are not passed over.
  if (item[kRuleAt + 1] != 0 || item[kRuleAt + 2] != 0 || item[kRuleAt + 3] != 0) {
    return std::nullopt;
  }
  const auto rule = static_cast<uint8_t>(item[kRuleAt]);
  if (rule > static_cast<uint8_t>(cache::MergeRule::kMaxBytes)) return std::nullopt;
  const Value value{static_cast<cache::MergeRule>(rule), bytes};
  if (!cache::WellFormed(value.rule, value.bytes)) return std::nullopt;
  return value;
}

}  // namespace tailcast::memcached
