// The texts of stream: file names, floors, positions, names of streams and cells; and a listing of
// a folder, one name a line.
#include "tailcast/base/check.h"
#include "tailcast/base/status.h"
#include "tailcast/fuzz/target.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/operation.h"
#include "tailcast/stream/position.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::stream {
namespace {

bool IsPrintable(std::string_view text) {
  for (const char c : text) {
    if (c < ' ' || c > '~') return false;
  }
  return true;
}

void TryName(std::string_view text) {
  if (const auto stem = Stem::Parse(text)) {
    TAILCAST_CHECK(stem->ToString() == text, "a stem is exactly what it prints");
    TAILCAST_CHECK(stem->seq > 0 && stem->created_us >= 0 && stem->start_byte >= 0 &&
                   stem->start_number >= 0);
  }
  if (const auto file = ParseFileName(text)) {
    TAILCAST_CHECK(FileName(file->stem, file->part) == text, "a file name is what it prints");
  }
  if (const auto floor = ParseFloorName(text)) {
    TAILCAST_CHECK(*floor > 0 && FloorName(*floor) == text, "a floor is what it prints");
  }
  if (const auto position = Position::Parse(text); position.ok()) {
    TAILCAST_CHECK(position->ToString() == text, "a position is exactly what it prints");
    TAILCAST_CHECK(position->number >= 0 && position->byte >= 0 && position->shard >= 0 &&
                   position->shard < kShardsMax);
  }
  if (ValidateStreamName(text).ok()) {
    TAILCAST_CHECK(text.size() <= 100 && IsPrintable(text) && text.front() != '.');
    TAILCAST_CHECK(text.find('/') == std::string_view::npos, "it is one folder's name");
  }
  if (ValidateCellName(text, "cell").ok()) TAILCAST_CHECK(text.size() <= 63 && IsPrintable(text));
}

void TryListing(std::string_view text) {
  std::vector<storage::DirEntry> entries;
  while (!text.empty() && entries.size() < 64) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    entries.push_back({.name = std::string(line)});
  }
  const auto listing = ShardListing::Parse(entries);
  if (!listing.ok()) {
    TAILCAST_CHECK(IsDataLoss(listing.status()), "a folder can only contradict itself");
    return;
  }
  TAILCAST_CHECK(listing->floor() >= 1 && listing->last() >= 0);
  for (const auto& [seq, pair] : listing->pairs()) {
    TAILCAST_CHECK(pair.stem.seq == seq && seq >= listing->floor() && (pair.has[0] || pair.has[1]));
    if (const auto seal = listing->SealOf(seq)) {
      TAILCAST_CHECK(seal->length[0] >= 0 && seal->length[1] >= 0 &&
                     seal->length[1] % kIndexRecordSize == 0);
    }
  }
}

}  // namespace
}  // namespace tailcast::stream

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tailcast::stream::TryName(text);
  tailcast::stream::TryListing(text);
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  const stream::Stem first = {1, 1763722199123456, 0, 0}, second = {2, 1763722299123456, 640, 20};
  const std::string pair =
      FileName(first, stream::Part::kData) + "\n" + FileName(first, stream::Part::kIndex);
  return {first.ToString(),
          FileName(second, stream::Part::kIndex),
          stream::FloorName(12),
          stream::Position{stream::StreamIncarnation{0x9f3a00c2d1e4b576}, 3, 16842, 17251200}
              .ToString(),
          "flights",
          "europe-west",
          pair,
          pair + "\n" + FileName(second, stream::Part::kData) + "\n" + stream::FloorName(1),
          stream::FloorName(2) + "\n" + pair};
}
