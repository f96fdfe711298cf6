#include "tailcast/storage/rolled_read_core.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/fault_point.h"

namespace tailcast::storage::rolled {
namespace {

FAULT_POINT(kRollNotNoticed, "storage.rolled_roll_not_noticed",
            "a reader never reads the manifest again");
FAULT_POINT(kAbsentIsEnd, "storage.rolled_absent_is_end",
            "an object that is not there is taken for the file's end");

// A newer manifest replaces what is known; calls may be answered in any order.
Status Learn(KnownFile& file, const ObjectReply& reply, const std::string& name) {
  Result<Manifest> manifest = DecodeManifest(reply);
  if (!manifest.ok()) return manifest.status().WithContext(name);
  if (manifest->epoch == kEpochDeleted) return NotFoundError(name + " was deleted");
  if (manifest->sealed.size() >= file.manifest.sealed.size()) file.manifest = *std::move(manifest);
  return OkStatus();
}

}  // namespace

// ---------------------------------------------------------------------------------------------

FindCore::FindCore(std::string folder, std::string name)
    : folder_(std::move(folder)), name_(std::move(name)) {}

Next<FindCore::Outcome> FindCore::Begin() {
  return LookAtKeys(FolderObject(folder_), {std::string(kFilePrefix) + name_});
}

Next<FindCore::Outcome> FindCore::OnReply(const ObjectReply& reply) {
  const Status not_there = NotFoundError("no file " + folder_ + "/" + name_);
  if (stage_ == Stage::kRoot) return Outcome(ResultOfAbsence(reply, not_there));
  if (reply.outcome == ObjectOutcome::kAbsent) {
    stage_ = Stage::kRoot;
    return AskForRoot();
  }
  if (reply.outcome != ObjectOutcome::kDone) {
    return Outcome(StatusOf(reply, "open " + folder_ + "/" + name_));
  }
  if (stage_ == Stage::kEntry) {
    const auto it = reply.keys.find(std::string(kFilePrefix) + name_);
    if (it == reply.keys.end()) return Outcome(not_there);
    Result<Entry> entry = DecodeEntry(it->second);
    if (!entry.ok()) return Outcome(entry.status().WithContext(folder_ + "/" + name_));
    file_->file_id = entry->file_id;
    stage_ = Stage::kManifest;
    return LookAtManifest(file_->file_id);
  }
  if (Status status = Learn(*file_, reply, name_); !status.ok()) return Outcome(status);
  return Outcome(file_);
}

// ---------------------------------------------------------------------------------------------

SizeCore::SizeCore(std::string name, std::shared_ptr<KnownFile> file)
    : name_(std::move(name)), file_(std::move(file)) {}

Next<SizeCore::Outcome> SizeCore::Begin() {
  stage_ = Stage::kObject;
  asked_ = file_->manifest.open();
  return LookAtState(file_->file_id, asked_);
}

SizeCore::Outcome SizeCore::Known(int64_t open_length, Epoch epoch) {
  FileSize& shown = file_->shown;
  // Of the object that was asked for: another call may have learned of a later one meanwhile.
  int64_t length = open_length;
  for (size_t i = 0; i < asked_; ++i) length += file_->manifest.sealed[i];
  shown.committed_length = std::max(shown.committed_length, length);
  shown.epoch = std::max(shown.epoch, epoch);
  return shown;
}

Next<SizeCore::Outcome> SizeCore::OnReply(const ObjectReply& reply) {
  if (stage_ == Stage::kRoot) {
    return Outcome(ResultOfAbsence(reply, NotFoundError(name_ + " was deleted")));
  }
  const bool absent = reply.outcome == ObjectOutcome::kAbsent;
  if (reply.outcome != ObjectOutcome::kDone && !absent) {
    return Outcome(StatusOf(reply, "size of " + name_));
  }
  if (stage_ == Stage::kObject) {
    AppendState state;
    if (!absent) {
      Result<AppendState> decoded = DecodeAppendState(reply.attributes);
      if (!decoded.ok()) return Outcome(decoded.status().WithContext(name_));
      state = *decoded;
      if (state.length < file_->manifest.roll_bytes || kRollNotNoticed.planted()) {
        return Known(state.length, state.epoch);
      }
    }
    object_length_ = state.length;
    stage_ = Stage::kManifest;
    return LookAtManifest(file_->file_id);
  }
  if (absent) {
    stage_ = Stage::kRoot;
    return AskForRoot();
  }
  if (Status status = Learn(*file_, reply, name_); !status.ok()) return Outcome(status);
  // Not rolled yet; or so fast that the rest is for the next call.
  if (file_->manifest.open() == asked_ || --rolls_left_ < 0) {
    return Known(object_length_, file_->manifest.epoch);
  }
  return Begin();
}

// ---------------------------------------------------------------------------------------------

CheckCore::CheckCore(std::string name, std::shared_ptr<KnownFile> file)
    : name_(std::move(name)), file_(std::move(file)), size_(name_, file_) {}

Next<CheckCore::Outcome> CheckCore::Begin() { return Ask(); }

Next<CheckCore::Outcome> CheckCore::Ask() {
  if (asked_ < file_->manifest.sealed.size()) return LookAtState(file_->file_id, asked_);
  stage_ = Stage::kSize;
  return size_.Begin();
}

Next<CheckCore::Outcome> CheckCore::OnReply(const ObjectReply& reply) {
  const bool absent = reply.outcome == ObjectOutcome::kAbsent;
  const Status gone =
      DataLossError(name_ + ": its sealed object " + std::to_string(asked_) + " is not there");
  switch (stage_) {
    case Stage::kSize:
      return size_.OnReply(reply);
    case Stage::kRoot:
      return Outcome(ResultOfAbsence(reply, NotFoundError(name_ + " was deleted")));
    case Stage::kManifest:
      // Who deletes a file takes its objects first, and its manifest says so.
      if (absent) {
        stage_ = Stage::kRoot;
        return AskForRoot();
      }
      if (reply.outcome != ObjectOutcome::kDone) {
        return Outcome(StatusOf(reply, "check of " + name_));
      }
      if (Status status = Learn(*file_, reply, name_); !status.ok()) return Outcome(status);
      return Outcome(gone);
    case Stage::kObject:
      break;
  }
  if (absent) {
    stage_ = Stage::kManifest;
    return LookAtManifest(file_->file_id);
  }
  if (reply.outcome != ObjectOutcome::kDone) {
    return Outcome(StatusOf(reply, "check of " + name_));
  }
  const Result<AppendState> state = DecodeAppendState(reply.attributes);
  if (!state.ok()) return Outcome(state.status().WithContext(name_));
  if (state->length < file_->manifest.sealed[asked_]) {
    return Outcome(
        DataLossError(name_ + ": its sealed object " + std::to_string(asked_) + " ends too early"));
  }
  ++asked_;
  return Ask();
}

// ---------------------------------------------------------------------------------------------

ReadCore::ReadCore(std::string name, std::shared_ptr<KnownFile> file, int64_t offset,
                   int64_t length)
    : name_(std::move(name)),
      file_(std::move(file)),
      offset_(offset),
      length_(std::min(length, kBytesMax)) {}

Next<ReadCore::Outcome> ReadCore::Begin() {
  stage_ = Stage::kObject;
  int64_t start = 0;
  ObjectLook look;
  look.length = length_;
  const std::vector<int64_t>& sealed = file_->manifest.sealed;
  for (asked_ = 0; asked_ < sealed.size(); start += sealed[asked_++]) {
    if (offset_ >= start + sealed[asked_]) continue;
    look.length = std::min(length_, start + sealed[asked_] - offset_);
    break;
  }
  was_sealed_ = asked_ < sealed.size();
  look.object = AppendObject(file_->file_id, asked_);
  look.offset = offset_ - start;
  return look;
}

Next<ReadCore::Outcome> ReadCore::OnReply(ObjectReply reply) {
  if (stage_ == Stage::kRoot) {
    return Outcome(ResultOfAbsence(reply, NotFoundError(name_ + " was deleted")));
  }
  const bool absent = reply.outcome == ObjectOutcome::kAbsent;
  if (reply.outcome != ObjectOutcome::kDone && !absent) {
    return Outcome(StatusOf(reply, "read " + name_));
  }
  if (stage_ == Stage::kObject) {
    if (!reply.bytes.empty() || length_ == 0) return Outcome(std::move(reply.bytes));
    // The end, unless the object was rolled. One that is not full never is.
    int64_t start = 0;
    for (size_t i = 0; i < asked_; ++i) start += file_->manifest.sealed[i];
    const bool may_be_rolled = offset_ - start >= file_->manifest.roll_bytes;
    if (kRollNotNoticed.planted() || (absent && kAbsentIsEnd.planted())) {
      return Outcome(std::string());
    }
    if (!was_sealed_ && !absent && !may_be_rolled) return Outcome(std::string());
    was_absent_ = absent;
    stage_ = Stage::kManifest;
    return LookAtManifest(file_->file_id);
  }
  if (absent) {
    stage_ = Stage::kRoot;
    return AskForRoot();
  }
  if (Status status = Learn(*file_, reply, name_); !status.ok()) return Outcome(status);
  if (was_sealed_) {
    return Outcome(DataLossError(name_ + ": its sealed object " + std::to_string(asked_) +
                                 (was_absent_ ? " is not there" : " ends too early")));
  }
  if (file_->manifest.open() != asked_ && --rolls_left_ >= 0) return Begin();
  return Outcome(std::string());
}

}  // namespace tailcast::storage::rolled
