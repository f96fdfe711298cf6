#include "tailcast/stream/position.h"

#include <cinttypes>
#include <cstdio>
#include <optional>

#include "tailcast/base/strong.h"
#include "tailcast/stream/names.h"

namespace tailcast::stream {
namespace {

constexpr std::string_view kVersion = "t1.";

// A decimal number without leading zeros up to the next '.' or the end; takes the dot too.
std::optional<int64_t> TakeNumber(std::string_view& text, bool last) {
  const size_t dot = text.find('.');
  if ((dot == std::string_view::npos) != last) return std::nullopt;
  const std::string_view digits = last ? text : text.substr(0, dot);
  if (digits.empty() || (digits.size() > 1 && digits[0] == '0')) return std::nullopt;
  int64_t value = 0;
  for (char c : digits) {
    if (c < '0' || c > '9' || __builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, c - '0', &value)) {
      return std::nullopt;
    }
  }
  text.remove_prefix(last ? text.size() : dot + 1);
  return value;
}

std::optional<Position> TryParse(std::string_view text) {
  if (!text.starts_with(kVersion)) return std::nullopt;
  text.remove_prefix(kVersion.size());
  if (text.size() < 17 || text[16] != '.') return std::nullopt;
  Position position;
  uint64_t incarnation = 0;
  for (char c : text.substr(0, 16)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    incarnation = incarnation << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  position.incarnation = StreamIncarnation{incarnation};
  text.remove_prefix(17);
  const auto shard = TakeNumber(text, false);
  if (!shard || *shard >= kShardsMax) return std::nullopt;
  const auto number = TakeNumber(text, false);
  if (!number) return std::nullopt;
  const auto byte = TakeNumber(text, true);
  if (!byte) return std::nullopt;
  position.shard = static_cast<int32_t>(*shard);
  position.number = *number;
  position.byte = *byte;
  return position;
}

}  // namespace

std::string Position::ToString() const {
  char text[96];
  const int n = std::snprintf(text, sizeof text, "t1.%016" PRIx64 ".%d.%" PRId64 ".%" PRId64,
                              Raw(incarnation), shard, number, byte);
  return std::string(text, static_cast<size_t>(n));
}

Result<Position> Position::Parse(std::string_view text) {
  if (const auto position = TryParse(text)) return *position;
  return InvalidArgumentError(
      "'" + std::string(text.substr(0, 120)) +
      "' is no position; one looks like t1.9f3a00c2d1e4b576.3.16842.17251200"
      " (incarnation, shard, messages and bytes before it)");
}

}  // namespace tailcast::stream
