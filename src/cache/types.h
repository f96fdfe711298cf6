// Keys, values and merge rules of the cache (paper §2.2). Two instances per cell share the code:
// the data cache holds chunks, the metadata cache lengths and locks.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace tailcast::cache {

// 128-bit hash of everything that identifies a value; made in src/stream/chunk_key.h.
struct Key {
  uint64_t hi = 0;
  uint64_t lo = 0;
  auto operator<=>(const Key&) const = default;
};

// How a replica joins the value it has with the one it is given. All are joins of a lattice, so
// that the order and number of writes does not matter and duelling writers can't clobber each other
// (design rule "longer wins"; spec Merge).
enum class MergeRule : uint8_t {
  // Values are prefixes of the same final bytes: the longer stays. If one is no prefix of the
  // other, both are dropped, counted, and the writer is told kMismatch.
  kLongerWins = 0,
  // Values are arrays of little-endian u64 lanes: element-wise maximum, missing lanes are 0.
  kMaxLanes = 1,
  // Values of equal size compared as big-endian byte strings: the greater stays.
  kMaxBytes = 2,
};

struct Mutation {
  Key key;
  MergeRule rule = MergeRule::kLongerWins;
  bool erase = false;
  std::string value;
};

enum class MutationResult : uint8_t {
  kApplied,   // the replica's value is now at least this one
  kNoChange,  // it was already
  kMismatch,  // contradicting bytes: dropped on this replica (DataLoss)
  kRefused,   // no room, or a value larger than the largest size class
};

// Of a cell's rings: one more with every change, so that a client with an old ring finds out.
enum class ConfigurationId : uint64_t {};

// Of a cell's caches: one more whenever what two replicas had acknowledged may have been lost, or
// the ring changes. What was acknowledged in an earlier one counts for nothing (spec Merge: epoch).
enum class CacheEpoch : uint64_t {};

}  // namespace tailcast::cache
