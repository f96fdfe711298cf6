// Carries out what the core of one operation decides (effects.h): it has the operation's stream,
// files, timer and calls under way, and decides nothing. Internal to the module.
//
//   reader ──messages──► ┌────────┐ ──inputs──► primary_operation_core.h
//   layer, caches,       │ driver │             or cache_operation_core.h
//   scheduler ─answers─► └────────┘ ◄─effects──
//
// Threads: everything on the loop. Destroying it drops all answers that are still to come.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "tailcast/base/scope.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/operation.h"
#include "tailcast/stream/ports.h"
#include "tailcast/writer/cache_operation_core.h"
#include "tailcast/writer/cell_link.h"
#include "tailcast/writer/effects.h"
#include "tailcast/writer/primary_operation_core.h"

namespace tailcast::writer {

// What all operations of an agent share; outlives them.
struct DriverPorts {
  const stream::CellPorts& ports;
  CellLink& cell;
  const WriterOptions& options;
  Counters& counters;
  BufferShare& primary_buffers;
  BufferShare& cache_buffers;
};

class OperationDriver {
 public:
  // `stream` outlives the driver; its callbacks are the caller's, who passes on what comes.
  // `on_ended` is called once, when the operation has ended and the stream is closed.
  OperationDriver(const DriverPorts& ports, rpc::Stream& stream, stream::Operation operation,
                  UniqueFunction<void()> on_ended);
  OperationDriver(const OperationDriver&) = delete;
  OperationDriver& operator=(const OperationDriver&) = delete;

  void Start();
  void OnMessage(const std::string& message);
  void OnStreamClosed(const Status& status);
  void OnLockRead(const std::optional<stream::LockValue>& seen);
  void OnLockUnavailable();
  void OnNewEpoch();

  bool ended() const { return life().ended(); }
  // Ended, and nothing of it is under way any more.
  bool gone() const { return life().phase() == LifeCore::Phase::kGone; }
  cache::Key lock_key() const;
  // When the value of its lock is to be read.
  MonotonicTime next_lock_read() const { return life().lock().NextRead(); }

 private:
  using Core = std::variant<PrimaryOperationCore, CacheOperationCore>;
  static Core MakeCore(const CoreContext& context);

  const LifeCore& life() const;
  // Gives the core one input, `input(core, now, effects)`, and carries out what it wants done. The
  // second form is for answers that only one layer's core gets.
  template <typename Input>
  void Give(Input input);
  template <typename LayerCore, typename Input>
  void GiveTo(Input input);
  void CarryOut(Effects& effects);
  void OnOpened(stream::Part part, Result<std::unique_ptr<storage::AppendFile>> file);
  void ArmTimer();

  void Do(SendOpened& effect);
  void Do(SendProgress& effect);
  void Do(SendSuperseded& effect);
  void Do(CloseStream& effect);
  void Do(PublishMetadata& effect);
  void Do(ReadMetadata& effect);
  void Do(ReadLock& effect);
  void Do(WriteLock& effect);
  void Do(OpenFile& effect);
  void Do(SetAside& effect);
  void Do(AppendToFile& effect);
  void Do(WriteChunks& effect);
  void Do(AskFloor& effect);
  void Do(NotifyScheduler& effect);
  void Do(DoWorkLater& effect);

  const DriverPorts& ports_;
  rpc::Stream& stream_;
  UniqueFunction<void()> on_ended_;
  const CoreContext context_;
  const stream::KeyMaker keys_;
  Core core_;
  std::unique_ptr<storage::AppendFile> files_[stream::kParts];
  std::unique_ptr<storage::ReadFile> look_;  // at a file that is about to be taken over
  bool work_posted_ = false;
  Timer timer_;  // what the core wants to do later
  Scope scope_;
};

}  // namespace tailcast::writer
