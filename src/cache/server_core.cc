#include "tailcast/cache/server_core.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/merge.h"

namespace tailcast::cache {
namespace {

FAULT_POINT(kShorterWins, "cache.shorter_wins",
            "a value replaces what is there, though that is longer");
FAULT_POINT(kHeaderBeforeBytes, "cache.header_before_bytes",
            "an extension's header is stored before its bytes");

// What a copy must bring of time to be worth a change of the entry.
constexpr Duration kProlongMin = Duration::Millis(100);

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

uint64_t RoomBytes(uint64_t data_bytes, uint32_t value_bytes, double collect_from) {
  const uint32_t size_class = layout::ClassFor(value_bytes).value_or(layout::kClassCount - 1);
  const uint64_t slots = data_bytes / layout::kSlabBytes * layout::SlotsPerSlab(size_class);
  return static_cast<uint64_t>(static_cast<double>(slots * value_bytes) * collect_from);
}

ServerCore::ServerCore(ServerCoreOptions options, std::span<char> index, std::span<char> data,
                       layout::Generation generation)
    : options_(std::move(options)),
      index_(index),
      data_(data),
      pool_(static_cast<uint32_t>(data.size() / layout::kSlabBytes), options_.rest) {
  TAILCAST_CHECK(generation != layout::Generation::kNone);
  TAILCAST_CHECK(index.size() >= layout::kHeaderPageBytes + layout::kBucketBytes,
                 "the index region has no room for a bucket");
  geometry_.generation = generation;
  geometry_.bucket_count =
      static_cast<uint32_t>((index.size() - layout::kHeaderPageBytes) / layout::kBucketBytes);
  geometry_.data_bytes = data.size() / layout::kSlabBytes * layout::kSlabBytes;
  geometry_.heartbeat_interval_us = static_cast<uint64_t>(options_.heartbeat_interval.micros());
  for (uint64_t bucket = 0; bucket < geometry_.bucket_count; ++bucket) SealBucket(bucket, false);
  unsealed_ = geometry_.bucket_count;
  layout::StoreGeometry(index_.data(), geometry_);
}

// ---- Mutations ----

MutationResult ServerCore::Join(Instant now, const Key& key, MergeRule rule, std::string_view value,
                                std::optional<Duration> remaining,
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
  if (remaining.has_value()) remaining = std::min(*remaining, options_.ttl);
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
  if (result == MutationResult::kNoChange && kShorterWins.planted() && !value.empty() &&
      value.size() < BytesOf(entries_[id]).size()) {
    Drop(now, id, doorbells);
    return Insert(now, key, rule, value, remaining, doorbells);
  }
  if (result == MutationResult::kNoChange) {
    if (remaining.has_value()) Prolong(now, id, *remaining);
    ++counts_.no_change;
    return result;
  }
  if (result == MutationResult::kMismatch) {
    ++counts_.mismatches;
    dropped_length_ = BytesOf(entries_[id]).size();
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
  const Room room = MakeRoom(now, rule, size_class, remaining, doorbells);
  // Making room may have forgotten the very entry, if it was the oldest of all.
  if (!entries_[id].live || !(entries_[id].key == key)) {
    return Insert(now, key, rule, std::string(merged_), remaining, doorbells);
  }
  if (room != Room::kThere) return CountNoRoom(room);
  if (!Move(now, id, merged_, size_class, remaining, doorbells)) {
    return CountNoRoom(Room::kThere);
  }
  ++counts_.moved;
  ++counts_.applied;
  return MutationResult::kApplied;
}

MutationResult ServerCore::Insert(Instant now, const Key& key, MergeRule rule,
                                  std::string_view value, std::optional<Duration> remaining,
                                  std::vector<uint64_t>& doorbells) {
  if (value.empty() || (remaining.has_value() && *remaining <= Duration())) {
    ++counts_.no_change;
    return MutationResult::kNoChange;
  }
  uint64_t bytes = value.size();
  if (rule == MergeRule::kLongerWins)
    bytes = std::max<uint64_t>(bytes, options_.growth_floor_bytes);
  const uint32_t size_class = layout::ClassFor(bytes).value_or(layout::kClassCount - 1);
  const Room room = MakeRoom(now, rule, size_class, remaining, doorbells);
  if (room != Room::kThere) return CountNoRoom(room);
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
    return CountNoRoom(Room::kThere);
  }
  ids_.emplace(key, id);
  if (entries_[id].way == kOverflowed) ++counts_.overflows;
  ++counts_.inserted;
  ++counts_.applied;
  return MutationResult::kApplied;
}

bool ServerCore::Move(Instant now, uint32_t id, std::string_view value, uint32_t size_class,
                      std::optional<Duration> remaining, std::vector<uint64_t>& doorbells) {
  const std::optional<uint64_t> offset = pool_.Take(size_class, id);
  if (!offset.has_value()) return false;
  Entry& entry = entries_[id];
  const bool had_slot = entry.version != 0;
  const uint64_t old_offset = entry.offset;
  if (had_slot) {
    Unlink(id);
    live_bytes_ -= entry.length;
  }
  entry.offset = *offset;
  entry.length = static_cast<uint32_t>(value.size());
  entry.crc = Crc32c(value);
  entry.version = next_version_++;
  entry.size_class = static_cast<uint8_t>(size_class);
  Renew(entry, now.monotonic, remaining);
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
  if (had_slot) pool_.Leave(now.monotonic, old_offset);
  return true;
}

void ServerCore::Renew(Entry& entry, MonotonicTime now, std::optional<Duration> remaining) {
  // A copy never shortens the life of what is here. (An entry without a value has lived till 0.)
  entry.expiry = std::max(entry.expiry, now + remaining.value_or(options_.ttl));
  entry.copy = remaining.has_value();
}

void ServerCore::Prolong(Instant now, uint32_t id, Duration remaining) {
  Entry& entry = entries_[id];
  if (now.monotonic + remaining < entry.expiry + kProlongMin) return;
  Unlink(id);
  Renew(entry, now.monotonic, remaining);
  Link(id);
  layout::StoreEntryHeader(SlotAt(entry.offset), HeaderOf(entry, now));
  Step();
}

void ServerCore::Extend(Instant now, uint32_t id, std::string_view value,
                        std::optional<Duration> remaining, std::vector<uint64_t>& doorbells) {
  Entry& entry = entries_[id];
  Unlink(id);
  const std::string_view suffix = value.substr(entry.length);
  char* slot = SlotAt(entry.offset);
  char* end = slot + layout::kEntryHeaderBytes + entry.length;
  live_bytes_ += suffix.size();
  entry.crc = Crc32cExtend(entry.crc, suffix.data(), suffix.size());
  entry.length = static_cast<uint32_t>(value.size());
  entry.version = next_version_++;
  Renew(entry, now.monotonic, remaining);
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
  live_bytes_ -= entry.length;
  pool_.Leave(now.monotonic, entry.offset);
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
  unsealed_ = 0;
  SealOn();
}

void ServerCore::SealOn() {
  const uint64_t end = std::min<uint64_t>(unsealed_ + kSealedPerTurn, geometry_.bucket_count);
  for (; unsealed_ < end; ++unsealed_) SealBucket(unsealed_, false);
  if (unsealed_ == geometry_.bucket_count) sealed_ = configuration_id_;
}

// ---- Slots ----

uint32_t ServerCore::OldestOf(uint32_t size_class) const {
  const SizeClass& owner = classes_[size_class];
  if (owner.copies.empty()) return owner.head;
  const auto& [expiry, copy] = *owner.copies.begin();
  return owner.head == kNone || expiry < entries_[owner.head].expiry ? copy : owner.head;
}

uint32_t ServerCore::OldestInSeveralSlabs() const {
  uint32_t oldest = kNone;
  for (uint32_t size_class = 0; size_class < layout::kClassCount; ++size_class) {
    if (pool_.slabs_of(size_class) < 2) continue;
    const uint32_t id = OldestOf(size_class);
    if (id != kNone && (oldest == kNone || entries_[id].expiry < entries_[oldest].expiry)) {
      oldest = id;
    }
  }
  return oldest;
}

MutationResult ServerCore::CountNoRoom(Room room) {
  if (room == Room::kOnlyForNewer) {
    ++counts_.copies_too_old;
    return MutationResult::kNoChange;
  }
  if (room == Room::kSpokenFor) {
    ++counts_.copies_postponed;
    return MutationResult::kRefused;
  }
  ++counts_.refused;
  ++counts_.refused_no_slot;
  return MutationResult::kRefused;
}

// Copies of values take what there is, as writes do, but nothing goes for their sake while there is
// room: elsewhere it may be gone already.
ServerCore::Room ServerCore::MakeRoom(Instant now, MergeRule rule, uint32_t size_class,
                                      std::optional<Duration> remaining,
                                      std::vector<uint64_t>& doorbells) {
  pool_.Unrest(now.monotonic);
  SizeClass& owner = classes_[size_class];
  const bool chunk_copy = remaining.has_value() && rule == MergeRule::kLongerWins;
  owner.writes.Look(now.monotonic, options_.rest);
  owner.copied.Look(now.monotonic, options_.rest);
  if (!remaining.has_value()) ++owner.writes.taken;
  // A write evicts at most four of each kind, so that none waits long for the others' garbage.
  MoveSlabs(now, 4, doorbells);
  for (int i = 0; i < 4; ++i) {
    const auto capacity = static_cast<double>(pool_.Capacity(size_class));
    const auto live = static_cast<double>(pool_.live(size_class));
    const bool full = live + 1 > options_.collect_from * capacity;
    // A slot that is left rests before it is room again. So as many must be free or resting as one
    // rest's writes will take, and a quarter more; else values go earlier, down to a tenth of the
    // class, before a write is refused, and down to a half for copies of chunks.
    const auto coming =
        static_cast<double>(pool_.Available(size_class) + pool_.resting(size_class));
    const double writes = owner.writes.next();
    const bool scarce =
        (coming < writes && live > 0.1 * capacity) ||
        (chunk_copy && coming < 2 * writes + owner.copied.next() + 1 && live > 0.5 * capacity);
    if (!full && !scarce) break;
    const uint32_t oldest = OldestOf(size_class);
    if (oldest == kNone) break;
    if (chunk_copy && now.monotonic + *remaining <= entries_[oldest].expiry) {
      if (i == 0) return Room::kOnlyForNewer;
      break;
    }
    // Least recently modified first holds for all classes together: one with older values gives a
    // slab up.
    if (!pool_.leaving()) {
      const uint32_t older = OldestInSeveralSlabs();
      if (older != kNone && entries_[older].size_class != size_class &&
          entries_[older].expiry < entries_[oldest].expiry) {
        pool_.Reclaim(entries_[older].offset);
      }
    }
    ++counts_.collected;
    Drop(now, oldest, doorbells);
  }
  if (!chunk_copy) return Room::kThere;  // as far as there is a slot
  // With none the pool has to be asked, for other classes to give a slab up.
  const uint64_t available = pool_.Available(size_class);
  if (available > 0 && static_cast<double>(available) <= owner.writes.next()) {
    return Room::kSpokenFor;
  }
  ++owner.copied.taken;
  return Room::kThere;
}

void ServerCore::MoveSlabs(Instant now, uint32_t budget, std::vector<uint64_t>& doorbells) {
  if (pool_.ShortOfSlabs()) {
    const uint32_t oldest = OldestInSeveralSlabs();
    if (oldest != kNone) pool_.Reclaim(entries_[oldest].offset);
  }
  for (; budget > 0; --budget) {
    const std::optional<uint32_t> id = pool_.NextToLeave();
    if (!id.has_value()) return;
    ++counts_.collected;
    Drop(now, *id, doorbells);
  }
}

// ---- The order of values ----

void ServerCore::Link(uint32_t id) {
  Entry& entry = entries_[id];
  SizeClass& owner = classes_[entry.size_class];
  if (entry.copy) {
    owner.copies.emplace(entry.expiry, id);
    return;
  }
  entry.previous = owner.tail;
  entry.next = kNone;
  (owner.tail == kNone ? owner.head : entries_[owner.tail].next) = id;
  owner.tail = id;
}

void ServerCore::Unlink(uint32_t id) {
  Entry& entry = entries_[id];
  SizeClass& owner = classes_[entry.size_class];
  if (entry.copy) {
    owner.copies.erase({entry.expiry, id});
    return;
  }
  (entry.previous == kNone ? owner.head : entries_[entry.previous].next) = entry.next;
  (entry.next == kNone ? owner.tail : entries_[entry.next].previous) = entry.previous;
  entry.previous = entry.next = kNone;
}

// ---- Time, reads, statistics ----

void ServerCore::OnTick(Instant now, std::vector<uint64_t>& doorbells) {
  layout::StoreWord(index_.data() + layout::kHeartbeatOffset, ++heartbeats_);
  uint32_t budget = kForgottenPerTick;
  for (uint32_t size_class = 0; size_class < layout::kClassCount; ++size_class) {
    for (; budget > 0; --budget) {
      const uint32_t oldest = OldestOf(size_class);
      if (oldest == kNone || entries_[oldest].expiry > now.monotonic) break;
      ++counts_.expired;
      Drop(now, oldest, doorbells);
    }
  }
  pool_.Unrest(now.monotonic);
  MoveSlabs(now, budget, doorbells);
  SealOn();
}

std::optional<ServerCore::Value> ServerCore::Get(Instant now, const Key& key) const {
  const auto found = ids_.find(key);
  if (found == ids_.end()) return std::nullopt;
  const Entry& entry = entries_[found->second];
  if (entry.expiry <= now.monotonic) return std::nullopt;
  return ValueOf(entry, now);
}

uint64_t ServerCore::Scan(Instant now, uint64_t cursor,
                          const std::function<bool(const Value&)>& visit) const {
  for (uint64_t id = cursor == 0 ? 0 : cursor - 1; id < entries_.size(); ++id) {
    const Entry& entry = entries_[id];
    if (!entry.live || entry.expiry <= now.monotonic) continue;
    if (!visit(ValueOf(entry, now))) return id + 1;
  }
  return 0;
}

ServerStats ServerCore::stats() const {
  ServerStats stats = counts_;
  stats.live = ids_.size();
  stats.live_bytes = live_bytes_;
  stats.resting = pool_.resting();
  stats.overflowed = overflowed_count_;
  stats.slabs = pool_.slabs();
  stats.slabs_used = pool_.slabs_used();
  return stats;
}

}  // namespace tailcast::cache
