// Where entries were when they were last read: saves the look at the bucket. A hint that any key of
// the same slot overwrites; whoever uses it validates what is there.
#pragma once

#include <cstdint>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

// Locations belong to one generation of one server's memory. Never allocates after construction.
class LocationTable {
 public:
  struct Slot {
    Key key;
    layout::Generation generation = layout::Generation::kNone;  // kNone: empty
    layout::Location location;

    bool Holds(layout::Generation memory, const Key& wanted) const {
      return generation == memory && key == wanted;
    }
  };

  // `size` is a power of two.
  explicit LocationTable(uint32_t size) : slots_(size) {
    TAILCAST_CHECK(size > 0 && (size & (size - 1)) == 0,
                   "remembered_locations must be a power of two");
  }
  Slot& SlotOf(layout::Generation generation, const Key& key) {
    const uint64_t mixed = (key.lo + Raw(generation) * 0x9e3779b97f4a7c15) ^ (key.hi >> 32);
    return slots_[mixed & (slots_.size() - 1)];
  }

 private:
  std::vector<Slot> slots_;
};

}  // namespace tailcast::cache
