#include "tailcast/stream/names.h"

#include <bit>
#include <cinttypes>
#include <cstdio>

#include "tailcast/base/strong.h"

namespace tailcast::stream {
namespace {

constexpr int kSeqWidth = 10;
constexpr int kCreatedWidth = 19;
constexpr int kByteWidth = 16;
constexpr int kNumberWidth = 14;
constexpr int kChunkSizeWidth = 5;
constexpr size_t kStemSize = kSeqWidth + kCreatedWidth + kByteWidth + kNumberWidth + 3;

constexpr std::string_view kDataSuffix = ".data";
constexpr std::string_view kIndexSuffix = ".index";

// Exactly `width` digits at the front of `text`, which is shortened by them.
std::optional<int64_t> TakeDigits(std::string_view& text, size_t width) {
  if (text.size() < width) return std::nullopt;
  int64_t value = 0;
  for (size_t i = 0; i < width; ++i) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, text[i] - '0', &value)) {
      return std::nullopt;
    }
  }
  text.remove_prefix(width);
  return value;
}

bool TakeDash(std::string_view& text) {
  if (text.empty() || text.front() != '-') return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

bool IsStemChunkSize(int64_t bytes) {
  return bytes == 0 || (bytes >= kChunkSizeMin && bytes <= kChunkSizeMax &&
                        std::has_single_bit(static_cast<uint64_t>(bytes)));
}

std::string Stem::ToString() const {
  char text[kStemSize + 64];
  const int n = std::snprintf(
      text, sizeof text, "%0*" PRId64 "-%0*" PRId64 "-%0*" PRId64 "-%0*" PRId64, kSeqWidth, seq,
      kCreatedWidth, created_us, kByteWidth, start_byte, kNumberWidth, start_number);
  TAILCAST_CHECK(n == static_cast<int>(kStemSize), "a field of the stem overflows its width");
  if (chunk_size == 0) return std::string(text, static_cast<size_t>(n));
  TAILCAST_CHECK(IsStemChunkSize(chunk_size), "no chunk size of a stem");
  char chunk[16];
  std::snprintf(chunk, sizeof chunk, "-%0*" PRId64, kChunkSizeWidth, chunk_size);
  return std::string(text, static_cast<size_t>(n)).append(chunk);
}

std::optional<Stem> Stem::Parse(std::string_view text) {
  const bool says_chunk_size = text.size() == kStemSize + 1 + kChunkSizeWidth;
  if (text.size() != kStemSize && !says_chunk_size) return std::nullopt;
  Stem stem;
  const auto seq = TakeDigits(text, kSeqWidth);
  if (!seq || *seq == 0 || !TakeDash(text)) return std::nullopt;
  const auto created = TakeDigits(text, kCreatedWidth);
  if (!created || !TakeDash(text)) return std::nullopt;
  const auto start_byte = TakeDigits(text, kByteWidth);
  if (!start_byte || !TakeDash(text)) return std::nullopt;
  const auto start_number = TakeDigits(text, kNumberWidth);
  if (!start_number) return std::nullopt;
  stem = {*seq, *created, *start_byte, *start_number, 0};
  if (!says_chunk_size) return stem;
  const auto chunk_size = TakeDash(text) ? TakeDigits(text, kChunkSizeWidth) : std::nullopt;
  if (!chunk_size || *chunk_size == 0 || !IsStemChunkSize(*chunk_size)) return std::nullopt;
  stem.chunk_size = *chunk_size;
  return stem;
}

std::string FileName(const Stem& stem, Part part) {
  return stem.ToString().append(part == Part::kData ? kDataSuffix : kIndexSuffix);
}

std::optional<ParsedFileName> ParseFileName(std::string_view name) {
  const auto parse = [&](std::string_view suffix, Part part) -> std::optional<ParsedFileName> {
    if (!name.ends_with(suffix)) return std::nullopt;
    const auto stem = Stem::Parse(name.substr(0, name.size() - suffix.size()));
    if (!stem) return std::nullopt;
    return ParsedFileName{*stem, part};
  };
  if (auto data = parse(kDataSuffix, Part::kData)) return data;
  return parse(kIndexSuffix, Part::kIndex);
}

std::string CreationKey(int64_t seq, Part part) {
  char text[48];
  std::snprintf(text, sizeof text, "%0*" PRId64, kSeqWidth, seq);
  return std::string(text).append(part == Part::kData ? kDataSuffix : kIndexSuffix);
}

std::string ShardId::ToString() const { return stream.name + "/" + std::to_string(shard); }

std::string FileId::ToString() const { return shard.ToString() + "/" + std::to_string(stem.seq); }

std::string ShardDir(const ShardId& shard) {
  char text[64];
  std::snprintf(text, sizeof text, "/%016" PRIx64 "/%05d", Raw(shard.stream.incarnation),
                shard.shard);
  return "streams/" + shard.stream.name + text;
}

Status ValidateStreamName(std::string_view name) {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  bool good = !name.empty() && name.size() <= 100 && alphanumeric(name.front());
  for (char c : name) good = good && (alphanumeric(c) || c == '_' || c == '.' || c == '-');
  if (good) return OkStatus();
  return InvalidArgumentError(
      "stream name '" + std::string(name.substr(0, 120)) +
      "': use 1 to 100 of a-z A-Z 0-9 _ . - and begin with a letter or digit");
}

}  // namespace tailcast::stream
