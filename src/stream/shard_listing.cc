#include "tailcast/stream/shard_listing.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "tailcast/stream/index_record.h"

namespace tailcast::stream {
namespace {
constexpr size_t kSeqDigits = 10;
constexpr std::string_view kFloorSuffix = ".floor";
}  // namespace

std::string FloorName(int64_t seq) {
  char text[48];
  const int n = std::snprintf(text, sizeof text, "%010" PRId64, seq);
  return std::string(text, static_cast<size_t>(n)).append(kFloorSuffix);
}

std::optional<int64_t> ParseFloorName(std::string_view name) {
  if (name.size() != kSeqDigits + kFloorSuffix.size() || !name.ends_with(kFloorSuffix)) {
    return std::nullopt;
  }
  int64_t seq = 0;
  for (char c : name.substr(0, kSeqDigits)) {
    if (c < '0' || c > '9') return std::nullopt;
    seq = seq * 10 + (c - '0');
  }
  if (seq == 0) return std::nullopt;
  return seq;
}

std::optional<Seal> SealBetween(const Stem& stem, const Stem& next) {
  const int64_t data = next.start_byte - stem.start_byte;
  const int64_t messages = next.start_number - stem.start_number;
  if (next.seq != stem.seq + 1 || data < 0 || messages < 0) return std::nullopt;
  return Seal{{data, messages * kIndexRecordSize}};
}

int64_t BytesBetween(const Stem& from, const Stem& to) {
  return to.start_byte - from.start_byte + (to.start_number - from.start_number) * kIndexRecordSize;
}

Result<ShardListing> ShardListing::Parse(const std::vector<storage::DirEntry>& entries) {
  ShardListing listing;
  for (const storage::DirEntry& entry : entries) {
    if (const auto floor = ParseFloorName(entry.name)) {
      listing.floor_ = std::max(listing.floor_, *floor);
      continue;
    }
    const auto parsed = ParseFileName(entry.name);
    if (!parsed) {
      ++listing.foreign_names_;
      continue;
    }
    const int64_t seq = parsed->stem.seq;
    const auto [it, added] = listing.pairs_.try_emplace(seq, ListedPair{parsed->stem});
    if (!added && it->second.stem != parsed->stem) {
      return DataLossError("two message files have sequence number " + std::to_string(seq) + ": " +
                           it->second.stem.ToString() + " and " + entry.name);
    }
    it->second.has[static_cast<int>(parsed->part)] = true;
  }
  // What retention has declared gone is gone, whether it was deleted already or not.
  listing.pairs_.erase(listing.pairs_.begin(), listing.pairs_.lower_bound(listing.floor_));
  return listing;
}

const ListedPair* ShardListing::Find(int64_t seq) const {
  const auto it = pairs_.find(seq);
  return it == pairs_.end() ? nullptr : &it->second;
}

std::optional<Seal> ShardListing::SealOf(int64_t seq) const {
  const ListedPair* pair = Find(seq);
  const ListedPair* next = Find(seq + 1);
  if (pair == nullptr || next == nullptr) return std::nullopt;
  return SealBetween(pair->stem, next->stem);
}

}  // namespace tailcast::stream
