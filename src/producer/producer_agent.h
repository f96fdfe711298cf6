// The producer of one shard on an event loop (paper §2.4 Producers): batches messages, appends them
// to the message file of the primary layer, acknowledges them, shadows the bytes into the cache
// layer, rolls files over, and takes over where a dead producer stopped. The user's library around
// it is producer.h; the deterministic world runs this class as it is.
//
// It owns and drives these cores and decides nothing that they could decide:
//   OpenCore    open_core.h    which files to fence, complete and create (names, pairs, takeover)
//   AppendCore  append_core.h  when to flush what, data before index, who is acknowledged
//   ShadowFile  shadow.h       chunks and lengths of one file (Fig 3, Fig 7)
//
// Invariants: a message is acknowledged after its index record's flush was (design rule "committed
// first"); at most one append is outstanding per file; the cache layer never delays an append; a
// producer appends only to files that it created itself.
//
// Threads: all calls and callbacks on the loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/status.h"
#include "tailcast/producer/ack.h"
#include "tailcast/producer/append_core.h"
#include "tailcast/producer/open_core.h"
#include "tailcast/producer/shadow.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/ports.h"
#include "tailcast/stream/range_reader.h"

namespace tailcast::producer {

struct AgentOptions {
  // A flush starts as soon as there is something to flush and the previous one started this long
  // ago, or `flush_bytes` wait. Low-latency profile: 1 ms.
  Duration flush_interval = Duration::Millis(100);
  int64_t flush_bytes = 1 << 20;
  // Messages that wait for their acknowledgement; more are refused (ResourceExhausted).
  int64_t buffer_bytes_max = 32 << 20;
  int64_t message_bytes_max = 16 << 20;
  int64_t chunk_size = 4096;  // bytes; of the files that this producer opens
  // A file is closed and the next one opened once it has this many data bytes, or is this old and
  // not empty.
  int64_t roll_bytes = 256 << 20;
  Duration roll_age = Duration::Seconds(3600);
  // Take the shard over from a producer that is alive, or may be.
  bool takeover = false;
  // How often the metadata's as-of time moves when nothing else does.
  Duration heartbeat = Duration::Seconds(1);
  // How long an opener watches the metadata before it takes a predecessor for dead; more than twice
  // the heartbeat of every producer.
  Duration observe = Duration::Millis(2500);
  // A primary layer that fails is tried again, with back-off, for this long; then the producer
  // stops.
  Duration give_up = Duration::Seconds(60);
  ShadowOptions shadow;
};

// What the scheduler is told (FileNotice of cell.proto).
struct FileEvent {
  stream::FileId file;
  std::optional<stream::Seal> seal;  // set: the file is closed
};

struct AgentCounters {
  int64_t messages = 0, bytes = 0;               // accepted
  int64_t durable = 0, failed = 0, unknown = 0;  // acknowledged
  int64_t refused_full = 0, refused_size = 0;
  int64_t flushes = 0;  // acknowledged by the primary layer
  int64_t files_opened = 0, files_sealed = 0;
  int64_t recoveries = 0;  // after a failed or unknown append or creation
  int64_t heartbeats = 0;
  int64_t notify_failures = 0;
};

class ProducerAgent {
 public:
  enum class State : uint8_t {
    kOpening,  // finding out whether the shard is free, recovering, creating the first file
    kOpen,
    kRolling,     // between two files; messages wait
    kRecovering,  // after an error of the primary layer; messages wait
    kClosing,
    kStopped,  // see status()
  };
  struct Hooks {
    // Told of each file that is opened or sealed; `done` says whether the scheduler heard it, else
    // it is told again. May be empty.
    Callback<void(const FileEvent&, Callback<void(Status)> done)> notify;
    // Room in the buffer again, or the state changed. May be empty.
    Callback<void()> on_progress;
  };

  ProducerAgent(const stream::CellPorts& ports, stream::ShardId shard, AgentOptions options,
                Hooks hooks, uint64_t seed);
  // As kill -9 for the shard's files; outstanding messages are acknowledged kUnknown. Close first.
  ~ProducerAgent();
  ProducerAgent(const ProducerAgent&) = delete;
  ProducerAgent& operator=(const ProducerAgent&) = delete;

  // Opens the shard. `opened`, once:
  //   FailedPrecondition  another producer is alive here (names the shard, its last sign of life
  //                       and --takeover), or it can't be known because the metadata cache is
  //                       unreachable
  //   Unavailable         the primary layer fails since `give_up`
  //   DataLoss            the folder contradicts itself
  void Open(Callback<void(Status)> opened);

  // Takes messages, in order; all or nothing.
  //   ResourceExhausted   buffer_bytes_max is reached: wait for on_progress
  //   InvalidArgument     a message over message_bytes_max
  //   FailedPrecondition  not opened, closing, or stopped; the message says why
  // Each message that was taken is acknowledged exactly once.
  Status Publish(Batch batch);
  Status Publish(std::string_view payload, AckCallback ack);
  // Raw bytes without message boundaries: consumers get them in order, cut anywhere.
  Status Append(std::string_view bytes, AckCallback ack);

  // Flushes what waits, without waiting for the interval.
  void FlushSoon();
  // Flushes, waits until everything is shadowed, seals the file so that the next opener need not
  // wait, and stops when every replica of the caches has answered; waits for the caches
  // `shadow_wait` at most. `closed` once: Ok, or the error that prevented sealing.
  void Close(Duration shadow_wait, Callback<void(Status)> closed);

  State state() const { return state_; }
  // Why it stopped; Ok while it works.
  const Status& status() const { return status_; }
  int64_t buffered_bytes() const { return append_.buffered_bytes(); }
  int64_t unacknowledged() const { return append_.unacknowledged(); }
  // Everything below is durable.
  stream::Position durable_position() const;
  const AgentCounters& counters() const { return counters_; }
  const ShadowCounters& shadow_counters() const { return shadow_counters_; }
  const stream::ShardId& shard() const { return shard_; }
  // The file that is appended to; seq 0 when there is none.
  stream::Stem current() const;

 private:
  struct OpenFile;

  void Step(OpenEffect effect);
  void ReadMetadata(int64_t seq);
  void ReadIndex(const OpenEffect& effect);
  void OnCreated(const OpenEffect& effect, Result<std::unique_ptr<storage::AppendFile>> file);
  void OnOpened(const stream::Stem& stem);
  void ShadowPredecessor(const Predecessor& predecessor);
  void OnPredecessorMetadata(const Predecessor& predecessor, const stream::PairMetadata& metadata);
  void AddShadow(std::unique_ptr<ShadowFile> shadow);
  void DropIdleShadows();
  void Pump();
  void Run(AppendEffects& effects);
  void StartAppend(stream::Part part, AppendEffects::Append append);
  void OnAppended(stream::Part part, storage::AppendResult result);
  void OnGivenUp();
  void Acknowledge(std::vector<Flush>& durable);
  void Lose(const Status& status);
  void RetireFile();
  void Notify(FileEvent event, int attempt);
  void Heartbeat();
  void MaybeFinishClose();
  void Stop(Status status);
  bool DueForRoll() const;

  const stream::CellPorts ports_;
  const stream::ShardId shard_;
  const AgentOptions options_;
  Hooks hooks_;
  const std::string dir_;
  const stream::KeyMaker keys_;

  State state_ = State::kOpening;
  Status status_;
  Callback<void(Status)> opened_;
  Callback<void(Status)> closed_;
  OpenCore open_;
  AppendCore append_;
  std::unique_ptr<storage::AppendFile> created_[stream::kParts];  // of the file being opened
  std::unique_ptr<storage::ReadFile> index_reader_;
  std::unique_ptr<OpenFile> file_;
  std::vector<std::unique_ptr<ShadowFile>> shadows_;  // of closed files, oldest first
  std::map<uint64_t, std::unique_ptr<stream::RangeReader>> readers_;  // of predecessors' tails
  uint64_t last_reader_ = 0;
  bool fenced_ = false;
  Status append_error_;
  bool index_unknown_ = false;  // the outcome of the last index append
  int64_t last_time_us_ = 0;
  MonotonicTime failing_since_ = MonotonicTime::Max();
  bool closing_ = false;
  bool sealed_ = false;
  bool draining_ = false;
  TimerId flush_timer_ = 0;
  TimerId heartbeat_timer_ = 0;
  TimerId close_timer_ = 0;
  AgentCounters counters_;
  ShadowCounters shadow_counters_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tailcast::producer
