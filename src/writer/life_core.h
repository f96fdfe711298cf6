// What the operations of both layers have in common: the lock, the publication of lengths, what the
// reader is told, and the end (spec Locks). A part of primary_operation_core.h and
// cache_operation_core.h, which say with each input how their layer stands.
//
//             the layer has all up to the seal
//   kRunning ──────────────────────────────► kFinishing ──┐ its seal is published, or was tried
//      │                                         │        │ often enough
//      │ lock lost, fenced, wrong input,         │        │
//      │ reader gone, layer failed               │        │
//      ▼                                         ▼        │
//   kDraining ◄──────────────────────────────────┴────────┘ calls to the layer come back
//      │ none is under way any more: the lock's release is written
//      ▼
//   kGone
//
// Invariant: the release tells the next operation that nothing of this one is under way, so it is
// written last; an ended operation never runs again.
//
// A core: no clock, no I/O, one thread. Internal to the module.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tailcast/stream/file_steps.h"
#include "tailcast/stream/operation.h"
#include "tailcast/writer/buffer_share.h"
#include "tailcast/writer/counters.h"
#include "tailcast/writer/effects.h"
#include "tailcast/writer/lock_core.h"
#include "tailcast/writer/publication_core.h"
#include "tailcast/writer/writer_options.h"

namespace tailcast::writer {

// What the cores of one operation share. All outlive them.
struct CoreContext {
  const WriterOptions& options;
  const stream::Operation operation;
  const stream::FileSteps steps;  // the models' steps are logged where they are decided
  Counters& counters;
  BufferShare& buffers;  // of all operations of the layer

  const stream::FileId& file() const { return operation.target.file; }
  std::string Name() const { return operation.target.ToString(); }
};

// For the checks of phase changes: what was tried.
inline std::string PhaseChange(const CoreContext& context, int from, int to) {
  return context.Name() + ": phase " + std::to_string(from) + " -> " + std::to_string(to);
}

// How the layer of an operation stands.
struct LayerView {
  Lengths written = {};        // acknowledged by the layer
  int outstanding = 0;         // calls to it that are under way
  int64_t buffered_bytes = 0;  // came, and are not acknowledged
};

class LifeCore {
 public:
  enum class Phase : uint8_t { kRunning, kFinishing, kDraining, kGone };

  explicit LifeCore(const CoreContext& context);

  // --- what happens outside of the layer; nothing of it matters to an ended operation

  // The value of the lock was read (nullopt: there is none), or could not be. May end the
  // operation.
  void OnLockRead(MonotonicTime now, const std::optional<stream::LockValue>& seen,
                  const LayerView& layer, Effects& out);
  void OnLockUnavailable(MonotonicTime now);
  void OnPublished(MonotonicTime now, bool ok, const LayerView& layer, Effects& out);
  // The cache epoch is another one.
  void OnNewEpoch(MonotonicTime now, Effects& out);
  // Not valid, or another one than the known one: InvalidArgument, DataLoss.
  Status OnSeal(const Lengths& lengths);
  void OnHeartbeat(int64_t as_of_us, const Lengths& lengths);
  void OnReaderGone(const Status& status, const LayerView& layer, Effects& out);

  // --- for the layer's core

  // `size` bytes came at `position`. ResourceExhausted: they end beyond every window that the
  // reader was given. Positions that do not exist are for the layer to refuse.
  Status OnReceived(stream::Part part, int64_t position, size_t size);
  // The answer to a message of the reader: goes on, or ends the operation.
  void OnChecked(const Status& status, const LayerView& layer, Effects& out);
  // The file is open: what there is already, and its epoch.
  void Opened(MonotonicTime now, const Lengths& lengths, storage::Epoch epoch, Effects& out);
  void Publish(MonotonicTime now, const stream::PairMetadata& news, Effects& out);
  // What is due after the layer worked: publications, progress, the end.
  void DoWork(MonotonicTime now, const LayerView& layer, Effects& out);
  // The layer has everything up to the seal.
  void Finish(MonotonicTime now, const LayerView& layer, Effects& out);
  // Another writer fenced the file; `winner` is the lock's value, if it could be read.
  void Fenced(MonotonicTime now, const std::optional<stream::LockValue>& winner,
              const LayerView& layer, Effects& out);
  void End(Status status, EndCause cause, const LayerView& layer, Effects& out);
  // A call that was under way when the operation ended came back.
  void OnCallReturned(const LayerView& layer, Effects& out);

  Phase phase() const { return phase_; }
  bool ended() const { return phase_ >= Phase::kDraining; }
  const Seal& seal() const { return seal_; }
  bool may_work() const { return lock_.MayWork(); }
  const LockCore& lock() const { return lock_; }
  // When DoWork has something to do at the latest. Max: when the next input says so.
  MonotonicTime next_due() const {
    return ended() ? MonotonicTime::Max() : publication_.retry_at();
  }

 private:
  void Enter(Phase next);
  void EndSuperseded(const std::string& how, const LayerView& layer, Effects& out);
  void WriteNews(MonotonicTime now, Effects& out);
  int64_t GiveWindow(MonotonicTime now, const Lengths& written);
  // What the reader may still send.
  int64_t Promised() const;
  void Count(const LayerView& layer);
  void CountBusy(MonotonicTime now, const LayerView& layer);
  void TellProgress(MonotonicTime now, const LayerView& layer, Effects& out);
  void MaybeClose(MonotonicTime now, const LayerView& layer, Effects& out);
  void LogLook(LockCore::State before, const std::optional<stream::LockValue>& seen,
               const std::optional<stream::LockValue>& write) const;
  void LogLock(std::string_view event) const;

  const CoreContext& context_;
  Phase phase_ = Phase::kRunning;
  LockCore lock_;
  std::optional<stream::LockValue> release_;  // to be written when nothing is under way any more
  PublicationCore publication_;
  Seal seal_;
  bool opened_ = false;
  std::optional<Lengths> told_;  // as progress
  BufferShare::Hold hold_;
  Lengths received_ = {0, 0};  // ends of what came, or was there
  bool active_ = false;        // something came since DoWork
  bool was_busy_ = false;      // at the last DoWork, then
  MonotonicTime worked_;
  Duration busy_;
  // Nothing that ends beyond was asked for. A fresh file's reader begins before it is answered.
  Lengths send_limit_ = {stream::kInitialWindowBytes, stream::kInitialWindowBytes};
};

}  // namespace tailcast::writer
