// The downstream end of a hop (paper §2.4 Writers): serves one Copy stream per operation and writes
// what arrives to this cell's primary layer or data cache, then publishes the lengths.
//
// Primary operations create the pair, or take it over at its committed length by fencing it; they
// append in order, data before index (primary_copy_core.h). Cache operations write chunks in any
// order (stream/chunk_writer_core.h). Both hold a lock (lock_core.h), publish lengths, seals and
// the source's heartbeat as lanes of the file's metadata, and notify this cell's scheduler of the
// file so that the next hop starts.
//
// Threads: everything on the loop of the ports. Invariants: a length is published only after what
// it covers was acknowledged; a fenced operation ends and never reopens; what one operation holds
// in memory is bounded by its window; an unreachable metadata cache stops nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/base/rng.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/ports.h"
#include "tailcast/writer/lock_core.h"
#include "tailcast/writer/primary_copy_core.h"

namespace tailcast::writer {

// Planted bugs: a checker is trusted only after it has caught them. Never set outside of tests.
enum class WriterBug : uint8_t {
  kNone,
  kPublishesBeforeFlush,  // primary lengths are published when the append is sent
  kPublishesBeforeWrite,  // cache lengths are published when the bytes are received
  kChunkFromMiddle,       // a chunk that grows is written from its new bytes on
  kNeverTakesOver,        // a file that exists already is left alone
};

struct WriterOptions {
  std::string name;  // of this process, unique in the cell
  std::string cell;
  int operations_max = 4000;  // running; further ones are ResourceExhausted
  PrimaryCopyOptions primary;
  int64_t cache_window_bytes = 16 << 20;  // of one cache operation, each part: 40 MB/s over 400 ms
  int64_t cache_batch_bytes = 256 << 10;  // of one bulk write
  int cache_batches_max = 8;              // outstanding, of one operation
  LockOptions lock;
  Duration cache_timeout = Duration::Millis(400);  // of one cache call
  Duration retry_delay = Duration::Millis(20);     // after a failed cache write; doubles
  Duration retry_delay_max = Duration::Millis(500);
  int publish_attempts_at_end = 5;  // before an operation ends without having published its end
  Duration keep_alive = Duration::Millis(500);  // to the reader, while bytes wait to be written
  Duration linger = Duration::Seconds(5);       // of the stream of an ended operation, at most
  WriterBug bug = WriterBug::kNone;
  Duration open_timeout = Duration::Seconds(10);  // for the first message of a stream
};

class WriterAgent {
 public:
  // All outlive the agent. `seed` for nothing but nonces.
  WriterAgent(const stream::CellPorts& ports, cell::CellClient& cell, MetricRegistry& metrics,
              WriterOptions options);
  ~WriterAgent();
  WriterAgent(const WriterAgent&) = delete;
  WriterAgent& operator=(const WriterAgent&) = delete;

  // Serves /tailcast.v1.Writer/Copy on `server`. Before the server starts.
  void Attach(rpc::Server& server);

  int operations() const { return static_cast<int>(operations_.size()) - ended_; }  // running

 private:
  friend class WriterOperation;
  friend class PrimaryOperation;
  friend class CacheOperation;
  struct Counters {
    explicit Counters(MetricRegistry& metrics);
    Counter& started_primary;
    Counter& started_cache;
    Counter& done;
    Counter& rejected_input;
    Counter& fenced;
    Counter& poisoned;
    Counter& seized;
    Counter& lock_unavailable;
    Counter& append_unknown;
    Counter& cache_write_failed;
    Counter& cache_mismatch;
    Counter& publish_failed;
    Counter& publish_given_up;
    Counter& notify_failed;
    Counter& below_floor;
    Counter& takeovers;
    Counter& reader_lost;
    Counter& jumps;
    Counter& bytes_primary;
    Counter& bytes_cache;
    Gauge& running;
  };
  // A stream whose first message has not come.
  struct Incoming;

  void OnStream(std::unique_ptr<rpc::Stream> stream);
  void OnFirstMessage(uint64_t id, const std::string& message);
  void Refuse(uint64_t id, Status status);
  // An ended operation goes when its stream is closed, or after a while; in a later turn.
  void Linger(uint64_t id);
  void Remove(uint64_t id);
  void ArmLocks(MonotonicTime when);
  void PollLocks();
  // Tells the scheduler of a file, now and again until it has answered.
  void Notify(const stream::FileId& file, const std::optional<int64_t> (&seal)[stream::kParts]);
  void SendNotice();
  // Runs `then` with the lowest sequence number that may be created in the shard.
  void WithFloor(const stream::ShardId& shard, Callback<void(Result<int64_t>)> then);

  stream::CellPorts ports_;
  cell::CellClient& cell_;
  const WriterOptions options_;
  Counters counters_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<Incoming>> incoming_;
  std::map<uint64_t, std::shared_ptr<class WriterOperation>> operations_;
  int ended_ = 0;  // of operations_, waiting for their stream to close
  TimerId lock_timer_ = 0;
  MonotonicTime lock_timer_at_ = MonotonicTime::Max();
  bool reading_locks_ = false;
  std::map<std::pair<stream::ShardId, int64_t>, v1::FileNotice> notices_;  // by shard, seq
  bool notifying_ = false;
  TimerId notify_timer_ = 0;
  std::map<stream::ShardId, int64_t> floors_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tailcast::writer
