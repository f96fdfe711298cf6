// Which lengths a reader reads when, for all its operations together (paper §2.4 Readers). The
// metadata of some neighbouring files is one value: a group. One bulk read at a time.
//
// Without doorbells every group is read at every tick. With them a group is read when its doorbell
// says so, when an operation joins it, and every full_interval; one that nobody can watch is read
// at every tick, as if there were no doorbells:
//
//   kUnwatched ──was read──► kWatched ──notified: dirty──► kUnwatched
//                               │ nobody watches it
//                               ▼
//                            kRefused ──was read──► kTriedAgain ──notified──► kUnwatched
//                               ▲                        │ nobody watches it
//                               └────────────────────────┘
//
// A core: no clock, no I/O, one thread. Internal to the module.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/cache/types.h"

namespace tailcast::reader {

class LengthPollCore {
 public:
  enum class Doorbell : uint8_t { kUnwatched, kWatched, kRefused, kTriedAgain };
  struct Options {
    bool doorbells = false;
    Duration full_interval;  // between reads of all groups, with doorbells
  };

  explicit LengthPollCore(Options options) : options_(options) {}

  void Add(uint64_t operation, cache::Key group);
  // True: the group is gone and its doorbell, if there is one, is to be cancelled.
  bool Remove(uint64_t operation, cache::Key group);

  // What to read now, if anything; answered by OnRead, after which NextRead is asked again. OnTick
  // once per poll interval, NextRead when something may be dirty.
  std::vector<cache::Key> OnTick(MonotonicTime now);
  std::vector<cache::Key> NextRead(MonotonicTime now);
  void OnRead() { reading_ = false; }
  // True: set the doorbell of this group, which was read just now; answered by OnDoorbell.
  bool TakeWatch(cache::Key group);
  // It was notified, or nobody can watch it. Ignored unless the doorbell is set.
  void OnDoorbell(cache::Key group, bool watched);

  // Empty: nothing need be read, ever.
  bool empty() const { return groups_.empty(); }
  std::vector<uint64_t> OperationsOf(cache::Key group) const;

 private:
  struct Group {
    std::set<uint64_t> operations;
    bool dirty = true;  // to be read next
    Doorbell doorbell = Doorbell::kUnwatched;
  };
  std::vector<cache::Key> Read(MonotonicTime now, bool all);

  const Options options_;
  std::map<cache::Key, Group> groups_;
  bool reading_ = false;
  MonotonicTime last_full_read_;
};

}  // namespace tailcast::reader
