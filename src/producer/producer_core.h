// The life of one shard's producer: what it does about a file that is full, an append that failed,
// a primary layer that stays away, and a wish to close. How it comes to own the next file is
// OpenCore's (open_core.h); when it flushes what, AppendCore's (append_core.h), which this one
// drives.
//
//              opened                 full, old               drained
//   kOpening ──────────▶ kAppending ────────────▶ kFinishing ──────────▶ kRolling
//                        ▲ ▲  │  │                    │                   │    │
//                        │ │  │  └── append failed ───┴──▶ kGivenUp       │    │ the primary
//                        │ │  │                              │            │    │ layer fails
//                        │ │  │                              ▼            │    │
//                        │ └──┼──────── opened ───────── kRecovering ◀────┼────┘
//                        └────┼──────── opened ───────────────────────────┘
//                             │
//   closing, all is durable   │           shadowed           every replica has answered
//   (or kRolling, no room)    │
//                             └─▶ kSealed ────────▶ kLeaving ────────▶ kStopped
//
// Every state goes to kStopped as well: kSealed and kLeaving when the time to close is over, the
// others when the shard is lost (fenced, taken over) or the primary layer is (gave up, lost bytes).
// Messages are taken from kAppending to kRecovering, and wait when they can't be appended, until
// close is asked for.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/producer/append_core.h"
#include "tailcast/producer/open_core.h"
#include "tailcast/producer/retry_core.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/position.h"

namespace tailcast::producer {

enum class ProducerState : uint8_t {
  kOpening,     // finding out whether the shard is free, recovering it, creating the first file
  kAppending,   // a file is open
  kFinishing,   // the file is full or old: what is being appended to it is waited for
  kRolling,     // its end is known, the next one is being opened
  kGivenUp,     // an append failed: no other starts, and the one under way is waited for
  kRecovering,  // finding out what the primary layer has, opening the next file
  kSealed,      // closing: the file has its end, its shadow is waited for
  kLeaving,     // closing: two replicas have everything, the third one is waited for
  kStopped,     // see status()
};

struct ProducerCounters {
  int64_t messages = 0, bytes = 0;               // accepted
  int64_t durable = 0, failed = 0, unknown = 0;  // acknowledged
  int64_t refused_full = 0, refused_size = 0;
  int64_t flushes = 0;  // acknowledged by the primary layer
  int64_t files_opened = 0, files_sealed = 0;
  int64_t recoveries = 0;  // after a failed or unknown append
};

struct ProducerCoreOptions {
  AppendOptions append;
  RetryOptions retry;
  int64_t buffer_bytes_max = 32 << 20;
  int64_t buffer_messages_max = 1 << 18;
  int64_t message_bytes_max = 16 << 20;
  Duration roll_age = Duration::Seconds(3600);
};

// What is due, to be carried out in this order.
struct Work {
  AppendEffects append;               // its `data` and `index` are to be appended
  std::optional<MonotonicTime> wake;  // set: DoWork again then; Max: nothing waits for its time
  // Open the file after `current`.
  struct Opening {
    stream::Stem current;
    std::optional<stream::Seal> seal;  // where it ends; nullopt: that is to be found out
    Duration wait;                     // not before
  };
  std::optional<Opening> open;
  std::optional<stream::Seal> seal;  // the current file ends there: it is closed
  bool leave = false;                // wait for every replica of the caches, then stop
  std::optional<Status> stop;
};

// A file was opened.
struct OpenedEffects {
  // The file before, which was ours, ends there.
  std::optional<stream::Seal> seal;
  // The shadow of the file before lacks nothing and goes on. Else, or if the file was another
  // producer's, it is among `predecessors`.
  bool keep_shadow = false;
  std::vector<Predecessor> predecessors;  // to be shadowed from what the primary layer has
  std::vector<Flush> durable;             // to be acknowledged, in order
  std::optional<Status> stop;             // set: the file can't be used
};

class ProducerCore {
 public:
  ProducerCore(stream::ShardId shard, ProducerCoreOptions options);

  // Takes messages in order, all or nothing; errors as ProducerAgent::Publish. Messages without a
  // time get `now_us`; times never fall.
  Status Publish(Batch batch, int64_t now_us);
  // InvalidArgument, and counted, if a message of `bytes` is too large.
  Status CheckSize(int64_t bytes);
  // As of AppendCore, for the next DoWork.
  void SetCached(bool cached) { append_.SetCached(cached); }
  void SetPause(Duration pause) { append_.SetPause(pause); }
  void SetRollBytes(int64_t bytes) { append_.SetRollBytes(bytes); }
  // As of AppendCore; without an open file the call is OnOpened, or the shard stops.
  int64_t bytes_before_call() const {
    return state_ == ProducerState::kAppending ? append_.bytes_before_call()
                                               : options_.append.flush_bytes;
  }
  // What waits is flushed at the next DoWork.
  void FlushSoon() { append_.FlushSoon(); }
  // No more messages; the file is sealed when all is durable. Stops at now + `wait` though the
  // caches lack something, but not before all is durable.
  void Close(MonotonicTime now, Duration wait);

  // Everything that is due now. Not while what OnAppended gave is being acknowledged.
  void DoWork(MonotonicTime now, Work& out);
  // The part of it that closes. `shadowed`: the caches have all of every file. While not closing()
  // nothing.
  void FinishClose(MonotonicTime now, bool shadowed, Work& out);

  // The end of an append to the current file.
  void OnAppended(stream::Part part, storage::AppendOutcome outcome, AppendEffects& out);

  // `stem` was opened after the current file and `predecessors`, whose newest message is of
  // `last_time_us`.
  void OnOpened(const stream::Stem& stem, std::vector<Predecessor> predecessors,
                int64_t last_time_us, MonotonicTime now, OpenedEffects& out);
  // The primary layer failed while the next file was being opened.
  RetryCore::Verdict OnOpenFailed(const Status& error, MonotonicTime now);
  // There is no room for the next file, says ResourceExhausted; it is looked for again. True: the
  // shard has come to its limit; false: it was there before, and the file that is current got its
  // room when another went.
  bool OnFull(const Status& why);
  // What the storage said about an append that failed; and why no file is appended to now, Ok
  // while there is one, or will be.
  void OnCause(const Status& error) { retry_.OnCause(error); }
  const Status& trouble() const { return full_.ok() ? retry_.trouble() : full_; }

  // The end; what is not acknowledged is to be reported lost.
  AppendCore::Lost Stop(Status status);

  ProducerState state() const { return state_; }
  // Why it stopped; Ok while it works, and after it was closed.
  const Status& status() const { return status_; }
  bool closing() const { return closing_; }
  // The current file may be appended to.
  bool file_open() const { return append_.is_open(); }
  // It owns the shard and means to append, if need be to the next file.
  bool producing() const;
  // The file that is or was last appended to; seq 0 when there is none.
  const stream::Stem& current() const { return current_; }
  const stream::ShardId& shard() const { return shard_; }
  // Of the file after the current one, by this one's rate (chunk_size.h). 0: the current file, or
  // there is none, does not say its own.
  int64_t next_chunk_size(MonotonicTime now) const;
  const AppendCore& append() const { return append_; }
  stream::Position durable_position() const;
  // Of the newest durable message, for the file after it.
  int64_t last_time_us() const { return append_.last_time_us(); }
  const ProducerCounters& counters() const { return counters_; }

 private:
  void MoveTo(ProducerState next);
  bool DueForRoll(MonotonicTime now) const;
  void EndGivenUp(MonotonicTime now, Work& out);
  void CountDurable(const std::vector<Flush>& durable);

  const stream::ShardId shard_;
  const ProducerCoreOptions options_;
  AppendCore append_;
  RetryCore retry_;
  ProducerState state_ = ProducerState::kOpening;
  Status status_;
  Status full_;
  bool at_limit_ = false;  // since OnFull, until a file is opened at once
  stream::Stem current_;
  int64_t flushes_before_ = 0;  // of the current file
  MonotonicTime opened_at_;
  int64_t last_time_us_ = 0;  // of the newest message that was taken
  bool closing_ = false;      // Close was called; in every state
  MonotonicTime close_until_;
  ProducerCounters counters_;
};

}  // namespace tailcast::producer
