// The consumer of one shard on an event loop (paper §2.4 Consumers): finds its place, polls lengths
// or waits at a doorbell, reads chunks out of order, checks everything and hands messages over in
// order, from file to file. The user's library around it is consumer.h; the deterministic world
// runs this class as it is.
//
// It decides little: the start point is found by StartSearchCore, when to ask for lengths and how
// far each layer may be read is said by LengthsCore, what to read from which source and what the
// user gets by TailCore. This class owns them and carries out what they want.
//
//                Start                  place found
//     new ───────────────▶ locating ──────────────────▶ tailing ──┐ roll-over:
//                          (waiting)                   (waiting,  │ the next file
//                              │                        quiet,    │
//                              │                        stuck) ◀──┘
//                              └──────▶ failed ◀──────────┘
//
// The user pulls: Take gives what is ready as views into the agent's own memory; Release says that
// the views are not used any more. Nothing is fetched for a user who does not take.
//
// Invariants (design rule "in order"): what Take gave, end to end, is a prefix of what the producer
// committed from the start position on; no byte twice; a message is given only when its index
// record and its bytes passed their check sums and lie where the previous one ended; nothing at
// or beyond a file's seal is given.
//
// Threads: all calls and callbacks on the loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/consumer/agent_options.h"
#include "tailcast/consumer/counters.h"
#include "tailcast/consumer/file_place.h"
#include "tailcast/consumer/lengths_core.h"
#include "tailcast/consumer/shard_status.h"
#include "tailcast/consumer/start_point.h"
#include "tailcast/consumer/tail_core.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/pace_core.h"
#include "tailcast/stream/ports.h"
#include "tailcast/stream/position.h"

namespace tailcast::consumer {

class StartSearch;

class ConsumerAgent {
 public:
  // `on_ready` is called in a turn of its own when Take would give something new, or the state
  // became kFailed; once, until the next Take. Empty: who turns the loop asks ready() himself.
  ConsumerAgent(const stream::CellPorts& ports, stream::ShardId shard, AgentOptions options,
                Callback<void()> on_ready);
  ~ConsumerAgent();
  ConsumerAgent(const ConsumerAgent&) = delete;
  ConsumerAgent& operator=(const ConsumerAgent&) = delete;

  void Start(const StartPoint& start);  // once

  // Adds the messages that are ready to `out`, at most about `bytes_max` of them (at least one
  // if there is one), and returns how many. Their views are valid until Release.
  size_t Take(std::vector<Message>& out, int64_t bytes_max);
  // The stream is no more: fails with `why`. Not inside one of the agent's own callbacks.
  void OnDeleted(const Status& why);
  // The user is done with all views; what comes next may be fetched over them.
  void Release();
  bool ready() const;

  ShardState state() const;
  // kFailed: as ShardStatus::error.
  const Status& status() const { return status_; }
  std::optional<stream::Position> first_available() const { return first_available_; }

  // Behind the last message that Take gave (before the first: where it begins). nullopt until
  // located; a shard that has no files yet begins at message 0.
  std::optional<stream::Position> position() const;
  // As the members of ShardStatus.
  int64_t lag_bytes() const;
  const Status& trouble() const;
  Status missing() const;
  bool end_is_known() const;
  // Of the file that is read; 0: none is.
  int64_t file_seq() const;
  std::optional<int64_t> begins_beyond() const;
  WallTime as_of() const;
  bool next_is_known() const;
  // File, lengths and what it waits for, in one line for people.
  std::string DebugString() const;
  const Counters& counters() const { return counters_; }
  const stream::ShardId& shard() const { return shard_; }

 private:
  struct OpenedFile;
  // Of the diagram above; what stands there in brackets follows from what the cores know.
  enum class Phase : uint8_t { kNew, kLocating, kTailing, kFailed };
  void Enter(Phase next);

  void OnLocated(Result<FilePlace> place);
  void OpenFile(const FilePlace& place);
  void CloseFile();
  void CancelWatch();
  // While tailing: everything that is due now.
  void DoWork();
  // Lengths.
  void Watch();
  // Of that one of the watches.
  void OnDoorbell(size_t watch, bool watched);
  // How soon lengths are read again.
  void Pace();
  // True if it came inside the call.
  bool ReadMetadata(cache::ReadMode mode);
  void OnMetadata(const cache::Values& values);
  void AskPrimary();
  void List();
  void OnListed(const Result<std::vector<storage::DirEntry>>& entries);
  void FailDeleted(const stream::ShardListing& listing);
  // Bytes and messages.
  void Advance();
  bool Fetch(stream::Part part);
  bool OnFetched(stream::Part part, const stream::RangeResult& result);
  void LogLengths(stream::Part part);
  // False if there is nothing more to do with this file now: another one was opened, or failure.
  bool RollOver();
  void SetTimer(MonotonicTime when);
  void SignalReady();
  void Fail(const Status& status);

  const stream::CellPorts ports_;
  const stream::ShardId shard_;
  const AgentOptions options_;
  Callback<void()> on_ready_;
  const std::string dir_;
  const stream::KeyMaker keys_;
  const std::string step_name_;  // in the log of steps

  Counters counters_;
  Phase phase_ = Phase::kNew;
  Status status_;
  std::optional<stream::Position> first_available_;
  std::unique_ptr<StartSearch> search_;  // while locating
  stream::PaceCore pace_;
  HeartbeatAge heartbeats_;
  TailCore tail_;
  std::unique_ptr<OpenedFile> file_;  // while tailing, and when that has failed
  bool signalled_ = false;
  Timer timer_;
  Scope scope_;
};

}  // namespace tailcast::consumer
