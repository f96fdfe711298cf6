// The producer of one shard on an event loop (paper §2.4 Producers): batches messages, appends them
// to the message file of the primary layer, acknowledges them, shadows the bytes into the cache
// layer, rolls files over, and takes over where a dead producer stopped. The user's library around
// it is producer.h; the deterministic world runs this class as it is.
//
// It decides nothing itself. These do; shadows and notifier carry out what they decide, too:
//   ProducerCore  producer_core.h  the life of a shard: states, roll-over, failures, closing
//   AppendCore    append_core.h    when to flush what, data before index, who is acknowledged
//   Opener        opener.h         the next file: names, pairs, takeover (OpenCore)
//   ShadowFile    shadow.h         chunks and lengths of one file (Fig 3, Fig 7)
//   ClosedFiles   closed_files.h   the shadows of files that are closed
//   Notifier      notifier.h       the scheduler is told of files
//
// Invariants: a message is acknowledged after its index record's flush was (design rule "committed
// first"); at most one append is outstanding per file; the cache layer never delays an append; a
// producer appends only to files that it created itself.
//
// Threads: all calls and callbacks on the loop. It is not destroyed inside one of its own
// callbacks (Retire of scope.h does that a turn later).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/base/thread_times.h"
#include "tailcast/producer/ack.h"
#include "tailcast/producer/append_core.h"
#include "tailcast/producer/closed_files.h"
#include "tailcast/producer/notifier.h"
#include "tailcast/producer/opener.h"
#include "tailcast/producer/producer_core.h"
#include "tailcast/producer/shadow.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/pace_core.h"
#include "tailcast/stream/ports.h"

namespace tailcast::producer {

struct AgentOptions {
  // A flush starts as soon as there is something to flush and the previous one started this long
  // ago, or `flush_bytes` wait; with `self_clocked` also as soon as the previous one is durable and
  // has its quorum in the cache.
  Duration flush_interval = Duration::Millis(100);
  bool self_clocked = false;
  // With self_clocked: how long the agent's thread has run and waited for a processor; then flushes
  // give way while the machine is busy, by flush_interval at most. Null: they don't.
  std::optional<ThreadTimes> (*thread_times)() = nullptr;
  bool runs_before_others = false;  // that thread does (base/thread_priority.h)
  int64_t flush_bytes = 1 << 20;
  // Messages that wait for their acknowledgement; more are refused (ResourceExhausted).
  int64_t buffer_bytes_max = 32 << 20;
  int64_t buffer_messages_max = 1 << 18;
  int64_t message_bytes_max = 16 << 20;
  // Bytes; of the files that this producer opens. `by_rate`: only of the first one of the shard,
  // the others' are chosen by the rate of the one before (chunk_size.h).
  int64_t chunk_size = 4096;
  bool chunk_size_by_rate = false;
  // A file is closed and the next one opened once it has this many bytes, data and index, or is
  // this old and not empty.
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

struct AgentCounters : ProducerCounters {
  int64_t heartbeats = 0;
  int64_t notify_failures = 0;
};

class ProducerAgent {
 public:
  using State = ProducerState;
  struct Hooks {
    // Told of each file that is opened or sealed; `done` says whether the scheduler heard it, else
    // it is told again. May be empty.
    NotifyHook notify;
    // Before a flush that may start now, when room in the buffer may be there again, and when the
    // state has changed. May be empty.
    Callback<void()> on_progress;
    // As trouble(): when the primary layer begins to fail, and each time that a shard is found at
    // its limit. It is tried again. `same`: at its limit as before, which was told. May be empty.
    Callback<void(Status, bool same)> on_trouble;
  };

  ProducerAgent(const stream::CellPorts& ports, stream::ShardId shard, AgentOptions options,
                Hooks hooks, uint64_t seed);
  // As kill -9 for the shard's files; outstanding messages are acknowledged as failed or unknown.
  // Close first.
  ~ProducerAgent();
  ProducerAgent(const ProducerAgent&) = delete;
  ProducerAgent& operator=(const ProducerAgent&) = delete;

  // Opens the shard. `opened`, once:
  //   FailedPrecondition  another producer is alive here (names the shard
  //                       and --takeover), or it can't be known because the metadata cache is
  //                       unreachable
  //   Unavailable         the primary layer fails since `give_up`
  //   DataLoss            the folder contradicts itself
  void Open(Callback<void(Status)> opened);

  // Takes messages, in order; all or nothing.
  //   ResourceExhausted   buffer_bytes_max or buffer_messages_max is reached: wait for on_progress
  //   InvalidArgument     a message over message_bytes_max
  //   FailedPrecondition  not opened, closing, or stopped; the message says why
  // Each message that was taken is acknowledged exactly once.
  Status Publish(Batch batch);
  // `headers`: as stream::Headers::Encode made them.
  Status Publish(std::string_view payload, AckCallback ack, std::string_view headers = {});
  // Raw bytes without message boundaries: consumers get them in order, cut anywhere.
  Status Append(std::string_view bytes, AckCallback ack);

  // How many bytes may wait elsewhere for the next on_progress: it comes by itself, unless this has
  // stopped, and Publish before that would bring nothing forward. 0: the next message is to be
  // Published at once.
  int64_t bytes_before_progress() const { return core_.bytes_before_call(); }

  // Flushes what waits, without waiting for the interval.
  void FlushSoon();
  // Flushes, waits until everything is shadowed, seals the file so that the next opener need not
  // wait, and stops when every replica of the caches has answered; waits for the caches
  // `shadow_wait` at most. `closed` once: Ok, or the error that prevented sealing. Called again, it
  // waits as long as that says, and only the later `closed` is called.
  void Close(Duration shadow_wait, Callback<void(Status)> closed);

  // Closed files that the shard may keep, in bytes of data and index; 0: any number. While there
  // are more, no further one is opened.
  void SetBytesMax(int64_t bytes) { opener_->SetBytesMax(bytes); }
  // As AgentOptions::roll_bytes, from now on.
  void SetRollBytes(int64_t bytes) { core_.SetRollBytes(bytes); }

  // The stream is no more: stops with `why`, as after an error. What is not acknowledged is
  // reported.
  void OnDeleted(const Status& why) { Stop(why); }

  State state() const { return core_.state(); }
  // Why it stopped; Ok while it works.
  const Status& status() const { return core_.status(); }
  // Why the primary layer fails, or has no room (ResourceExhausted); Ok while neither is so.
  const Status& trouble() const { return core_.trouble(); }
  int64_t buffered_bytes() const { return core_.append().buffered_bytes(); }
  int64_t unacknowledged() const { return core_.append().unacknowledged(); }
  // Everything below is durable.
  stream::Position durable_position() const { return core_.durable_position(); }
  AgentCounters counters() const;
  const ShadowCounters& shadow_counters() const { return shadow_counters_; }
  const stream::ShardId& shard() const { return core_.shard(); }
  // The file that is appended to; seq 0 when there is none.
  const stream::Stem& current() const { return core_.current(); }
  // For Retire.
  Scope& scope() { return scope_; }

 private:
  struct OpenFile;

  void OnProgress();  // on_progress, and then DoWork
  void DoWork();
  void Pace();
  void FinishClose();
  void CarryOut(Work work);
  void OnOpenEvent(const OpenEffect& effect);
  void OnOpened(const stream::Stem& stem);
  void StartAppend(stream::Part part, AppendEffects::Append append);
  void OnAppended(stream::Part part, const storage::AppendResult& result);
  void Acknowledge(std::vector<Flush>& durable) const;
  void SealFile(const stream::Seal& seal);
  void WaitForReplicas();
  void Heartbeat();
  void PublishAgain();
  void TellTrouble();
  void Stop(const Status& status);
  void ReportLost(AppendCore::Lost lost, const Status& status) const;
  // All files are whole in the caches, and the scheduler has heard of them.
  bool Told() const;

  const stream::CellPorts ports_;
  const AgentOptions options_;
  Hooks hooks_;
  Callback<void(Status)> opened_;
  Callback<void(Status)> closed_;
  ShadowCounters shadow_counters_;
  int64_t heartbeats_ = 0;
  bool told_trouble_ = false;  // since all was well
  ProducerCore core_;
  stream::PaceCore pace_;
  std::unique_ptr<OpenFile> file_;  // that is or was last appended to; null when there is none
  std::unique_ptr<ClosedFiles> closed_files_;
  std::unique_ptr<Notifier> notifier_;
  std::unique_ptr<Opener> opener_;
  Timer flush_timer_;
  Timer heartbeat_timer_;
  Timer close_timer_;
  Scope scope_;
};

}  // namespace tailcast::producer
