// Which slot of a server's data region is whose: slabs are given to size classes, their slots to
// entries; a slot that an entry left rests before anybody may write it again
// (docs/formats/cache_memory.md). Decides nothing about values; server_core.h does.
//
//             Take                    all slots free
//   free ───────────▶ of a class ──────────────────────▶ free
//                          │ Reclaim                       ▲
//                          └──────────────▶ leaving ───────┘
//                                           (its free slots are nobody's; live ones are to be left)
//
// A share of the slabs is kept free for classes that have few, so that a first value of another
// size finds room while one class would fill everything (kSmallShare).
//
// Threads: the owner's. Time never goes back.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/cache/memory_layout.h"

namespace tailcast::cache {

class SlotPool {
 public:
  // `rest`: how long a slot rests after it was left.
  SlotPool(uint32_t slabs, Duration rest);

  // A slot of the class for `entry`; its offset in the data region. nullopt: there is none. If
  // another class could give up a slab, the pool is then short of slabs until one has come free.
  std::optional<uint64_t> Take(uint32_t size_class, uint32_t entry);
  // Its entry has left it.
  void Leave(MonotonicTime now, uint64_t offset);
  // Rested slots are free again.
  void Unrest(MonotonicTime now);

  // Slots that the class has or could have, and those of them that it could take now.
  uint64_t Capacity(uint32_t size_class) const;
  uint64_t Available(uint32_t size_class) const;
  uint64_t live(uint32_t size_class) const { return classes_[size_class].live; }
  uint64_t resting(uint32_t size_class) const { return classes_[size_class].resting; }

  // Too few slabs are free or leaving.
  bool ShortOfSlabs() const { return free_slabs_.size() + leaving_.size() < wanted_; }
  bool leaving() const { return !leaving_.empty(); }
  uint32_t slabs_of(uint32_t size_class) const { return classes_[size_class].slabs; }
  // The slab of this slot leaves its class.
  void Reclaim(uint64_t offset);
  // An entry that lies in a leaving slab and has to leave it.
  std::optional<uint32_t> NextToLeave();

  uint64_t resting() const { return resting_.size(); }
  uint64_t slabs() const { return slabs_.size(); }
  uint64_t slabs_used() const { return slabs_.size() - free_slabs_.size(); }

  // Of all slabs: a class that has fewer may take the last free ones.
  static constexpr uint32_t kSmallShare = 8;
  // One in so many is kept free, if there are at least kReserveFrom.
  static constexpr uint32_t kReserveShare = 32, kReserveFrom = 16;

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;

  struct Slab {
    uint8_t size_class = 0xff;  // 0xff: free
    bool listed = false;        // in its class's with_free
    bool leaving = false;
    std::vector<uint16_t> free;
    std::vector<uint32_t> entries;  // by slot
    uint32_t left = 0;              // of one that leaves: no slot before has an entry
  };
  struct SizeClass {
    std::vector<uint32_t> with_free;  // slabs that may have free slots
    uint32_t slabs = 0;               // those that leave are not counted, nor are their slots below
    uint64_t slots = 0, free = 0;
    uint64_t live = 0, resting = 0;  // leaving slabs included
  };
  struct Resting {
    MonotonicTime since;
    uint64_t offset;
  };

  uint64_t FreeSlabsFor(uint32_t size_class) const;
  uint64_t TakeIn(uint32_t slab, uint32_t entry);
  void Free(uint64_t offset);

  const Duration rest_;
  const uint32_t reserve_;
  size_t wanted_;  // slabs that shall be free or leaving
  std::vector<Slab> slabs_;
  std::vector<uint32_t> free_slabs_;
  std::vector<uint32_t> leaving_;
  SizeClass classes_[layout::kClassCount];
  std::deque<Resting> resting_;  // longest resting first
};

}  // namespace tailcast::cache
