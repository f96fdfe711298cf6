// A Client without servers: one map in this process, with the merge rules of the real cache and
// faults on demand. For tests of everything that uses the cache (producer, reader, writer,
// consumer) and for tools that need no sharing. It keeps every promise of client.h, misses
// included.
//
//   MemoryStore store;                        // "the cache of a cell"
//   MemoryClient a(&loop, &store), b(&loop, &store);
//   store.SetFaults({.miss = 0.1, .delay = Duration::Millis(2)});
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/drains.h"
#include "tailcast/cache/epoch_watch.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

class MemoryClient;

// Probabilities are of each key of each call. All of these are results that the real cache may
// give.
struct MemoryFaults {
  double miss = 0;           // a chunk or value that is there reads as missing
  double short_read = 0;     // a chunk answers with a random shorter prefix (a lagging replica)
  double lost_write = 0;     // a mutation is acknowledged, but evicted at once
  double failed_write = 0;   // a mutation is not stored and fails with Unavailable
  bool unavailable = false;  // chunk reads miss, value reads and mutations fail with Unavailable
  bool refuse_watches = false;
  std::optional<Key> refuse_watches_of;  // one key's alone
  // Every answer (not notifications) waits this long, plus an exponential part of mean `jitter`.
  // Answers with jitter overtake each other. An answer later than a call's timeout becomes a miss
  // or DeadlineExceeded at the timeout.
  Duration delay;
  Duration jitter;
};

// The shared map. Thread-safe, so that clients may live on different loops; deterministic when they
// all live on one. Must outlive its clients.
class MemoryStore {
 public:
  explicit MemoryStore(uint64_t seed = 1) : rng_(seed) {}

  void SetFaults(MemoryFaults faults);
  // Forgets everything, as if all replicas restarted empty. Watchers are notified.
  void EvictAll();
  // The same, and begins a new cache epoch, which the clients hear of on their next turns.
  void BeginEpoch();
  // Forgets one key. Watchers of it are notified.
  void Evict(Key key);
  // The value as it is, faults aside.
  std::optional<std::string> Get(Key key) const;
  size_t size() const;
  // Applies a mutation, faults aside.
  MutationResult Apply(const Mutation& mutation);
  uint64_t mismatches() const;

 private:
  friend class MemoryClient;
  struct Entry {
    MergeRule rule = MergeRule::kLongerWins;
    std::string value;
  };
  struct Watcher {
    uint64_t id = 0;  // unique within the store
    EventLoop* loop = nullptr;
    Task notify;
  };
  void EvictAllLocked();
  MutationResult ApplyLocked(const Mutation& mutation);
  void ChangedLocked(Key key);
  bool Draw(double probability) { return probability > 0 && rng_.Chance(probability); }

  mutable std::mutex mutex_;
  MemoryFaults faults_;
  Rng rng_;
  uint64_t mismatches_ = 0;
  uint64_t next_version_ = 1;
  std::map<Key, Entry> entries_;
  std::map<Key, uint64_t> versions_;  // of the last change, erased keys included
  std::map<Key, std::vector<Watcher>> watchers_;
  uint64_t next_watch_ = 1;
  uint64_t epoch_ = 1;
  std::vector<MemoryClient*> clients_;
};

class MemoryClient : public Client {
 public:
  MemoryClient(EventLoop* loop, MemoryStore* store);
  // Callbacks that did not run yet never will.
  ~MemoryClient() override;

  bool TryReadChunks(std::span<ChunkRead> reads) override;
  void ReadChunks(std::span<ChunkRead> reads, ReadMode mode, Duration timeout,
                  Callback<void()> done) override;
  void ReadValues(std::vector<ValueRead> reads, Duration timeout,
                  Callback<void(Result<Values>)> done) override;
  bool TryReadValues(std::span<const ValueRead> reads, Values& values) override;
  void Mutate(std::vector<Mutation> mutations, Duration timeout,
              Callback<void(Status)> done) override;
  void Drain(Callback<void()> done) override;
  uint64_t WatchValue(Key key, Duration timeout, Callback<void(bool watched)> notify) override;
  void CancelWatch(uint64_t id) override;
  void WatchEpoch(Callback<void()> changed) override { epochs_.Add(std::move(changed)); }
  const ClientCounters& counters() const override { return counters_; }

 private:
  friend class MemoryStore;
  struct Watch {
    explicit Watch(EventLoop& loop) : timer(loop) {}
    Key key;
    Timer timer;
    Callback<void(bool)> notify;
  };
  // Runs `answer(false)` after the drawn delay, or `answer(true)` at the timeout if that is
  // earlier.
  void Later(Duration timeout, UniqueFunction<void(bool late)> answer);
  void Notify(uint64_t id, bool watched);
  // Fills one read from the store; false: less than `want` is there. The store is locked.
  bool ReadOneLocked(ChunkRead& read);
  // False: there is none at the moment. The store is locked.
  bool ReadValuesLocked(std::span<const ValueRead> reads, Values& values);
  bool DelayedLocked() const;

  EventLoop* loop_;
  MemoryStore* store_;
  ClientCounters counters_;
  Drains drains_{loop_};
  std::map<uint64_t, Watch> watches_;
  std::map<Key, uint64_t> seen_versions_;
  std::map<Key, std::string> seen_values_;  // values never fall within a client
  EpochWatch epochs_;
  Scope scope_;
};

}  // namespace tailcast::cache
