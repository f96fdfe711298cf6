#include "tailcast/storage/posix_appender.h"

#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/strong.h"

namespace tailcast::storage::posix {
namespace {

FAULT_POINT(kNoCommitCheck, "storage.no_commit_check",
            "an append stores the word instead of swapping it");
FAULT_POINT(kNoSlot, "storage.no_slot", "the slot is not written");
FAULT_POINT(kOneSlot, "storage.one_slot", "both slots are one");
FAULT_POINT(kAckBeforeFlush, "storage.ack_before_flush", "an append is not flushed");
FAULT_POINT(kFencedNotRevoked, "storage.fenced_not_revoked",
            "\"fenced\" is reported although the flushed slot is still there");

}  // namespace

Appender::Appender(const Context* context, uint64_t writer, FirstInode file, Segment segment,
                   CommitWord word)
    : context_(context),
      writer_(writer),
      file_(std::move(file)),
      segment_(std::move(segment)),
      word_(word) {}
Appender::~Appender() = default;

void Appender::Move(AppenderState from, AppenderState to) {
  TAILCAST_CHECK(state_ == from, "a step of an append out of order");
  state_ = to;
}

AppendResult Appender::Die(AppendOutcome outcome, Status error) {
  const bool unknown = outcome == AppendOutcome::kUnknown;
  bool drawn = false;
  switch (state_) {
    case AppenderState::kReady:
    case AppenderState::kRevoked:
      drawn = true;
      break;
    case AppenderState::kWritten:
      drawn = unknown;
      break;
    case AppenderState::kFenced:
      drawn = unknown || !MustRevoke();
      break;
    case AppenderState::kFlushed:
    case AppenderState::kDead:
      break;
  }
  TAILCAST_CHECK(drawn, "an append ends out of order");
  state_ = AppenderState::kDead;
  return {outcome, word_.length, std::move(error)};
}

bool Appender::MustRevoke() const { return context_->durable() && !kFencedNotRevoked.planted(); }

Status Appender::FencedError() const {
  return AbortedError(Join(file_.folder, file_.name) + ": epoch " +
                      std::to_string(Raw(word_.epoch)) + " was fenced by epoch " +
                      std::to_string(Raw(LoadWord(*file_.page).epoch)));
}

AppendResult Appender::Append(std::string_view bytes) {
  TAILCAST_CHECK(state_ == AppenderState::kReady, "an append after fenced or unknown");
  const CommitWord next{word_.epoch, word_.length + static_cast<int64_t>(bytes.size())};
  if (next.length > kLengthMax) {
    return Die(AppendOutcome::kUnknown, ResourceExhaustedError(Join(file_.folder, file_.name) +
                                                               ": would grow beyond 1 TiB"));
  }
  // Fenced before anything was written: certainly refused.
  if (LoadWord(*file_.page) != word_) {
    if (file_.page->lost()) return Die(AppendOutcome::kUnknown, PageLost(file_));
    TAILCAST_LOG_STEP(*context_, "AppendRefused", writer_, "");
    return Die(AppendOutcome::kFenced, FencedError());
  }
  if (bytes.empty()) return {AppendOutcome::kApplied, word_.length, OkStatus()};

  // The slot that is overwritten is the older one, never that of the committed length.
  const int64_t slot_offset = kSlotOffsets[next_slot_];
  if (!kOneSlot.planted()) next_slot_ = 1 - next_slot_;
  Status status = Write(bytes, next, slot_offset);
  if (!status.ok()) {
    // What a full disk took of it would be missed by the next one to open the file.
    const Status cut = segment_.file->Truncate(kDataOffset + word_.length - segment_.header.start);
    if (!cut.ok()) status = status.WithContext(cut.message());
    return Die(AppendOutcome::kUnknown, std::move(status));
  }
  status = Sync();
  if (!status.ok()) return Die(AppendOutcome::kUnknown, std::move(status));
  if (Commit(next)) return {AppendOutcome::kApplied, word_.length, OkStatus()};
  if (file_.page->lost()) return Die(AppendOutcome::kUnknown, PageLost(file_));

  // Fenced after the flush. If the power went now, before the fencer's segment is durable, recovery
  // would believe our slot; so the slot is taken back before we say that these bytes are refused.
  if (MustRevoke()) {
    status = Revoke(slot_offset);
    if (status.ok()) status = RevokeSync();
    if (!status.ok()) {
      return Die(AppendOutcome::kUnknown, status.WithContext(FencedError().message()));
    }
  }
  return Die(AppendOutcome::kFenced, FencedError());
}

// spec Fencing: AppendWrite.
Status Appender::Write(std::string_view bytes, CommitWord next, int64_t slot_offset) {
  TAILCAST_RETURN_IF_ERROR(CheckRoom(*context_, "write " + Join(file_.folder, file_.name)));
  TAILCAST_RETURN_IF_ERROR(
      segment_.file->WriteAt(kDataOffset + word_.length - segment_.header.start, bytes));
  if (!kNoSlot.planted()) {
    const Slot slot{file_.header.file_id, word_.epoch, next.length, word_.length, Crc32c(bytes)};
    TAILCAST_RETURN_IF_ERROR(segment_.file->WriteAt(slot_offset, EncodeSlot(slot)));
  }
  Move(AppenderState::kReady, AppenderState::kWritten);
  TAILCAST_LOG_STEP(*context_, "AppendWrite", writer_,
                    LogRange(word_.length, static_cast<int64_t>(bytes.size())));
  return OkStatus();
}

// spec Fencing: AppendSync, AppendSyncFail. One flush for bytes and slot.
Status Appender::Sync() {
  const bool flush = context_->durable() && !kAckBeforeFlush.planted();
  Status status = flush ? segment_.file->SyncData() : OkStatus();
  TAILCAST_LOG_STEP(*context_, status.ok() ? "AppendSync" : "AppendSyncFail", writer_, "");
  if (status.ok()) Move(AppenderState::kWritten, AppenderState::kFlushed);
  return status;
}

// spec Fencing: AppendCommit; spec DuelingWriters: PrimaryAppend.
bool Appender::Commit(CommitWord next) {
  const int64_t stamp = context_->lengths != nullptr ? context_->lengths->Stamp() : 0;
  bool swapped;
  if (kNoCommitCheck.planted()) {
    file_.page->Store(kWordOffset, Pack(next));
    swapped = true;
  } else {
    swapped = SwapWord(*file_.page, word_, next);
  }
  TAILCAST_LOG_STEP(*context_, "AppendCommit", writer_, LogFlag("swapped", swapped));
  Move(AppenderState::kFlushed, swapped ? AppenderState::kReady : AppenderState::kFenced);
  if (!swapped) return false;
  word_ = next;
  if (context_->lengths != nullptr) {
    context_->lengths->WriteAt(stamp, "PrimaryAppend",
                               {{"dir", std::string_view(file_.folder)},
                                {"name", std::string_view(file_.name)},
                                {"len", word_.length}});
  }
  return true;
}

// spec Fencing: AppendRevoke.
Status Appender::Revoke(int64_t slot_offset) {
  TAILCAST_RETURN_IF_ERROR(segment_.file->WriteAt(slot_offset, std::string(kSectorBytes, '\0')));
  Move(AppenderState::kFenced, AppenderState::kRevoked);
  TAILCAST_LOG_STEP(*context_, "AppendRevoke", writer_, "");
  return OkStatus();
}

// spec Fencing: AppendRevokeSync, AppendSyncFail.
Status Appender::RevokeSync() {
  TAILCAST_CHECK(state_ == AppenderState::kRevoked, "a step of an append out of order");
  Status status = segment_.file->SyncData();
  TAILCAST_LOG_STEP(*context_, status.ok() ? "AppendRevokeSync" : "AppendSyncFail", writer_, "");
  return status;
}

}  // namespace tailcast::storage::posix
