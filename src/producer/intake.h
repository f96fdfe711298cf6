// Between the threads that publish and the loop that appends: messages in order, of each shard,
// bounded by bytes and number until they are acknowledged; and who waits for room, or for the last
// acknowledgement.
//
//   Add ──▶ [ m7 m8 m9 ] ──Take──▶ agent ──▶ acknowledged ──▶ room for m10
//   any thread                     loop's thread
//
// A monitor: no loop, no I/O. Threads: any, except where said.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/producer/ack.h"
#include "tailcast/producer/append_core.h"

namespace tailcast::producer {

class Intake {
 public:
  struct Options {
    int64_t buffer_bytes_max = 32 << 20;  // of one shard, taken and not acknowledged
    int64_t message_bytes_max = 16 << 20;
    int64_t buffer_messages_max = 1 << 18;  // as buffer_bytes_max: empty ones cost memory, too
  };
  struct Totals {
    int64_t messages = 0, bytes = 0;               // taken
    int64_t durable = 0, failed = 0, unknown = 0;  // acknowledged
    int64_t durable_bytes = 0;
    int64_t buffered_bytes = 0;  // taken and not acknowledged
    int64_t stopped_shards = 0;  // by an error, before all was closed
    // Since when callers find no room in a shard, of which never more than half was free; nullopt:
    // they do. Back-pressure of the primary layer.
    std::optional<MonotonicTime> full_since;
  };
  // How long a durable message took, from Add to its acknowledgement, goes to `commit_time`, which
  // outlives this, if there is one.

  explicit Intake(Options options, HistogramMetric* commit_time = nullptr)
      : options_(options), commit_time_(commit_time) {}
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;

  // Before any other call.
  void AddShard(int32_t number) {
    const std::lock_guard lock(mutex_);
    shards_.try_emplace(number);
  }

  enum class Kind : uint8_t {
    kMessage,
    kRaw,  // bytes without boundaries: cut into messages of message_bytes_max; without headers
  };
  // Takes a payload behind its encoded headers (stream::Headers); `ack` then runs once. Without
  // room it waits for as long as `wait`, and then says ResourceExhausted; an empty buffer takes
  // anything. True: the loop is to be told, for it was not since the last Take (but see TellFrom).
  //   InvalidArgument  too large, or not a shard of ours
  //   FailedPrecondition or what Stop said   closed, or the shard has stopped
  Result<bool> Add(int32_t shard, Kind kind, std::string_view headers, std::string_view payload,
                   AckCallback ack, Duration wait);
  // No more is taken, of any shard. False: that was so already.
  bool Close();
  bool closed() const;
  // Waits until everything that was taken is acknowledged. DeadlineExceeded; and while it is not
  // closed the error of a shard that stopped.
  Status WaitUntilAcknowledged(Duration timeout);

  // Loop only. What was added since the last call. Each of its acknowledgements is to be called.
  Batch Take(int32_t shard);
  // Loop only. It Takes what comes next in time by itself: until the next Take it need be told only
  // once so many bytes wait.
  void TellFrom(int32_t shard, int64_t bytes);
  // Loop only. The shard takes no more, and says why (Ok: it was closed); the first reason stays.
  void Stop(int32_t shard, const Status& why);
  // Loop only. Why nothing is acknowledged now (Ok: it is): said to who finds no room.
  void SetTrouble(int32_t shard, const Status& why);
  // Any thread. What SetTrouble said last.
  Status trouble(int32_t shard) const;
  // Any thread. Set once it was stopped, or something of it was not durable: why.
  std::optional<Status> stopped(int32_t shard) const;
  // Wakes who waits, if something was acknowledged, or a shard stopped, since the last call.
  void Wake();

  Totals totals() const;

 private:
  struct Shard {
    Batch waiting;
    bool told = false;      // the loop was told that something waits
    int64_t tell_from = 0;  // bytes that wait, when it is
    int64_t bytes = 0;      // taken and not acknowledged
    int64_t messages = 0;   // the same
    std::optional<Status> stopped;
    Status trouble;
    std::optional<MonotonicTime> full_since;  // as in Totals
  };
  // Whether Add would take so many bytes now; under the lock.
  Status Takes(Shard& shard, int32_t number, int64_t bytes) const;
  Status Room(const Shard& shard, int32_t number, int64_t bytes) const;
  void OnAcknowledged(Shard& shard, int64_t bytes, MonotonicTime taken, AckOutcome outcome);

  const Options options_;
  HistogramMetric* const commit_time_;
  std::map<int32_t, Shard> shards_;  // the keys are fixed; values guarded by mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  bool wakes_ = false;  // who waits may go on
  Totals totals_;
};

}  // namespace tailcast::producer
