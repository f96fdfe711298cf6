// The decisions of one cache server: what a mutation does, where a value lies, what is forgotten
// and when (paper §2.2, §3 "Tuning the Caches"; what a merge is: spec Merge: Join). It writes the
// memory that readers see, and nothing else: no clock, thread, socket. server.h is its driver.
//
// How a value changes, in this order, so that a reader finds the old or the new value at every step
// and a server killed between two steps leaves no half value behind:
//   extension (kLongerWins, longer, fits its slot): new payload bytes, fence, header, index
//   all else: payload and header of another slot, fence, index; the old slot rests
// A slot rests `rest` (1 s) before anybody may write it again: longer than any read that saw its
// address (kReadDeadlineMax, 0.4 s).
//
// Threads: one. Time never goes back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/slot_pool.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

struct Instant {
  MonotonicTime monotonic;  // decides
  WallTime wall;            // is written into entries
};

struct ServerCoreOptions {
  Duration ttl = Duration::Seconds(60);  // of a value since its last change; metadata: 24 h
  double collect_from = 0.8;             // live share of a size class at which GC begins
  Duration rest = Duration::Seconds(1);  // > kReadDeadlineMax of quorum_options.h
  Duration heartbeat_interval = Duration::Millis(200);
  // kLongerWins values start in a slot of at least this payload, so that they can grow in place.
  uint32_t growth_floor_bytes = 4096;
  // Keys in full buckets that are kept all the same, served by rpc; further ones are refused.
  uint32_t overflow_entries_max = 65536;

  std::function<void()> step_hook;  // for tests: called between the steps of a change
};

// How much memory each region gets out of `total_bytes` if values are about `value_bytes` long: at
// most 1.4 live entries per bucket of 7 on average, so that 1 bucket in 50,000 overflows.
struct MemoryPlan {
  uint64_t index_bytes = 0;
  uint64_t data_bytes = 0;  // whole slabs
};
MemoryPlan PlanMemory(uint64_t total_bytes, uint32_t value_bytes);
// Bytes of such values that a data region holds before the oldest go to make room.
uint64_t RoomBytes(uint64_t data_bytes, uint32_t value_bytes, double collect_from);

struct ServerStats {
  uint64_t applied = 0, no_change = 0, mismatches = 0, refused = 0, erased = 0;
  uint64_t extended_in_place = 0, moved = 0, inserted = 0;
  uint64_t expired = 0;    // TTL
  uint64_t collected = 0;  // GC, least recently modified first, or for another size class
  uint64_t overflows = 0;  // insertions into a full bucket
  uint64_t refused_no_slot = 0, refused_too_large = 0, refused_overflow = 0, refused_malformed = 0;
  uint64_t copies_postponed = 0;  // chunks: there was no room that writes can spare
  uint64_t copies_too_old = 0;    // chunks that would have been the next to go
  // As of now:
  uint64_t live = 0, live_bytes = 0, resting = 0, overflowed = 0, slabs = 0, slabs_used = 0;
};

class ServerCore {
 public:
  // The regions are zeroed memory that outlives the core, sized as by PlanMemory; `generation` is
  // not 0 and differs from that of earlier starts.
  ServerCore(ServerCoreOptions options, std::span<char> index, std::span<char> data,
             layout::Generation generation);
  ServerCore(const ServerCore&) = delete;
  ServerCore& operator=(const ServerCore&) = delete;

  // Joins `value` into the key's value. Adds to `doorbells` the offsets in the index region of the
  // doorbells that moved. A longer value keeps the later expiry of the two; a write of what is
  // there, or of less, does not prolong it (spec Merge: Join).
  //   kRefused: too large, malformed for its rule, or no room; the old value stays.
  //   kMismatch: contradicting bytes, or another rule than before; both values are gone.
  MutationResult Apply(Instant now, const Key& key, MergeRule rule, std::string_view value,
                       std::vector<uint64_t>& doorbells) {
    return Join(now, key, rule, value, std::nullopt, doorbells);
  }
  // The same with another replica's copy, which has `remaining` of its time to live left there. It
  // carries that time even when it brings no byte. Copies of chunks give way: the room that the
  // writes of one `rest` need is theirs.
  //   kRefused: as above; also of a chunk for which there is no such room now (copies_postponed).
  //   kNoChange: also of a chunk older than all that is here, when memory is full.
  MutationResult ApplyCopy(Instant now, const Key& key, MergeRule rule, std::string_view value,
                           Duration remaining, std::vector<uint64_t>& doorbells) {
    return Join(now, key, rule, value, remaining, doorbells);
  }
  // kApplied or kNoChange (was not there).
  MutationResult Erase(Instant now, const Key& key, std::vector<uint64_t>& doorbells);

  // Forgets what expired, lets rested slots be used again, beats the heart. Call it every
  // heartbeat_interval; costs what it forgets, at most kForgottenPerTick values.
  void OnTick(Instant now, std::vector<uint64_t>& doorbells);

  struct Value {
    Key key;
    MergeRule rule = MergeRule::kLongerWins;
    std::string_view bytes;   // until the next call that changes anything
    Duration remaining;       // time to live
    uint64_t version = 0;     // grows with each change on this server
    uint32_t crc = 0;         // crc32c of the bytes, as their header has it
    bool overflowed = false;  // its bucket has no place for it
  };
  std::optional<Value> Get(Instant now, const Key& key) const;

  // Calls `visit` for live values from `cursor` (0 = all) until it returns false, which leaves that
  // value for the next call; returns the cursor to go on from, 0 at the end. Values that live all
  // the time are visited; those that come and go may be.
  uint64_t Scan(Instant now, uint64_t cursor, const std::function<bool(const Value&)>& visit) const;

  // Written into every bucket, so that a reader with an older configuration finds out: at once into
  // as many as one turn should write, into the others with their next change or the next ticks.
  void SetConfiguration(ConfigurationId configuration_id);
  ConfigurationId configuration_id() const { return configuration_id_; }
  // The last one that was in every bucket: no reader of an older one takes what it finds for all
  // that was acknowledged.
  ConfigurationId sealed_configuration() const { return sealed_; }

  // Of the value that was dropped by the last result kMismatch.
  size_t dropped_length() const { return dropped_length_; }
  ServerStats stats() const;
  const layout::Geometry& geometry() const { return geometry_; }

  static constexpr uint32_t kForgottenPerTick = 20000;
  static constexpr uint64_t kSealedPerTurn = 16384;  // buckets

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint8_t kOverflowed = 0xff;  // way of an entry that has no place in its bucket

  struct Entry {
    Key key;
    uint64_t offset = 0;  // of its slot
    uint64_t version = 0;
    MonotonicTime expiry;
    uint32_t length = 0;
    uint32_t crc = 0;
    uint32_t previous = kNone, next = kNone;  // in its class's list, unless it is a copy
    MergeRule rule = MergeRule::kLongerWins;
    uint8_t size_class = 0;
    uint8_t way = kOverflowed;
    bool copy = false;  // its expiry came from elsewhere
    bool live = false;
  };
  // Slots taken in this stretch of `rest` and in the one before.
  struct Demand {
    uint64_t taken = 0, before = 0;
    MonotonicTime window_start;

    void Look(MonotonicTime now, Duration rest) {
      if (now - window_start < rest) return;
      before = now - window_start < rest * 2 ? taken : 0;
      taken = 0;
      window_start = now;
    }
    // What the next stretch may take.
    double next() const { return 1.25 * static_cast<double>(std::max(taken, before)); }
  };
  // The values of a size class in order of their expiry, which is that of their last change.
  struct SizeClass {
    uint32_t head = kNone, tail = kNone;                  // written here, in order of arrival
    std::set<std::pair<MonotonicTime, uint32_t>> copies;  // those whose expiry came from elsewhere
    Demand writes, copied;
  };

  char* SlotAt(uint64_t offset) { return data_.data() + offset; }
  const char* SlotAt(uint64_t offset) const { return data_.data() + offset; }
  std::string_view BytesOf(const Entry& entry) const {
    return {SlotAt(entry.offset) + layout::kEntryHeaderBytes, entry.length};
  }
  void Step() {
    if (options_.step_hook) options_.step_hook();
  }

  MutationResult Join(Instant now, const Key& key, MergeRule rule, std::string_view value,
                      std::optional<Duration> remaining, std::vector<uint64_t>& doorbells);
  MutationResult Insert(Instant now, const Key& key, MergeRule rule, std::string_view value,
                        std::optional<Duration> remaining, std::vector<uint64_t>& doorbells);
  // Puts `value` into a fresh slot of class >= `at_least` for entry `id` and points the index
  // there.
  bool Move(Instant now, uint32_t id, std::string_view value, uint32_t size_class,
            std::optional<Duration> remaining, std::vector<uint64_t>& doorbells);
  void Extend(Instant now, uint32_t id, std::string_view value, std::optional<Duration> remaining,
              std::vector<uint64_t>& doorbells);
  // A copy that brings nothing but time.
  void Prolong(Instant now, uint32_t id, Duration remaining);
  Value ValueOf(const Entry& entry, Instant now) const {
    return {entry.key,     entry.rule, BytesOf(entry),          entry.expiry - now.monotonic,
            entry.version, entry.crc,  entry.way == kOverflowed};
  }
  // Takes the entry out of index, lists and map; its slot is poisoned and rests.
  void Drop(Instant now, uint32_t id, std::vector<uint64_t>& doorbells);
  layout::EntryHeader HeaderOf(const Entry& entry, Instant now) const;

  // kSpokenFor, kOnlyForNewer: of copies of chunks, which give way to writes.
  enum class Room : uint8_t { kThere, kSpokenFor, kOnlyForNewer };
  // For one value more. `remaining`: of a copy, its time to live.
  Room MakeRoom(Instant now, MergeRule rule, uint32_t size_class, std::optional<Duration> remaining,
                std::vector<uint64_t>& doorbells);
  // kThere: there was no slot all the same.
  MutationResult CountNoRoom(Room room);
  // While slabs are short one more leaves its class; of what lies in those that leave at most
  // `budget` values are forgotten.
  void MoveSlabs(Instant now, uint32_t budget, std::vector<uint64_t>& doorbells);
  uint32_t OldestOf(uint32_t size_class) const;
  uint32_t OldestInSeveralSlabs() const;  // of all classes that have at least two
  // Its expiry, and its place in the order of its class. It is not linked.
  void Renew(Entry& entry, MonotonicTime now, std::optional<Duration> remaining);

  void Link(uint32_t id);
  void Unlink(uint32_t id);

  // Index words.
  char* BucketAt(uint64_t bucket) { return index_.data() + layout::BucketOffset(bucket); }
  uint64_t BucketOf(const Key& key) const { return layout::BucketOf(key, geometry_.bucket_count); }
  // Points the index at the entry's slot (if it has a way) and notifies through its doorbell (if it
  // can be watched), in one change of the bucket.
  void Publish(const Entry& entry, std::vector<uint64_t>& doorbells);
  void StoreIndexEntry(uint64_t bucket, uint32_t way, uint64_t tag, uint64_t location);
  // Ends a change of a bucket: its crc fits again.
  void SealBucket(uint64_t bucket, bool notify);
  std::optional<uint8_t> FreeWay(uint64_t bucket) const;
  // Goes on writing the configuration into buckets.
  void SealOn();

  const ServerCoreOptions options_;
  const std::span<char> index_;
  const std::span<char> data_;
  layout::Geometry geometry_;
  ConfigurationId configuration_id_{};
  ConfigurationId sealed_{};
  uint64_t unsealed_ = 0;  // buckets from here on may show an older configuration
  uint64_t next_version_ = 1;
  uint64_t heartbeats_ = 0;

  struct KeyHash {
    size_t operator()(const Key& key) const { return key.lo ^ (key.hi * 0x9e3779b97f4a7c15); }
  };
  std::unordered_map<Key, uint32_t, KeyHash> ids_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_ids_;
  SizeClass classes_[layout::kClassCount];
  SlotPool pool_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> overflowed_;  // entries by bucket
  uint64_t overflowed_count_ = 0;
  uint64_t live_bytes_ = 0;
  ServerStats counts_;
  size_t dropped_length_ = 0;
  std::string merged_;
};

}  // namespace tailcast::cache
