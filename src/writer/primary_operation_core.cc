#include "tailcast/writer/primary_operation_core.h"

#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::writer {
namespace {

constexpr int kCreatedAgainMax = 3;

FAULT_POINT(kPublishBeforeFlush, "writer.publish_before_flush",
            "primary lengths are published when the append is sent");
FAULT_POINT(kNeverTakeOver, "writer.never_take_over", "a file that exists already is left alone");

}  // namespace

using stream::LockValue;
using stream::PairMetadata;
using stream::Part;

PrimaryOperationCore::PrimaryOperationCore(const CoreContext& context)
    : context_(context), life_(context) {}

void PrimaryOperationCore::Enter(Phase next) {
  const bool allowed = next == Phase::kAskingFloor      ? phase_ == Phase::kAwaitingLock
                       : next == Phase::kOpening        ? phase_ == Phase::kAskingFloor
                       : next == Phase::kLookingAtFloor ? phase_ == Phase::kOpening
                       : next == Phase::kCopying
                           ? phase_ == Phase::kOpening || phase_ == Phase::kLookingAtFloor
                       : next == Phase::kFenced ? phase_ == Phase::kCopying
                                                : false;
  TAILCAST_CHECK(allowed && !life_.ended(),
                 PhaseChange(context_, static_cast<int>(phase_), static_cast<int>(next)));
  phase_ = next;
}

LayerView PrimaryOperationCore::layer() const {
  LayerView view;
  for (int p = 0; p < stream::kParts; ++p) {
    if (copy_) view.written[p] = copy_->committed(static_cast<Part>(p));
    view.outstanding += appending_[p];
  }
  view.buffered_bytes = copy_ ? copy_->buffered_bytes() : early_bytes_;
  return view;
}

// --- the reader and the lock

void PrimaryOperationCore::Start(MonotonicTime, Effects& out) {
  context_.counters.started_primary.Add();
  if (context_.operation.fresh) Open(out);
}

void PrimaryOperationCore::OnBytes(MonotonicTime, Part part, int64_t position, std::string bytes,
                                   Effects& out) {
  if (life_.ended()) return;
  life_.OnChecked(Take(part, position, std::move(bytes)), layer(), out);
}

Status PrimaryOperationCore::Take(Part part, int64_t position, std::string bytes) {
  TAILCAST_RETURN_IF_ERROR(life_.OnReceived(part, position, bytes.size()));
  if (copy_) return copy_->OnBytes(part, position, bytes);
  if (!context_.operation.fresh) {
    return InvalidArgumentError("bytes before `opened` of a known file");
  }
  early_bytes_ += static_cast<int64_t>(bytes.size());
  if (early_bytes_ > stream::kParts * stream::kInitialWindowBytes) {
    return ResourceExhaustedError(context_.Name() +
                                  ": more than the window was sent before `opened`");
  }
  early_.push_back({part, position, std::move(bytes)});
  return OkStatus();
}

void PrimaryOperationCore::OnJump(MonotonicTime, Part, int64_t, Effects& out) {
  life_.OnChecked(InvalidArgumentError("jump in a primary operation: its bytes come in order"),
                  layer(), out);
}

void PrimaryOperationCore::OnSeal(MonotonicTime, const Lengths& lengths, Effects& out) {
  if (life_.ended()) return;
  Status status = life_.OnSeal(lengths);
  if (status.ok() && copy_) status = copy_->OnSeal(lengths[0], lengths[1]);
  life_.OnChecked(status, layer(), out);
}

void PrimaryOperationCore::OnHeartbeat(MonotonicTime, int64_t as_of_us, const Lengths& lengths,
                                       Effects& out) {
  life_.OnHeartbeat(as_of_us, lengths);
  life_.OnChecked(OkStatus(), layer(), out);
}

void PrimaryOperationCore::OnWrongMessage(MonotonicTime, const Status& status, Effects& out) {
  life_.OnChecked(status, layer(), out);
}

void PrimaryOperationCore::OnReaderGone(MonotonicTime, const Status& status, Effects& out) {
  life_.OnReaderGone(status, layer(), out);
}

void PrimaryOperationCore::OnLockRead(MonotonicTime now, const std::optional<LockValue>& seen,
                                      Effects& out) {
  life_.OnLockRead(now, seen, layer(), out);
  if (life_.ended()) return;
  if (phase_ == Phase::kAwaitingLock) Open(out);
  out.push_back(DoWorkLater());
}

void PrimaryOperationCore::OnLockUnavailable(MonotonicTime now, Effects& out) {
  life_.OnLockUnavailable(now);
  if (life_.ended()) return;
  if (phase_ == Phase::kAwaitingLock) Open(out);
  out.push_back(DoWorkLater());
}

void PrimaryOperationCore::OnPublished(MonotonicTime now, const Status& status, Effects& out) {
  life_.OnPublished(now, status.ok(), layer(), out);
}

// --- opening

void PrimaryOperationCore::Open(Effects& out) {
  Enter(Phase::kAskingFloor);
  out.push_back(AskFloor());
}

void PrimaryOperationCore::OnFloor(MonotonicTime now, const Result<int64_t>& floor, Effects& out) {
  const bool looking = phase_ == Phase::kLookingAtFloor;
  if (life_.ended() || (phase_ != Phase::kAskingFloor && !looking)) return;
  if (!floor.ok()) return Fail(floor.status().WithContext(context_.Name()), out);
  if (context_.file().stem.seq < *floor) {
    context_.counters.below_floor.Add();
    life_.End(OutOfRangeError(context_.Name() + ": below the retention floor of this cell, file " +
                              std::to_string(*floor)),
              EndCause::kRefused, layer(), out);
    return;
  }
  if (looking) return BeginCopy(now, out);
  Enter(Phase::kOpening);
  creating_ = context_.operation.fresh;
  out.push_back(OpenFile{opening_, creating_});
}

void PrimaryOperationCore::OnFileOpened(MonotonicTime now, Part part,
                                        const Result<OpenedFile>& opened, Effects& out) {
  if (life_.ended() || phase_ != Phase::kOpening || part != opening_ || setting_aside_) return;
  if (!opened.ok()) {
    const Status& status = opened.status();
    if (kNeverTakeOver.planted()) return Fail(status, out);
    if (creating_ && IsAlreadyExists(status)) {
      const std::string name = stream::FileName(context_.file().stem, part);
      if (storage::WinnerOf(status) != name) {
        return Fail(
            DataLossError(context_.Name() + ": " + name + " cannot be created: the cell has " +
                          storage::WinnerOf(status) + " under the same sequence number"),
            out);
      }
      creating_ = false;
    } else if (!creating_ && IsNotFound(status) && created_again_++ < kCreatedAgainMax) {
      creating_ = true;
    } else if (IsDataLoss(status) && !was_set_aside_[static_cast<int>(part)]) {
      context_.counters.damaged.Add();
      setting_aside_ = true;
      was_set_aside_[static_cast<int>(part)] = true;
      out.push_back(SetAside{part, status});
      return;
    } else {
      return Fail(status.WithContext(context_.Name()), out);
    }
    out.push_back(OpenFile{part, creating_});
    return;
  }
  if (!creating_) context_.counters.takeovers.Add();
  created_ |= creating_;
  opened_[static_cast<int>(part)] = *opened;
  if (part == Part::kIndex) return OnBothOpen(now, out);
  opening_ = Part::kIndex;
  out.push_back(OpenFile{opening_, creating_});
}

void PrimaryOperationCore::OnSetAside(MonotonicTime, Part part, const Status& status,
                                      Effects& out) {
  if (life_.ended() || !setting_aside_ || part != opening_) return;
  setting_aside_ = false;
  if (!status.ok() && !IsNotFound(status)) return Fail(status.WithContext(context_.Name()), out);
  creating_ = true;
  out.push_back(OpenFile{part, creating_});
}

void PrimaryOperationCore::OnBothOpen(MonotonicTime now, Effects& out) {
  const Lengths lengths = {opened_[0].committed_length, opened_[1].committed_length};
  if (lengths[1] % stream::kIndexRecordSize != 0) {
    return Fail(DataLossError(context_.Name() + ": its index is committed up to " +
                              std::to_string(lengths[1]) + ", inside a record"),
                out);
  }
  if (!created_) return BeginCopy(now, out);
  // Retention may have deleted this very file since we asked (spec Claim): then ours is one too
  // many, and goes with the next look of the cell's scheduler.
  Enter(Phase::kLookingAtFloor);
  out.push_back(AskFloor{.look = true});
}

void PrimaryOperationCore::BeginCopy(MonotonicTime now, Effects& out) {
  Enter(Phase::kCopying);
  const Lengths lengths = {opened_[0].committed_length, opened_[1].committed_length};
  copy_.emplace(context_.options.primary, lengths[0], lengths[1]);
  life_.Opened(now, lengths, opened_[0].epoch, out);
  out.push_back(NotifyScheduler{life_.seal()});
  PublishLengths(now, out);
  const Seal& seal = life_.seal();
  Status status = seal ? copy_->OnSeal((*seal)[0], (*seal)[1]) : OkStatus();
  for (EarlyBytes& early : early_) {
    if (status.ok()) status = copy_->OnBytes(early.part, early.position, early.bytes);
  }
  early_.clear();
  if (!status.ok()) status = status.WithContext(context_.Name());
  life_.OnChecked(status, layer(), out);
}

// --- copying

void PrimaryOperationCore::DoWork(MonotonicTime now, Effects& out) {
  if (life_.ended()) return;
  if (phase_ == Phase::kCopying) {
    for (Part part : {Part::kData, Part::kIndex}) {
      auto append = copy_->NextAppend(part);
      if (!append.ok()) {
        context_.counters.rejected_input.Add();
        life_.End(append.status().WithContext(context_.Name()), EndCause::kRejectedInput, layer(),
                  out);
        return;
      }
      if (!*append) continue;
      const int p = static_cast<int>(part);
      appending_[p] = true;
      append_bytes_[p] = static_cast<int64_t>((*append)->bytes.size());
      if (kPublishBeforeFlush.planted()) {
        PairMetadata early;
        early.primary_length[p] = (*append)->offset + append_bytes_[p];
        life_.Publish(now, early, out);
      }
      out.push_back(AppendToFile{part, (*append)->offset, std::move((*append)->bytes)});
    }
    if (copy_->done()) life_.Finish(now, layer(), out);
  }
  life_.DoWork(now, layer(), out);
}

void PrimaryOperationCore::OnAppended(MonotonicTime now, Part part,
                                      const storage::AppendResult& result, Effects& out) {
  const int p = static_cast<int>(part);
  if (!appending_[p]) return;
  appending_[p] = false;
  if (life_.ended()) return life_.OnCallReturned(layer(), out);
  switch (result.outcome) {
    case storage::AppendOutcome::kApplied:
      copy_->OnApplied(part);
      context_.counters.bytes_primary.Add(append_bytes_[p]);
      PublishLengths(now, out);
      out.push_back(DoWorkLater());
      return;
    case storage::AppendOutcome::kFenced:
      context_.counters.fenced.Add();
      if (phase_ == Phase::kFenced) return;
      // The lock tells who it was, and the scheduler then whether to try again.
      Enter(Phase::kFenced);
      out.push_back(ReadLock());
      return;
    case storage::AppendOutcome::kWrongOffset:
    case storage::AppendOutcome::kUnknown:
      context_.counters.append_unknown.Add();
      Fail(
          UnavailableError(context_.Name() + ": append at " +
                           std::to_string(copy_->committed(part)) + ": " + result.error.ToString()),
          out);
      return;
  }
}

void PrimaryOperationCore::OnWinner(MonotonicTime now, const std::optional<LockValue>& winner,
                                    Effects& out) {
  if (phase_ == Phase::kFenced) life_.Fenced(now, winner, layer(), out);
}

void PrimaryOperationCore::PublishLengths(MonotonicTime now, Effects& out) {
  PairMetadata news;
  news.primary_epoch = opened_[0].epoch;
  for (int p = 0; p < stream::kParts; ++p) {
    news.primary_length[p] = copy_->committed(static_cast<Part>(p));
  }
  life_.Publish(now, news, out);
}

}  // namespace tailcast::writer
