// What the verbs driver's reader decides: which RDMA READs go out with which doorbell, when a read
// is complete and what it came to. No I/O: works go out by NextBatch, completions come in by
// OnDone.
//
// Reads go out in batches. Each ends with a READ of the server's control page, and its reads
// complete with that one: only then it is known that the memory was still what the reader was told
// (generation) and its owner at work (heartbeat). Completions of a queue pair come in the order of
// posting, so the control READ alone is signaled.
//
//   reads     1   2   3 | 4   5          batch of three, batch of two
//   works     1   2   3   c | 4   5   c   one doorbell each
//   arena     [1][2][3][c]  [4][5][c]     a ring: given back in the order in which it was taken
//
// READs land in the arena and are copied out when they complete, so a read that timed out may
// complete late, or never, without a byte of its destination changing: its place in the arena is
// quarantined until then, or until the queue pair was destroyed, which the arena outlives. Where
// the destination itself is registered they land there, and the quarantine is its owner's matter
// (Endpoint::Allocate). A queue pair whose oldest batch makes no progress for `stall_timeout` is
// taken for dead: some devices never flush.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/fabric/remote_heartbeat.h"
#include "tailcast/fabric/verbs_queue.h"

namespace tailcast::fabric {

// Not thread-safe.
class VerbsReadsCore {
 public:
  // Of a batch, beside its control READ.
  static constexpr size_t kBatchMax = 64;

  struct Options {
    std::vector<RegionInfo> regions;  // by RegionId; sizes are multiples of 8
    uint32_t works_max = 0;           // posted and not done; 2 at least
    Duration beat_timeout;
    Duration stall_timeout;
  };
  // `arena`: kArenaBytesMin at least; it outlives the core.
  VerbsReadsCore(Options options, std::span<char> arena);
  // Reads land in this memory straight. It is the works' next memory; the arena is the first.
  void AddMemory(std::span<char> memory) { memories_.push_back(memory); }

  // The longest read with its words whole, and a control page.
  static constexpr uint64_t kArenaBytesMin = kReadBytesMax + 4096;

  // As Endpoint::Read; what cannot be sent completes at once.
  void Read(MonotonicTime now, Duration timeout, std::span<const ReadDescriptor> reads);
  // The works of the next doorbell; empty when nothing waits or there is no room. Call it until it
  // is empty, whenever reads were started or works were done. The span is good until the next call.
  std::span<const VerbsWork> NextBatch(MonotonicTime now);
  // Of ids that nobody posted, or that are done: nothing happens.
  void OnDone(MonotonicTime now, const VerbsDone& done);
  // Completes what is overdue; before it, all completions that there are must have been told.
  // Returns when to call again: Max: not until a read is started.
  MonotonicTime OnTime(MonotonicTime now);
  // Everything outstanding is unreachable, and all that is started from now on.
  void Break() { BreakWith(0, ReadStatus::kUnreachable); }

  bool broken() const { return broken_; }
  // Reads wait to be posted: NextBatch may have something.
  bool waits() const { return !backlog_.empty(); }
  // Works that were posted and are not done.
  uint64_t outstanding() const { return next_id_ - done_id_ - 1; }
  bool has_completions() const { return polled_begin_ < polled_.size(); }
  // Reads without a completion.
  bool has_reads() const { return !sent_.empty() || !backlog_.empty(); }
  // Reads that completed with kTimeout, so far.
  uint64_t timeouts() const { return timeouts_; }
  size_t Poll(std::span<Completion> completions);

 private:
  struct Pending {
    ReadDescriptor read;
    MonotonicTime deadline;
    uint64_t arena_offset = 0;  // of the word that its first byte is in
    bool straight = false;      // not by the arena
    bool abandoned = false;
  };
  struct Batch {
    uint64_t last_id = 0;         // the control READ's
    size_t reads = 0;             // at the front of sent_
    uint64_t control_offset = 0;  // in the arena
    uint64_t arena_end = 0;       // what it took ends here (a value of arena_head_)
    MonotonicTime posted;
  };
  uint32_t control_bytes() const;
  ReadStatus Admit(const ReadDescriptor& read) const;
  // Where it lands straight, if it does: 0 means that it doesn't.
  uint32_t MemoryOf(const ReadDescriptor& read) const;
  // Room of the arena, or false.
  bool Take(uint64_t bytes, uint64_t* offset);
  void FinishBatch(MonotonicTime now);
  void Complete(const Pending& pending, ReadStatus status) {
    polled_.push_back({pending.read.token, status});
  }
  // The read whose work has this id gets `status`, all others are unreachable.
  void BreakWith(uint64_t id, ReadStatus status);

  const Options options_;
  const std::span<char> arena_;
  std::vector<std::span<char>> memories_;  // from the second on
  RemoteHeartbeat heartbeat_;
  bool broken_ = false;

  std::deque<Pending> backlog_;  // wait for room
  std::deque<Pending> sent_;     // of all batches, in order
  std::deque<Batch> batches_;
  std::vector<VerbsWork> works_;
  uint64_t next_id_ = 1;
  uint64_t done_id_ = 0;
  uint64_t arena_head_ = 0, arena_tail_ = 0;  // they only grow; places are modulo the size

  std::vector<Completion> polled_;  // polled_[polled_begin_...] wait for Poll
  size_t polled_begin_ = 0;
  uint64_t started_ = 0, returned_ = 0;
  uint64_t timeouts_ = 0;
};

}  // namespace tailcast::fabric
