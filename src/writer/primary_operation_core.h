// The decisions of a primary operation at the writer (paper §2.4 Writers; spec Fencing): opens or
// takes over the pair by fencing, appends in order what arrives, publishes primary lengths.
//
//   kAwaitingLock ──the lock was looked at, or can't be──► kAskingFloor ◄── Start, of a fresh file
//                                                              │ not below the floor
//                                                              ▼
//                      exists: fence it, gone: create it ┌► kOpening, data then index: the index
//                      damaged: set it aside, create it  └──┘  │   file commits the pair
//                                                              ▼ both are open
//                                                   kLookingAtFloor, if one was created: retention
//                                                              │   may have passed it meanwhile
//                                                              ▼   (spec Claim)
//                                                          kCopying
//                                                              │ an append was fenced
//                                                              ▼
//                                                          kFenced: who was it? Then the end.
//
// A new file is opened at once, and bytes may come before its first answer. One that may be there
// already waits for the first look at its lock, so that an operation that was superseded long ago
// does not fence its successor. A file of which committed bytes are missing, because another
// program cut it or removed a part of it, is copied again from its beginning; the other half of its
// pair stays as it is, so the index may then know of data that is still to come. The operation may
// end in every phase (life_core.h); a fenced one never reopens; an append of unknown outcome ends
// it: a successor opens the file anew and finds out what is committed.
//
// A core: no clock, no I/O, one thread. Internal to the module.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/storage/store.h"
#include "tailcast/writer/life_core.h"
#include "tailcast/writer/primary_copy_core.h"

namespace tailcast::writer {

// What an open file says of itself.
struct OpenedFile {
  int64_t committed_length = 0;
  storage::Epoch epoch = storage::Epoch::kNone;
};

class PrimaryOperationCore {
 public:
  static constexpr stream::Layer kLayer = stream::Layer::kPrimary;
  enum class Phase : uint8_t {
    kAwaitingLock,
    kAskingFloor,
    kOpening,
    kLookingAtFloor,
    kCopying,
    kFenced
  };

  explicit PrimaryOperationCore(const CoreContext& context);

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
  void OnFloor(MonotonicTime now, const Result<int64_t>& floor, Effects& out);
  void OnFileOpened(MonotonicTime now, stream::Part part, const Result<OpenedFile>& opened,
                    Effects& out);
  void OnSetAside(MonotonicTime now, stream::Part part, const Status& status, Effects& out);
  void OnAppended(MonotonicTime now, stream::Part part, const storage::AppendResult& result,
                  Effects& out);
  void OnWinner(MonotonicTime now, const std::optional<stream::LockValue>& winner, Effects& out);
  void DoWork(MonotonicTime now, Effects& out);

  Phase phase() const { return phase_; }
  const LifeCore& life() const { return life_; }
  LayerView layer() const;
  MonotonicTime next_due() const { return life_.next_due(); }

 private:
  struct EarlyBytes {
    stream::Part part;
    int64_t position;
    std::string bytes;
  };
  void Enter(Phase next);
  void Open(Effects& out);
  void OnBothOpen(MonotonicTime now, Effects& out);
  void BeginCopy(MonotonicTime now, Effects& out);
  void PublishLengths(MonotonicTime now, Effects& out);
  Status Take(stream::Part part, int64_t position, std::string bytes);
  void Fail(Status status, Effects& out) {
    life_.End(std::move(status), EndCause::kLayerFailed, layer(), out);
  }

  const CoreContext& context_;
  LifeCore life_;
  Phase phase_ = Phase::kAwaitingLock;
  // While it opens.
  stream::Part opening_ = stream::Part::kData;
  bool creating_ = false;
  bool created_ = false;  // a part, here and now
  int created_again_ = 0;
  bool setting_aside_ = false;
  bool was_set_aside_[stream::kParts] = {false, false};
  std::vector<EarlyBytes> early_;  // bytes that came before
  int64_t early_bytes_ = 0;
  // Once both are open.
  OpenedFile opened_[stream::kParts];
  std::optional<PrimaryCopyCore> copy_;
  bool appending_[stream::kParts] = {false, false};
  int64_t append_bytes_[stream::kParts] = {0, 0};
};

}  // namespace tailcast::writer
