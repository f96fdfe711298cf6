// The decisions of one operation at the reader (paper §2.4 Readers): what is known of the source's
// file, when to read, what to tell the writer, when the writer is lost, how the operation ended.
// Which bytes are read next is decided in copy_core.h.
//
//   kOpening ──`opened`──► kCopying
//      │                      │  done: the writer closed with OK at the seal
//      └──────────┬───────────┘  failed: closed, silent, wrong, or stopped
//                 ▼
//              kEnded
//
// A fresh operation reads and sends before `opened` already. An ended one ignores what comes.
//
// A core: no clock, no I/O, one thread. Internal to the module.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tailcast/base/running_clock.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/reader/copy_core.h"
#include "tailcast/reader/counters.h"
#include "tailcast/reader/lag_clock.h"
#include "tailcast/reader/reader_options.h"
#include "tailcast/reader/step_clock.h"
#include "tailcast/reader/wait_clock.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/stream/operation.h"
#include "tailcast/stream/range_reader.h"
#include "tailcast/stream/term.h"

namespace tailcast::reader {

// What an input asks of the driver.
struct Effects {
  bool do_work = false;    // in a later turn, once for all that asked in this one: see below
  bool ask_sizes = false;  // of both parts in the primary layer; answered by OnPrimarySize
  bool changed = false;    // its report has news that can wait until somebody asks
  bool opened = false;     // by the writer: report soon
  bool ended = false;      // close the stream and report at once
};

class OperationCore {
 public:
  enum class Phase : uint8_t { kOpening, kCopying, kEnded };
  struct Ending {
    v1::OperationState state = v1::OPERATION_RUNNING;
    v1::FailureCause cause = v1::CAUSE_NONE;
    std::string message;
  };

  // Begins `now`. `options` and `counters` outlive it.
  OperationCore(const ReaderOptions& options, stream::Operation operation, Counters& counters,
                MonotonicTime now);

  // --- inputs: the source

  // What the metadata cache has of the file and of its successor, whose start is this one's seal.
  void OnMetadata(MonotonicTime now, const stream::PairMetadata& pair,
                  const stream::PairMetadata& next, Effects& out);
  void OnSeal(MonotonicTime now, int64_t data_length, int64_t index_length, Effects& out);
  void OnPrimarySize(MonotonicTime now, stream::Part part, const Result<int64_t>& committed,
                     Effects& out);

  // --- inputs: the writer

  void OnReply(MonotonicTime now, const v1::CopyReply& reply, Effects& out);
  void OnWrongMessage(const Status& status, Effects& out);
  void OnDrained(Effects& out) { out.do_work = !ended(); }
  void OnClosed(const Status& status, Effects& out);

  // --- inputs: time and the agent

  // Once per poll interval; `queued_bytes` wait in the stream. An operation that is stuck ends:
  // blamed on the writer or on the source, whose turn it was (paper §3 Fault Tolerance).
  void OnTick(MonotonicTime now, int64_t queued_bytes, Effects& out);
  void Stop(v1::FailureCause cause, const std::string& message, Effects& out);

  // --- work: asked in this order, each until it has nothing more

  // Jumps, and the seal.
  std::optional<v1::CopyRequest> NextMessage();
  // A read to start while the stream has so many bytes queued; answered by OnRead.
  std::optional<CopyCore::Read> NextRead(MonotonicTime now, int64_t queued_bytes);
  // The bytes of a read: `buffer` begins at position `base` of the part. What to send, if they are
  // still wanted.
  std::optional<v1::CopyRequest> OnRead(MonotonicTime now, const CopyCore::Read& read,
                                        const stream::RangeResult& result, int64_t base,
                                        std::string_view buffer);
  std::optional<v1::CopyRequest> TakeHeartbeat();

  Phase phase() const { return phase_; }
  bool ended() const { return phase_ == Phase::kEnded; }
  const Ending& ending() const { return ending_; }
  const stream::Operation& operation() const { return operation_; }
  const CopyCore& copy() const { return copy_; }
  void Report(MonotonicTime now, v1::OperationReport* out) const;

 private:
  void Enter(Phase next);
  void End(v1::OperationState state, v1::FailureCause cause, std::string message, Effects& out);
  void OnSource(MonotonicTime now, const SourceLengths& source, Effects& out);
  // The source has everything up to its seal in this operation's layer / the writer has it.
  bool SourceComplete() const;
  bool WriterComplete() const;
  v1::WaitsFor InTheWay(MonotonicTime now, int64_t queued_bytes) const;
  void LookIfStuck(MonotonicTime now, Effects& out);
  void EndStuck(CopyCore::Turn turn, Duration how_long, Effects& out);
  Counter& CounterOf(v1::FailureCause cause) const;

  const ReaderOptions& options_;
  const stream::Operation operation_;
  Counters& counters_;
  const Counters::Hop hop_;
  CopyCore copy_;
  LagClock lag_;
  WaitClock wait_;
  WriterLoad writer_load_;
  StepClock reads_, writes_;
  int64_t asked_bytes_ = 0, read_bytes_ = 0;  // of reads that began, and that ended
  Phase phase_ = Phase::kOpening;
  Ending ending_;
  stream::Term superseding_term_;
  int64_t sent_bytes_ = 0;
  bool paused_ = false;  // after a read that came short, until the next tick
  // Who is stuck, by the time that this process ran.
  RunningClock clock_;
  struct Progress {
    CopyCore::Turn turn = CopyCore::Turn::kNobodys;
    int64_t got_to = 0;
    MonotonicTime moved;  // when one of them changed
  };
  Progress progress_[stream::kParts];
  Duration longest_wait_;         // that ended with progress
  int64_t begun_at_ = 0;          // bytes that were written when it opened
  MonotonicTime complete_since_;  // the writer has all up to the seal; else now
  MonotonicTime sizes_answered_;  // or none were asked
  MonotonicTime metadata_read_;   // the metadata cache knew the file
  MonotonicTime next_sizes_;      // not asked before
  int sizes_outstanding_ = 0;
};

}  // namespace tailcast::reader
