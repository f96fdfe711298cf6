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

// Of a cell's rings: grows with every step of every change, so that who knows an older one finds
// out. It is four times the number of the ring, and the phase of the change to the next one.
enum class ConfigurationId : uint64_t {};

// How far the change of a ring is (spec Merge: phase).
enum class RingPhase : uint8_t {
  kSettled,  // there is one ring ("old" before a change, "drained" after it)
  kBoth,     // writes reach both rings, the old one is read, the members of the new one are filled
  kNew,      // writes reach both, the new one is read, those that leave become unreadable
};
constexpr RingPhase PhaseOf(ConfigurationId id) {
  return static_cast<RingPhase>(static_cast<uint64_t>(id) % 4);
}
// The number of the ring that is read under `id`.
constexpr uint64_t ReadRing(ConfigurationId id) { return (static_cast<uint64_t>(id) + 2) / 4; }
constexpr ConfigurationId IdOf(uint64_t ring, RingPhase phase) {
  return ConfigurationId{ring * 4 + static_cast<uint64_t>(phase)};
}

// Of a cell's caches: one more whenever what two replicas had acknowledged may have been lost. What
// was acknowledged in an earlier one counts for nothing (spec Merge: epoch).
enum class CacheEpoch : uint64_t {};

}  // namespace tailcast::cache
