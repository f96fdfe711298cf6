// Carries out what OpenCore decides: lists, fences, reads and creates files until the next one of
// the shard is ours, or says why that can't be. Decides nothing.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <memory>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/producer/open_core.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/ports.h"

namespace tailcast::producer {

class Opener {
 public:
  // `on_event` gets the effects that are its owner's: kOpened (see TakeFile and core), kFailing and
  // kFull (answer with TryAgain, or Stop), kFailed.
  Opener(const stream::CellPorts& ports, const stream::ShardId& shard, OpenOptions options,
         uint64_t seed, Callback<void(OpenEffect)> on_event);

  // Begin; one at a time. As the methods of OpenCore.
  void Start();
  void StartRoll(const stream::Stem& current, const stream::Seal& seal, int64_t last_time_us);
  // The recovery begins after `wait`.
  void StartRecovery(const stream::Stem& current, Duration wait);
  void TryAgain(Duration wait);
  void SetBytesMax(int64_t bytes) { core_.SetBytesMax(bytes); }
  void SetChunkSize(int64_t bytes) { core_.SetChunkSize(bytes); }
  // For ever. What is under way at the ports is not heard of any more.
  void Stop() { scope_.End(); }

  // After kOpened: to append to the part.
  std::unique_ptr<storage::AppendFile> TakeFile(stream::Part part);
  const OpenCore& core() const { return core_; }

 private:
  void CarryOut(OpenEffect effect);
  void ReadMetadata(int64_t seq);
  void Fence(const OpenEffect& effect);
  void ReadIndex(const OpenEffect& effect);
  void Create(const OpenEffect& effect);
  WallTime now() const { return ports_.loop->WallNow(); }

  const stream::CellPorts ports_;
  const std::string dir_;
  const stream::KeyMaker keys_;
  Callback<void(OpenEffect)> on_event_;
  OpenCore core_;
  std::unique_ptr<storage::AppendFile> created_[stream::kParts];
  std::unique_ptr<storage::ReadFile> reading_;  // the head's index
  Timer wait_;
  Scope scope_;
};

}  // namespace tailcast::producer
