// What the metadata cache knows of a message file's pair (paper §2.2, §3).
//
// A value holds kPairsPerGroup pairs side by side as u64 lanes that merge by maximum, so one read
// gives a consumer the file it is at and the ones that follow. All fields only grow (0 = not
// known): the merge of any two values is a value that some reader could have seen (spec Merge).
//
// Lengths are hints (design rule): a wrong one costs time, never correctness.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tailcast/cache/types.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/names.h"

namespace tailcast::stream {

inline constexpr int kPairsPerGroup = 8;
inline constexpr int kPairLanes = 16;

struct PairMetadata {
  int64_t created_us = 0;                                // lane 0; 0: the file is not known
  int64_t start_byte = 0;                                // lane 1
  int64_t start_number = 0;                              // lane 2
  int64_t cache_length[kParts] = {0, 0};                 // lanes 3, 4: bytes, data and index
  int64_t primary_length[kParts] = {0, 0};               // lanes 5, 6
  storage::Epoch primary_epoch = storage::Epoch::kNone;  // lane 7
  std::optional<int64_t> seal[kParts];                   // lanes 8, 9, stored as length + 1
  int64_t heartbeat_us = 0;     // lane 10: wall time at which the writer of this was alive and
                                // every byte it knew of was published
  int64_t chunk_size = 0;       // lane 11: bytes
  int64_t stem_chunk_size = 0;  // lane 12: as in the stem; 0: it says none

  bool known() const { return created_us != 0; }
  bool sealed() const { return seal[0].has_value() && seal[1].has_value(); }
  friend bool operator==(const PairMetadata&, const PairMetadata&) = default;
};

// The number of the group that holds `seq`.
inline int64_t MetadataGroupOf(int64_t seq) { return seq / kPairsPerGroup; }

// A value for the group of `seq` in which only the known fields of `metadata` are set: writing it
// merges them into what the replicas have.
std::string EncodePairMetadata(int64_t seq, const PairMetadata& metadata);
// What a value of its group says of `seq`; not known() if the value is short, odd-sized,
// or has impossible fields (negative, or above 2^56).
PairMetadata DecodePairMetadata(int64_t seq, std::string_view group_value);
// Field-wise maximum.
PairMetadata Merge(const PairMetadata& a, const PairMetadata& b);
// The stem of `seq` from its metadata.
inline Stem StemOf(int64_t seq, const PairMetadata& r) {
  return Stem{seq, r.created_us, r.start_byte, r.start_number, r.stem_chunk_size};
}

}  // namespace tailcast::stream
