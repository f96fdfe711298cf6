#include "tailcast/cache/server_core.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/merge.h"

namespace tailcast::cache {
namespace {

FAULT_POINT(kHeaderBeforeBytes, "cache.header_before_bytes",
            "an extension's header is stored before its bytes");
FAULT_POINT(kReuseAtOnce, "cache.reuse_at_once", "a slot that is left may be written at once");

}  // namespace

MemoryPlan PlanMemory(uint64_t total_bytes, uint32_t value_bytes) {
  const uint32_t size_class = layout::ClassFor(value_bytes).value_or(layout::kClassCount - 1);
  const uint64_t per_value = layout::SlotBytes(size_class) + layout::kBucketBytes * 10 / 14;
  const uint64_t values = std::max<uint64_t>(total_bytes / per_value, 64);
  MemoryPlan plan;
  plan.index_bytes = layout::kHeaderPageBytes + (values * 10 / 14 + 1) * layout::kBucketBytes;
  const uint64_t slabs =
      (total_bytes > plan.index_bytes ? total_bytes - plan.index_bytes : 0) / layout::kSlabBytes;
  plan.data_bytes = std::max<uint64_t>(slabs, layout::kClassCount) * layout::kSlabBytes;
  return plan;
}

ServerCore::ServerCore(ServerCoreOptions options, std::span<char> index, std::span<char> data,
                       layout::Generation generation)
    : options_(std::move(options)), index_(index), data_(data) {
  TAILCAST_CHECK(generation != layout::Generation::kNone);
  TAILCAST_CHECK(index.size() >= layout::kHeaderPageBytes + layout::kBucketBytes,
                 "the index region has no room for a bucket");
  geometry_.generation = generation;
  geometry_.bucket_count =
      static_cast<uint32_t>((index.size() - layout::kHeaderPageBytes) / layout::kBucketBytes);
  geometry_.data_bytes = data.size() / layout::kSlabBytes * layout::kSlabBytes;
  geometry_.heartbeat_interval_us = static_cast<uint64_t>(options_.heartbeat_interval.micros());
  slabs_.resize(geometry_.data_bytes / layout::kSlabBytes);
  for (uint32_t slab = static_cast<uint32_t>(slabs_.size()); slab > 0; --slab) {
    free_slabs_.push_back(slab - 1);
  }
  for (uint64_t bucket = 0; bucket < geometry_.bucket_count; ++bucket) SealBucket(bucket, false);
  layout::StoreGeometry(index_.data(), geometry_);
}

// ---- Mutations ----

MutationResult ServerCore::Apply(Instant now, const Key& key, MergeRule rule,
                                 std::string_view value, Duration remaining,
                                 std::vector<uint64_t>& doorbells) {
  if (value.size() > layout::kValueBytesMax) {
    ++counts_.refused;
    ++counts_.refused_too_large;
    return MutationResult::kRefused;
  }
  if (!WellFormed(rule, value)) {
    ++counts_.refused;
    ++counts_.refused_malformed;
    return MutationResult::kRefused;
  }
  remaining = std::min(remaining, options_.ttl);
  const auto found = ids_.find(key);
  if (found != ids_.end() && entries_[found->second].expiry <= now.monotonic) {
    ++counts_.expired;
    Drop(now, found->second, doorbells);
    return Insert(now, key, rule, value, remaining, doorbells);
  }
  if (found == ids_.end()) return Insert(now, key, rule, value, remaining, doorbells);

  const uint32_t id = found->second;
  const MutationResult result = entries_[id].rule != rule
                                    ? MutationResult::kMismatch
                                    : CompareForMerge(rule, BytesOf(entries_[id]), value);
  if (result == MutationResult::kNoChange) {
    ++counts_.no_change;
    return result;
  }
  if (result == MutationResult::kMismatch) {
    ++counts_.mismatches;
    Drop(now, id, doorbells);
    return result;
  }
  const uint32_t capacity = layout::kClassPayloadBytes[entries_[id].size_class];
  if (rule == MergeRule::kLongerWins && value.size() <= capacity) {
    Extend(now, id, value, remaining, doorbells);
    ++counts_.extended_in_place;
    ++counts_.applied;
    return MutationResult::kApplied;
  }
  merged_.assign(BytesOf(entries_[id]));
  MergeInto(rule, merged_, value);
  const uint32_t size_class =
      std::max<uint32_t>(*layout::ClassFor(merged_.size()), entries_[id].size_class);
  MakeRoom(now, size_class, doorbells);
  // Making room may have forgotten the very entry, if it was the oldest of all.
  if (!entries_[id].live || !(entries_[id].key == key)) {
    return Insert(now, key, rule, std::string(merged_), remaining, doorbells);
  }
  if (!Move(now, id, merged_, size_class, remaining, doorbells)) {
    ++counts_.refused;
    ++counts_.refused_no_slot;
    return MutationResult::kRefused;
  }
  ++counts_.moved;
  ++counts_.applied;
  return MutationResult::kApplied;
}

MutationResult ServerCore::Insert(Instant now, const Key& key, MergeRule rule,
                                  std::string_view value, Duration remaining,
                                  std::vector<uint64_t>& doorbells) {
  if (value.empty() || remaining <= Duration()) {
    ++counts_.no_change;
    return MutationResult::kNoChange;
  }
  uint64_t bytes = value.size();
  if (rule == MergeRule::kLongerWins)
    bytes = std::max<uint64_t>(bytes, options_.growth_floor_bytes);
  const uint32_t size_class = layout::ClassFor(bytes).value_or(layout::kClassCount - 1);
  MakeRoom(now, size_class, doorbells);
  const uint64_t bucket = BucketOf(key);
  const std::optional<uint8_t> way = FreeWay(bucket);
  if (!way.has_value() && overflowed_count_ >= options_.overflow_entries_max) {
    ++counts_.refused;
    ++counts_.refused_overflow;
    return MutationResult::kRefused;
  }
  uint32_t id = static_cast<uint32_t>(entries_.size());
  if (free_ids_.empty()) {
    entries_.emplace_back();
  } else {
    id = free_ids_.back();
    free_ids_.pop_back();
  }
  Entry& entry = entries_[id];
  entry = Entry{};
  entry.key = key;
  entry.rule = rule;
  entry.live = true;
  entry.list = remaining < options_.ttl ? 1 : 0;
  entry.way = way.value_or(kOverflowed);
  if (entry.way == kOverflowed) {
    // Flagged first: a reader that misses the key in the bucket must be told to ask.
    overflowed_[bucket].push_back(id);
    ++overflowed_count_;
    SealBucket(bucket, false);
  }
  if (!Move(now, id, value, size_class, remaining, doorbells)) {
    if (entry.way == kOverflowed) {
      overflowed_[bucket].pop_back();
      if (overflowed_[bucket].empty()) overflowed_.erase(bucket);
      --overflowed_count_;
      SealBucket(bucket, false);
    }
    entries_[id] = Entry{};
    free_ids_.push_back(id);
    ++counts_.refused;
    ++counts_.refused_no_slot;
    return MutationResult::kRefused;
  }
  ids_.emplace(key, id);
  if (entries_[id].way == kOverflowed) ++counts_.overflows;
  ++counts_.inserted;
  ++counts_.applied;
  return MutationResult::kApplied;
}

bool ServerCore::Move(Instant now, uint32_t id, std::string_view value, uint32_t size_class,
                      Duration remaining, std::vector<uint64_t>& doorbells) {
  const std::optional<uint64_t> offset = AllocateSlot(size_class);
  if (!offset.has_value()) return false;
  Entry& entry = entries_[id];
  const bool had_slot = entry.version != 0;
  const uint64_t old_offset = entry.offset;
  if (had_slot) {
    Unlink(id);
    --classes_[entry.size_class].live;
    live_bytes_ -= entry.length;
  }
  entry.offset = *offset;
  entry.length = static_cast<uint32_t>(value.size());
  entry.crc = Crc32c(value);
  entry.version = next_version_++;
  entry.size_class = static_cast<uint8_t>(size_class);
  // A repaired value never shortens the life of what is here.
  entry.expiry =
      had_slot ? std::max(entry.expiry, now.monotonic + remaining) : now.monotonic + remaining;
  if (remaining >= options_.ttl) entry.list = 0;
  ++classes_[size_class].live;
  live_bytes_ += entry.length;
  Link(id);

  layout::StoreBytes(SlotAt(*offset) + layout::kEntryHeaderBytes, value);
  std::atomic_thread_fence(std::memory_order_release);
  Step();
  layout::StoreEntryHeader(SlotAt(*offset), HeaderOf(entry, now));
  std::atomic_thread_fence(std::memory_order_release);
  Step();
  Publish(entry, doorbells);
  Step();
  if (had_slot) Rest(now, old_offset);
  return true;
}

void ServerCore::Extend(Instant now, uint32_t id, std::string_view value, Duration remaining,
                        std::vector<uint64_t>& doorbells) {
  Entry& entry = entries_[id];
  Unlink(id);
  const std::string_view suffix = value.substr(entry.length);
  char* slot = SlotAt(entry.offset);
  char* end = slot + layout::kEntryHeaderBytes + entry.length;
  live_bytes_ += suffix.size();
  entry.crc = Crc32cExtend(entry.crc, suffix.data(), suffix.size());
  entry.length = static_cast<uint32_t>(value.size());
  entry.version = next_version_++;
  entry.expiry = std::max(entry.expiry, now.monotonic + remaining);
  if (remaining >= options_.ttl) entry.list = 0;
  Link(id);

  if (kHeaderBeforeBytes.planted()) {
    layout::StoreEntryHeader(slot, HeaderOf(entry, now));
    Step();
    layout::StoreBytes(end, suffix);
  } else {
    layout::StoreBytes(end, suffix);
    std::atomic_thread_fence(std::memory_order_release);
    Step();
    layout::StoreEntryHeader(slot, HeaderOf(entry, now));
  }
  std::atomic_thread_fence(std::memory_order_release);
  Step();
  Publish(entry, doorbells);
  Step();
}

layout::EntryHeader ServerCore::HeaderOf(const Entry& entry, Instant now) const {
  layout::EntryHeader header;
  header.key = entry.key;
  header.version = entry.version;
  header.length = entry.length;
  header.payload_crc = entry.crc;
  header.expiry_us = (now.wall + (entry.expiry - now.monotonic)).micros();
  header.generation = geometry_.generation;
  header.rule = entry.rule;
  return header;
}

MutationResult ServerCore::Erase(Instant now, const Key& key, std::vector<uint64_t>& doorbells) {
  const auto found = ids_.find(key);
  if (found == ids_.end()) {
    ++counts_.no_change;
    return MutationResult::kNoChange;
  }
  Drop(now, found->second, doorbells);
  ++counts_.erased;
  return MutationResult::kApplied;
}

void ServerCore::Drop(Instant now, uint32_t id, std::vector<uint64_t>& doorbells) {
  Entry& entry = entries_[id];
  const uint64_t bucket = BucketOf(entry.key);
  const bool notify = entry.rule != MergeRule::kLongerWins;
  layout::PoisonEntryHeader(SlotAt(entry.offset));
  std::atomic_thread_fence(std::memory_order_release);
  Step();
  if (entry.way == kOverflowed) {
    std::vector<uint32_t>& others = overflowed_[bucket];
    others.erase(std::find(others.begin(), others.end(), id));
    if (others.empty()) overflowed_.erase(bucket);
    --overflowed_count_;
  } else if (const auto others = overflowed_.find(bucket); others != overflowed_.end()) {
    // One of the bucket's overflowed keys takes the place.
    Entry& promoted = entries_[others->second.front()];
    promoted.way = entry.way;
    others->second.erase(others->second.begin());
    if (others->second.empty()) overflowed_.erase(others);
    --overflowed_count_;
    StoreIndexEntry(bucket, promoted.way, layout::TagOf(promoted.key),
                    layout::PackLocation({promoted.offset, promoted.length}));
  } else {
    StoreIndexEntry(bucket, entry.way, 0, 0);
  }
  SealBucket(bucket, notify);
  if (notify) doorbells.push_back(layout::BucketOffset(bucket));
  Step();
  Unlink(id);
  --classes_[entry.size_class].live;
  live_bytes_ -= entry.length;
  Rest(now, entry.offset);
  ids_.erase(entry.key);
  entry = Entry{};
  free_ids_.push_back(id);
}

// ---- Index ----

void ServerCore::Publish(const Entry& entry, std::vector<uint64_t>& doorbells) {
  const uint64_t bucket = BucketOf(entry.key);
  const bool notify = entry.rule != MergeRule::kLongerWins;
  if (entry.way != kOverflowed) {
    StoreIndexEntry(bucket, entry.way, layout::TagOf(entry.key),
                    layout::PackLocation({entry.offset, entry.length}));
  }
  if (entry.way != kOverflowed || notify) SealBucket(bucket, notify);
  if (notify) doorbells.push_back(layout::BucketOffset(bucket));
}

void ServerCore::StoreIndexEntry(uint64_t bucket, uint32_t way, uint64_t tag, uint64_t location) {
  char* at = BucketAt(bucket) + 16 + size_t{16} * way;
  layout::StoreWord(at, tag);
  layout::StoreWord(at + 8, location);
}

void ServerCore::SealBucket(uint64_t bucket, bool notify) {
  char* at = BucketAt(bucket);
  const uint32_t doorbell = layout::LoadHalf(at) + (notify ? 1 : 0);
  const uint32_t flags =
      !overflowed_.empty() && overflowed_.contains(bucket) ? layout::kFlagOverflow : 0;
  const auto configuration = static_cast<uint32_t>(Raw(configuration_id_));
  const uint64_t first = layout::Halves(doorbell, flags);
  char copy[12];
  std::memcpy(copy, &first, 8);
  std::memcpy(copy + 8, &configuration, 4);
  const uint32_t crc = Crc32cExtend(Crc32cExtend(0, copy, 12), at + 16, layout::kBucketBytes - 16);
  layout::StoreWord(at + 8, layout::Halves(configuration, crc));
  // The doorbell last, so that whom it wakes finds the bucket whole.
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at))
      .store(first, std::memory_order_release);
}

std::optional<uint8_t> ServerCore::FreeWay(uint64_t bucket) const {
  const char* at = index_.data() + layout::BucketOffset(bucket) + 16;
  for (uint8_t way = 0; way < layout::kBucketEntries; ++way) {
    if (layout::LoadWord(at + size_t{16} * way) == 0) return way;
  }
  return std::nullopt;
}

void ServerCore::SetConfiguration(ConfigurationId configuration_id) {
  configuration_id_ = configuration_id;
  layout::StoreWord(index_.data() + layout::kConfigurationOffset, Raw(configuration_id));
  for (uint64_t bucket = 0; bucket < geometry_.bucket_count; ++bucket) SealBucket(bucket, false);
}

// ---- Slots ----

std::optional<uint64_t> ServerCore::AllocateSlot(uint32_t size_class) {
  SizeClass& owner = classes_[size_class];
  while (!owner.with_free.empty()) {
    const uint32_t index = owner.with_free.back();
    Slab& slab = slabs_[index];
    if (!slab.free.empty()) {
      const uint16_t slot = slab.free.back();
      slab.free.pop_back();
      --owner.free;
      return uint64_t{index} * layout::kSlabBytes + uint64_t{slot} * layout::SlotBytes(size_class);
    }
    slab.listed = false;
    owner.with_free.pop_back();
  }
  if (free_slabs_.empty()) return std::nullopt;
  const uint32_t index = free_slabs_.back();
  free_slabs_.pop_back();
  Slab& slab = slabs_[index];
  slab.size_class = static_cast<uint8_t>(size_class);
  slab.listed = true;
  owner.with_free.push_back(index);
  const uint32_t count = layout::SlotsPerSlab(size_class);
  for (uint32_t slot = count; slot > 1; --slot)
    slab.free.push_back(static_cast<uint16_t>(slot - 1));
  owner.slots += count;
  owner.free += count - 1;
  return uint64_t{index} * layout::kSlabBytes;
}

void ServerCore::Rest(Instant now, uint64_t offset) {
  if (kReuseAtOnce.planted()) return FreeSlot(offset);
  resting_.push_back({now.monotonic, offset});
  ++classes_[slabs_[offset / layout::kSlabBytes].size_class].resting;
}

void ServerCore::FreeSlot(uint64_t offset) {
  const auto index = static_cast<uint32_t>(offset / layout::kSlabBytes);
  Slab& slab = slabs_[index];
  SizeClass& owner = classes_[slab.size_class];
  const uint32_t per_slab = layout::SlotsPerSlab(slab.size_class);
  slab.free.push_back(
      static_cast<uint16_t>(offset % layout::kSlabBytes / layout::SlotBytes(slab.size_class)));
  ++owner.free;
  if (slab.free.size() == per_slab) {  // nobody's again: another class may need it
    if (slab.listed) {
      owner.with_free.erase(std::find(owner.with_free.begin(), owner.with_free.end(), index));
    }
    owner.slots -= per_slab;
    owner.free -= per_slab;
    slab = Slab{};
    free_slabs_.push_back(index);
  } else if (!slab.listed) {
    slab.listed = true;
    owner.with_free.push_back(index);
  }
}

void ServerCore::Unrest(MonotonicTime now) {
  while (!resting_.empty() && resting_.front().since + options_.rest <= now) {
    const uint64_t offset = resting_.front().offset;
    --classes_[slabs_[offset / layout::kSlabBytes].size_class].resting;
    FreeSlot(offset);
    resting_.pop_front();
  }
}

uint64_t ServerCore::Capacity(uint32_t size_class) const {
  return classes_[size_class].slots +
         free_slabs_.size() * uint64_t{layout::SlotsPerSlab(size_class)};
}

uint64_t ServerCore::Available(uint32_t size_class) const {
  return classes_[size_class].free +
         free_slabs_.size() * uint64_t{layout::SlotsPerSlab(size_class)};
}

uint32_t ServerCore::OldestOf(uint32_t size_class) const {
  const uint32_t a = classes_[size_class].lists[0].head;
  const uint32_t b = classes_[size_class].lists[1].head;
  if (a == kNone) return b;
  if (b == kNone) return a;
  return entries_[b].expiry < entries_[a].expiry ? b : a;
}

void ServerCore::MakeRoom(Instant now, uint32_t size_class, std::vector<uint64_t>& doorbells) {
  Unrest(now.monotonic);
  SizeClass& owner = classes_[size_class];
  if (now.monotonic - owner.window_start >= options_.rest) {
    const bool adjacent = now.monotonic - owner.window_start < options_.rest * 2;
    owner.taken_before = adjacent ? owner.taken : 0;
    owner.taken = 0;
    owner.window_start = now.monotonic;
  }
  ++owner.taken;
  // A write evicts at most four, so that none waits long for the others' garbage.
  for (int i = 0; i < 4; ++i) {
    const auto capacity = static_cast<double>(Capacity(size_class));
    const auto live = static_cast<double>(owner.live);
    const bool full = live + 1 > options_.collect_from * capacity;
    // A slot that is left rests before it is room again. So as many must be free or resting as one
    // rest's writes will take, and a quarter more; else values go earlier, down to a tenth of the
    // class, before a write is refused.
    const auto coming = static_cast<double>(Available(size_class) + owner.resting);
    const auto needed = 1.25 * static_cast<double>(std::max(owner.taken, owner.taken_before));
    const bool scarce = coming < needed && live > 0.1 * capacity;
    if (!full && !scarce) return;
    const uint32_t oldest = OldestOf(size_class);
    if (oldest == kNone) return;
    ++counts_.collected;
    Drop(now, oldest, doorbells);
  }
}

// ---- Lists: each ordered by the last change, oldest first ----

void ServerCore::Link(uint32_t id) {
  Entry& entry = entries_[id];
  List& list = classes_[entry.size_class].lists[entry.list];
  entry.previous = list.tail;
  entry.next = kNone;
  (list.tail == kNone ? list.head : entries_[list.tail].next) = id;
  list.tail = id;
}

void ServerCore::Unlink(uint32_t id) {
  Entry& entry = entries_[id];
  List& list = classes_[entry.size_class].lists[entry.list];
  (entry.previous == kNone ? list.head : entries_[entry.previous].next) = entry.next;
  (entry.next == kNone ? list.tail : entries_[entry.next].previous) = entry.previous;
  entry.previous = entry.next = kNone;
}

// ---- Time, reads, statistics ----

void ServerCore::Tick(Instant now, std::vector<uint64_t>& doorbells) {
  layout::StoreWord(index_.data() + layout::kHeartbeatOffset, ++heartbeats_);
  uint32_t budget = kForgottenPerTick;
  for (SizeClass& size_class : classes_) {
    for (List& list : size_class.lists) {
      while (budget > 0 && list.head != kNone && entries_[list.head].expiry <= now.monotonic) {
        --budget;
        ++counts_.expired;
        Drop(now, list.head, doorbells);
      }
    }
  }
  Unrest(now.monotonic);
}

std::optional<ServerCore::Value> ServerCore::Get(Instant now, const Key& key) const {
  const auto found = ids_.find(key);
  if (found == ids_.end()) return std::nullopt;
  const Entry& entry = entries_[found->second];
  if (entry.expiry <= now.monotonic) return std::nullopt;
  return Value{key, entry.rule, BytesOf(entry), entry.expiry - now.monotonic};
}

uint64_t ServerCore::Scan(Instant now, uint64_t cursor,
                          const std::function<bool(const Value&)>& visit) const {
  for (uint64_t id = cursor == 0 ? 0 : cursor - 1; id < entries_.size(); ++id) {
    const Entry& entry = entries_[id];
    if (!entry.live || entry.expiry <= now.monotonic) continue;
    if (!visit(Value{entry.key, entry.rule, BytesOf(entry), entry.expiry - now.monotonic})) {
      return id + 1;
    }
  }
  return 0;
}

ServerStats ServerCore::stats() const {
  ServerStats stats = counts_;
  stats.live = ids_.size();
  stats.live_bytes = live_bytes_;
  stats.resting = resting_.size();
  stats.overflowed = overflowed_count_;
  stats.slabs = slabs_.size();
  stats.slabs_used = slabs_.size() - free_slabs_.size();
  return stats;
}

}  // namespace tailcast::cache
