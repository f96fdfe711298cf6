#include "tailcast/cache/slot_pool.h"

#include <algorithm>

#include "tailcast/base/fault_point.h"

namespace tailcast::cache {
namespace {

FAULT_POINT(kReuseAtOnce, "cache.reuse_at_once", "a slot that is left may be written at once");

uint32_t SlabOf(uint64_t offset) { return static_cast<uint32_t>(offset / layout::kSlabBytes); }
uint16_t SlotOf(uint64_t offset, uint32_t size_class) {
  return static_cast<uint16_t>(offset % layout::kSlabBytes / layout::SlotBytes(size_class));
}

}  // namespace

SlotPool::SlotPool(uint32_t slabs, Duration rest)
    : rest_(rest),
      reserve_(slabs < kReserveFrom ? 0 : std::max(slabs / kReserveShare, 1u)),
      wanted_(reserve_),
      slabs_(slabs) {
  for (uint32_t slab = slabs; slab > 0; --slab) free_slabs_.push_back(slab - 1);
}

uint64_t SlotPool::FreeSlabsFor(uint32_t size_class) const {
  const bool small = classes_[size_class].slabs * kSmallShare < slabs_.size();
  const uint64_t kept = small ? 0 : reserve_;
  return free_slabs_.size() > kept ? free_slabs_.size() - kept : 0;
}

uint64_t SlotPool::TakeIn(uint32_t index, uint32_t entry) {
  Slab& slab = slabs_[index];
  const uint16_t slot = slab.free.back();
  slab.free.pop_back();
  slab.entries[slot] = entry;
  --classes_[slab.size_class].free;
  ++classes_[slab.size_class].live;
  return uint64_t{index} * layout::kSlabBytes + uint64_t{slot} * layout::SlotBytes(slab.size_class);
}

std::optional<uint64_t> SlotPool::Take(uint32_t size_class, uint32_t entry) {
  SizeClass& owner = classes_[size_class];
  while (!owner.with_free.empty()) {
    const uint32_t index = owner.with_free.back();
    Slab& slab = slabs_[index];
    if (!slab.free.empty()) return TakeIn(index, entry);
    slab.listed = false;
    owner.with_free.pop_back();
  }
  if (FreeSlabsFor(size_class) == 0) {
    for (uint32_t other = 0; other < layout::kClassCount; ++other) {
      if (other != size_class && classes_[other].slabs >= 2)
        wanted_ = std::max<size_t>(reserve_, 1);
    }
    return std::nullopt;
  }
  const uint32_t index = free_slabs_.back();
  free_slabs_.pop_back();
  Slab& slab = slabs_[index];
  slab.size_class = static_cast<uint8_t>(size_class);
  slab.listed = true;
  owner.with_free.push_back(index);
  const uint32_t count = layout::SlotsPerSlab(size_class);
  for (uint32_t slot = count; slot > 0; --slot)
    slab.free.push_back(static_cast<uint16_t>(slot - 1));
  slab.entries.assign(count, kNobody);
  ++owner.slabs;
  owner.slots += count;
  owner.free += count;
  return TakeIn(index, entry);
}

void SlotPool::Leave(MonotonicTime now, uint64_t offset) {
  Slab& slab = slabs_[SlabOf(offset)];
  SizeClass& owner = classes_[slab.size_class];
  slab.entries[SlotOf(offset, slab.size_class)] = kNobody;
  --owner.live;
  if (kReuseAtOnce.planted()) return Free(offset);
  ++owner.resting;
  resting_.push_back({now, offset});
}

void SlotPool::Unrest(MonotonicTime now) {
  while (!resting_.empty() && resting_.front().since + rest_ <= now) {
    const uint64_t offset = resting_.front().offset;
    --classes_[slabs_[SlabOf(offset)].size_class].resting;
    Free(offset);
    resting_.pop_front();
  }
}

void SlotPool::Free(uint64_t offset) {
  const uint32_t index = SlabOf(offset);
  Slab& slab = slabs_[index];
  SizeClass& owner = classes_[slab.size_class];
  const uint32_t per_slab = layout::SlotsPerSlab(slab.size_class);
  slab.free.push_back(SlotOf(offset, slab.size_class));
  if (!slab.leaving) ++owner.free;
  if (slab.free.size() == per_slab) {  // nobody's again: another class may need it
    if (slab.listed) std::erase(owner.with_free, index);
    if (slab.leaving) {
      std::erase(leaving_, index);
    } else {
      --owner.slabs;
      owner.slots -= per_slab;
      owner.free -= per_slab;
    }
    slab = Slab{};
    free_slabs_.push_back(index);
    wanted_ = reserve_;
  } else if (!slab.listed && !slab.leaving) {
    slab.listed = true;
    owner.with_free.push_back(index);
  }
}

uint64_t SlotPool::Capacity(uint32_t size_class) const {
  return classes_[size_class].slots + FreeSlabsFor(size_class) * layout::SlotsPerSlab(size_class);
}

uint64_t SlotPool::Available(uint32_t size_class) const {
  return classes_[size_class].free + FreeSlabsFor(size_class) * layout::SlotsPerSlab(size_class);
}

void SlotPool::Reclaim(uint64_t offset) {
  const uint32_t index = SlabOf(offset);
  Slab& slab = slabs_[index];
  if (slab.leaving) return;
  SizeClass& owner = classes_[slab.size_class];
  if (slab.listed) std::erase(owner.with_free, index);
  slab.listed = false;
  slab.leaving = true;
  --owner.slabs;
  owner.slots -= layout::SlotsPerSlab(slab.size_class);
  owner.free -= slab.free.size();
  leaving_.push_back(index);
}

std::optional<uint32_t> SlotPool::NextToLeave() {
  for (const uint32_t index : leaving_) {
    Slab& slab = slabs_[index];
    while (slab.left < slab.entries.size() && slab.entries[slab.left] == kNobody) ++slab.left;
    if (slab.left < slab.entries.size()) return slab.entries[slab.left];
  }
  return std::nullopt;
}

}  // namespace tailcast::cache
