// What a listing of a shard's folder says (docs/formats/names.md): which pairs there are, where
// each closed one ends, and from where on files are kept.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/storage/store.h"
#include "tailcast/stream/names.h"

namespace tailcast::stream {

// The bytes of a closed file that count.
struct Seal {
  int64_t length[kParts] = {0, 0};
  friend bool operator==(const Seal&, const Seal&) = default;
};

struct ListedPair {
  Stem stem;
  bool has[kParts] = {false, false};
  bool complete() const { return has[0] && has[1]; }
};

class ShardListing {
 public:
  // Names that are none of ours are counted and left out. Two stems under one sequence number can't
  // be (creation is exclusive): that is DataLoss and names both.
  static Result<ShardListing> Parse(const std::vector<storage::DirEntry>& entries);

  const std::map<int64_t, ListedPair>& pairs() const { return pairs_; }
  // The lowest sequence number that this cell keeps; 1 unless a floor marker says more. Everything
  // at or above it was or will be copied here: an absent one is a hole, to wait for, never to skip.
  int64_t floor() const { return floor_; }
  int64_t foreign_names() const { return foreign_names_; }

  const ListedPair* Find(int64_t seq) const;
  // The highest sequence number of which anything exists; 0 in an empty folder.
  int64_t last() const { return pairs_.empty() ? 0 : pairs_.rbegin()->first; }
  // The end of `seq`, from its own stem and its successor's. nullopt unless both are listed.
  std::optional<Seal> SealOf(int64_t seq) const;

 private:
  std::map<int64_t, ListedPair> pairs_;
  int64_t floor_ = 1;
  int64_t foreign_names_ = 0;
};

// The end of file n from the stems of n and n + 1. nullopt if they contradict each other.
std::optional<Seal> SealBetween(const Stem& stem, const Stem& next);

// What the files from `from` up to the one before `to` take, data and index: what retention counts.
int64_t BytesBetween(const Stem& from, const Stem& to);

// "0000000012.floor": retention writes it before it deletes anything below `seq`.
std::string FloorName(int64_t seq);
std::optional<int64_t> ParseFloorName(std::string_view name);

}  // namespace tailcast::stream
