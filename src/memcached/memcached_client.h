// A cache::Client over memcached servers that somebody runs already (paper §2.2 speaks of a cache
// layer, not of this one). Three servers by the ring of the cell's own cache (cache/ring.h),
// success at two; merges by compare-and-swap; with fewer servers as many copies as there are.
//
//   MemcachedClient ─┬─ ReadBatch      whom to ask: cache::ReadCore
//                    ├─ Writes         when a write succeeded: cache::MutationCore
//                    └─ ServerSet ─ ServerThread ─ MergeCore, Connection (libmemcached)
//
// What it keeps of client.h: merges, quorums, validation (item.h), joins of values that never fall
// within a client, hedged and bounded reads, Drain. What it can't, and how callers see it:
//   no one-sided reads   TryReadChunks is false unless nothing was to be read
//   no doorbells         WatchValue calls with `watched` false at once: poll
//   no repair            a server that restarted is empty, and its "absent" counts as an answer, its
//                        vote on a write as a vote: for what was written before, one copy is missing
//                        until it is written again
//   silent evictions     memcached evicts by its own rule and tells nobody: a miss, a lower length
//   fresh time to live   a write that changes a value gives it a whole new time to live: memcached
//                        does not say how much was left. One that changes nothing refreshes nothing
//   no configurations    the servers are fixed at construction
//
// Threads: one loop, and a thread for each server, which blocks in its stead. Bounded: bytes on
// their way to each server, time for each request, rounds of each merge, values remembered.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/cache/client.h"
#include "tailcast/memcached/types.h"

namespace tailcast::memcached {

class MemcachedClient : public cache::Client {
 public:
  // The loop, which tells real time, outlives the client. Connects when there is something to do.
  MemcachedClient(EventLoop* loop, ClientOptions options);
  // Callbacks that did not run yet never will; what is queued is not written. Waits for the
  // operations that the servers carry out at the moment, a few ClientOptions::server_timeout at
  // most. Not inside a callback of its own.
  ~MemcachedClient() override;

  // Servers that are not left alone at the moment because they failed.
  uint32_t usable_servers() const;
  const ClientStats& stats() const;

  bool TryReadChunks(std::span<cache::ChunkRead> reads) override;
  void ReadChunks(std::span<cache::ChunkRead> reads, cache::ReadMode mode, Duration timeout,
                  Callback<void()> done) override;
  void ReadValues(std::vector<ValueRead> reads, Duration timeout,
                  Callback<void(Result<cache::Values>)> done) override;
  bool TryReadValues(std::span<const ValueRead> reads, cache::Values& values) override;
  void Mutate(std::vector<cache::Mutation> mutations, Duration timeout,
              Callback<void(Status)> done) override;
  void Drain(Callback<void()> done) override;
  uint64_t WatchValue(cache::Key key, Duration timeout,
                      Callback<void(bool watched)> notify) override;
  void CancelWatch(uint64_t id) override;
  // There are none: nobody says that a server lost what it had.
  void WatchEpoch(Callback<void()>) override {}
  const cache::ClientCounters& counters() const override;

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace tailcast::memcached
