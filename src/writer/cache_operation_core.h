// The decisions of a cache operation at the writer (paper §2.4 Writers, Fig 7, §3 Start Position;
// spec DuelingWriters): bytes of both parts in any order become chunks in the data cache, and their
// lengths are published.
//
//   kReadingLengths ──OnMetadata──► kCopying ◄── Start, of a fresh file
//     where a successor goes on      │    ▲
//                             OnJump │    │ OnMetadata
//                                    ▼    │
//                                kAskingJump: goes on copying, and reads where the primary layer of
//                                this cell stands; the jump goes no further than that, because what
//                                is jumped over must be somewhere here
//
// The operation may end in every phase (life_core.h). While the lock is not there, bytes are
// received and not written. A bulk write that failed is repeated, with what came meanwhile, after a
// delay that doubles.
//
// A core: no clock, no I/O, one thread. Internal to the module.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/stream/chunk_writer_core.h"
#include "tailcast/writer/life_core.h"

namespace tailcast::writer {

class CacheOperationCore {
 public:
  static constexpr stream::Layer kLayer = stream::Layer::kCache;
  enum class Phase : uint8_t { kReadingLengths, kCopying, kAskingJump };

  explicit CacheOperationCore(const CoreContext& context);

  // Inputs. Those that come too late, twice or for something else are ignored.
  void Start(MonotonicTime now, Effects& out);
  void OnBytes(MonotonicTime now, stream::Part part, int64_t position, std::string bytes,
               Effects& out);
  void OnJump(MonotonicTime now, stream::Part part, int64_t position, Effects& out);
  void OnSeal(MonotonicTime now, const Lengths& lengths, Effects& out);
  void OnHeartbeat(MonotonicTime now, int64_t as_of_us, const Lengths& lengths, Effects& out);
  void OnWrongMessage(MonotonicTime now, const Status& status, Effects& out);
  void OnReaderGone(MonotonicTime now, const Status& status, Effects& out);
  void OnLockRead(MonotonicTime now, const std::optional<stream::LockValue>& seen, Effects& out);
  void OnLockUnavailable(MonotonicTime now, Effects& out);
  void OnPublished(MonotonicTime now, const Status& status, Effects& out);
  void OnNewEpoch(MonotonicTime now, Effects& out) { life_.OnNewEpoch(now, out); }
  // What this cell knows of the file; nothing if the metadata cache does not answer.
  void OnMetadata(MonotonicTime now, const stream::PairMetadata& metadata, Effects& out);
  void OnChunksWritten(MonotonicTime now, uint64_t batch, const Status& status, Effects& out);
  void DoWork(MonotonicTime now, Effects& out);

  Phase phase() const { return phase_; }
  const LifeCore& life() const { return life_; }
  LayerView layer() const;
  MonotonicTime next_due() const;

 private:
  struct Sent {
    stream::Part part;
    int64_t chunk;
    int64_t length;
  };
  using Batch = std::vector<Sent>;

  void Enter(Phase next);
  void Begin(MonotonicTime now, const Lengths& lengths, Effects& out);
  void JumpTowards(const Lengths& primary, Effects& out);
  Status Take(stream::Part part, int64_t position, const std::string& bytes);
  void WriteBatch(Effects& out);
  bool begun() const { return chunks_[0].has_value(); }
  bool HasWrites() const { return chunks_[0]->HasWrites() || chunks_[1]->HasWrites(); }
  stream::ChunkWriterCore& chunks(stream::Part part) { return *chunks_[static_cast<int>(part)]; }

  const CoreContext& context_;
  LifeCore life_;
  Phase phase_ = Phase::kReadingLengths;
  std::optional<stream::ChunkWriterCore> chunks_[stream::kParts];  // both or none
  Lengths jump_to_ = {};               // in kAskingJump: as far as the reader asked
  std::map<uint64_t, Batch> batches_;  // under way
  uint64_t next_batch_ = 1;
  int failures_ = 0;                       // in a row
  std::optional<MonotonicTime> retry_at_;  // nothing is written until then
};

}  // namespace tailcast::writer
