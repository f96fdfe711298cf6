// Which replicas hold a key (paper §2.2: consistent hashing). Each replica stands at
// kPointsPerReplica places of a ring of 2^64, at hashes of its name; a key belongs to the first
// three distinct replicas at or after its own place. So one that comes or goes moves only its own
// share, and all clients compute the same placement from the same names, in whatever order they are
// listed. Placement is part of the format (docs/formats/cache_memory.md).
//
// Immutable after construction; any thread. A look-up costs some nanoseconds: a table over the top
// bits of the place finds the point. Rings of the same members share it, in all of a process:
// making one costs a hash for each point.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/hash.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

inline constexpr uint32_t kReplicasPerKey = 3;
inline constexpr uint32_t kOwnersMax = 2 * kReplicasPerKey;  // while the ring changes

// Indexes into RingConfig::replicas, preferred by nobody: the order is that of the ring.
struct Owners {
  std::array<uint16_t, kOwnersMax> replica{};
  uint8_t count = 0;  // of a ring < 3 only if it has fewer replicas

  bool Has(uint16_t index) const {
    return std::find(replica.begin(), replica.begin() + count, index) != replica.begin() + count;
  }
  void Add(uint16_t index) {
    if (!Has(index)) replica[count++] = index;
  }
};

// Which of the rings of a configuration.
enum class WhichRing : uint8_t { kRead, kOther };

class HashRing {
 public:
  static constexpr uint32_t kPointsPerReplica = 256;

  HashRing() = default;
  explicit HashRing(const RingConfig& config, WhichRing which = WhichRing::kRead)
      : members_(MembersOf(config, which)), table_(TableOf(members_)) {}

  // Whether it is that of `config`, by what placement depends on: the names, as they are listed.
  bool IsOf(const RingConfig& config, WhichRing which = WhichRing::kRead) const {
    auto known = members_.begin();
    for (size_t i = 0; i < config.replicas.size(); ++i) {
      const Replica& replica = config.replicas[i];
      if (!IsIn(replica, which)) continue;
      if (known == members_.end() || known->second != i || known->first != replica.name) {
        return false;
      }
      ++known;
    }
    return known == members_.end();
  }
  bool empty() const { return members_.empty(); }

  // count == 0 only if the ring is empty.
  Owners OwnersOf(const Key& key) const {
    if (members_.empty()) return {};
    const Table& table = *table_;
    const uint64_t place = PlaceOf(key);
    const Slot& slot = table.slots[place >> kTableShift];
    size_t at = slot.first;
    // Most slots have no point: their keys' owners are here.
    for (size_t i = 0; i < slot.points && table.places[at] < place; ++i) ++at;
    Owners owners;
    const Kept& kept = at == slot.first ? slot.owners : table.owners[at % table.owners.size()];
    std::copy(kept.begin(), kept.end(), owners.replica.begin());
    owners.count = static_cast<uint8_t>(OwnersPerKey(members_));
    return owners;
  }

  // key.hi is mixed once more, so that the keys of one replica still spread over all tags.
  static uint64_t PlaceOf(const Key& key) {
    return internal::HashFinish(key.hi ^ 0x9e3779b97f4a7c15);
  }

 private:
  static constexpr int kTableShift = 52;
  static constexpr uint64_t kTableSize = 1ull << (64 - kTableShift);
  using Members =
      std::vector<std::pair<std::string, uint16_t>>;   // name, index in the configuration
  using Kept = std::array<uint16_t, kReplicasPerKey>;  // the first OwnersPerKey of them
  // Of places with the same top bits.
  struct Slot {
    uint32_t first = 0;   // point that can be at or after one of them
    uint16_t points = 0;  // that are among them
    Kept owners{};        // of keys at or before the first
  };
  struct Table {
    std::vector<uint64_t> places;  // of all points, sorted
    std::vector<Kept> owners;      // of keys at or before each place
    std::vector<Slot> slots;
  };
  static bool IsIn(const Replica& replica, WhichRing which) {
    return which == WhichRing::kRead ? replica.in_ring : replica.in_other;
  }
  static Members MembersOf(const RingConfig& config, WhichRing which);
  static std::shared_ptr<const Table> TableOf(const Members& members);
  static Table MakeTable(const Members& members);
  static size_t OwnersPerKey(const Members& members) {
    return std::min<size_t>(kReplicasPerKey, members.size());
  }

  Members members_;
  std::shared_ptr<const Table> table_;  // null: no members
};

}  // namespace tailcast::cache
