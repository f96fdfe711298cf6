// The lock of one message file in one layer (paper §3, Dueling Writers; spec Locks): who copies it.
//
// The lock is a maximum register in the metadata cache: the greatest value ever written stays.
// Taking the lock, poisoning it and releasing it all write a greater value, so nothing is ever
// compared and swapped and a replica that missed a write is joined later. Locks only save wasted
// work: "longer wins" and fences keep the bytes right without them, and an unreachable metadata
// cache stops nobody.
//
// Values below are (term, owner, state), a term as scheduler incarnation . attempt of one tree:
//
//   scheduler s7 starts op A:   A writes (7.1, w1, held)        -> A holds it
//   scheduler s7 starts op B:   B sees A held: writes (7.1, w1, poisoned), waits for A's release
//                               A sees its poison, ends, writes (7.1, w1, released)
//                               B writes (7.2, w2, held)        -> B holds it
//   A is dead instead:          after the seize delay B writes (7.2, w2, held); if A wakes it sees
//                               a greater value than its own and ends
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tailcast/stream/term.h"

namespace tailcast::stream {

enum class LockState : uint64_t { kHeld = 1, kPoisoned = 2, kReleased = 3 };

// Compared in the order of the fields.
struct LockValue {
  Term term;  // of the operation
  // LockOwner of operation.h: hash of the writer's name and nonce. Unique for each operation, and
  // breaks ties.
  uint64_t owner = 0;
  LockState state = LockState::kHeld;

  auto operator<=>(const LockValue&) const = default;
  bool SameOperation(const LockValue& o) const { return term == o.term && owner == o.owner; }
};

// 24 bytes, three big-endian words, so that byte order is value order
// (cache::MergeRule::kMaxBytes).
std::string EncodeLock(const LockValue& value);
// nullopt if it is no lock value.
std::optional<LockValue> DecodeLock(std::string_view bytes);

}  // namespace tailcast::stream
