#include "tailcast/storage/rolled_quarantine_core.h"

#include <utility>

#include "tailcast/base/fault_point.h"

namespace tailcast::storage::rolled {
namespace {

FAULT_POINT(kNotFenced, "storage.rolled_quarantine_not_fenced",
            "a file is taken aside and its writers go on");

using Guard = ObjectChange::Guard;

}  // namespace

QuarantineCore::QuarantineCore(std::string folder, std::string name)
    : folder_(std::move(folder)), name_(std::move(name)) {}

std::string QuarantineCore::What() const { return "set aside " + folder_ + "/" + name_; }

Next<Status> QuarantineCore::Ask(Stage stage, ObjectRequest request) {
  stage_ = stage;
  return request;
}

Next<Status> QuarantineCore::Begin() {
  return Ask(Stage::kEntry, LookAtKeys(FolderObject(folder_), {std::string(kFilePrefix) + name_}));
}

Next<Status> QuarantineCore::Again() {
  if (--races_left_ < 0) return AbortedError(What() + ": others are at it all the time");
  return Begin();
}

Next<Status> QuarantineCore::OnReply(const ObjectReply& reply) {
  const bool absent = reply.outcome == ObjectOutcome::kAbsent;
  if (stage_ == Stage::kRoot) {
    return ResultOfAbsence(reply, NotFoundError("no file " + folder_ + "/" + name_));
  }
  if (reply.outcome == ObjectOutcome::kFailed || reply.outcome == ObjectOutcome::kUnknown) {
    return StatusOf(reply, What());
  }
  switch (stage_) {
    case Stage::kEntry:
      if (absent) return Ask(Stage::kRoot, AskForRoot());
      return OnEntry(reply);
    case Stage::kManifest:
      return OnManifest(reply);
    case Stage::kMark:
      if (reply.outcome == ObjectOutcome::kRefused) return Again();
      return Fence();
    case Stage::kFence:
      // Refused: it was fenced so before.
      if (readable_ || absent) return Unlink();
      ++object_;
      return Fence();
    case Stage::kUnlink:
      if (absent) return Ask(Stage::kRoot, AskForRoot());
      if (reply.outcome == ObjectOutcome::kRefused) return Again();
      return OkStatus();
    case Stage::kRoot:
      break;
  }
  return InternalError(What());
}

Next<Status> QuarantineCore::OnEntry(const ObjectReply& reply) {
  const auto it = reply.keys.find(std::string(kFilePrefix) + name_);
  if (it == reply.keys.end()) {
    // Our own request may have come twice, or another was faster.
    if (!entry_.empty()) return OkStatus();
    return NotFoundError("no file " + folder_ + "/" + name_);
  }
  if (!entry_.empty() && it->second != entry_) return OkStatus();  // a new one already
  Result<Entry> entry = DecodeEntry(it->second);
  if (!entry.ok()) return entry.status().WithContext(What());
  entry_ = it->second;
  file_ = *std::move(entry);
  return Ask(Stage::kManifest, LookAtManifest(file_.file_id));
}

Next<Status> QuarantineCore::OnManifest(const ObjectReply& reply) {
  object_ = 0;
  readable_ = false;
  if (reply.outcome == ObjectOutcome::kAbsent) return Fence();
  const Result<Manifest> manifest = DecodeManifest(reply);
  ObjectChange mark;
  if (manifest.ok()) {
    readable_ = true;
    object_ = manifest->open();
    if (manifest->epoch == kEpochDeleted) return Fence();
    mark = ChangeOfManifest(file_.file_id, *manifest);
  } else {
    mark.object = ManifestObject(file_.file_id);
  }
  mark.set_attributes = {{kEpoch, EncodeEpoch(kEpochDeleted)}};
  return Ask(Stage::kMark, std::move(mark));
}

Next<Status> QuarantineCore::Fence() {
  if (kNotFenced.planted()) return Unlink();
  ObjectChange raise;
  raise.object = AppendObject(file_.file_id, object_);
  raise.attribute_guards = {{kEpoch, Guard::Test::kBelow, EncodeEpoch(kEpochDeleted)}};
  raise.set_attributes = {{kEpoch, EncodeEpoch(kEpochDeleted)}};
  return Ask(Stage::kFence, std::move(raise));
}

Next<Status> QuarantineCore::Unlink() {
  ObjectChange change;
  change.object = FolderObject(folder_);
  change.key_guards = {{std::string(kFilePrefix) + name_, Guard::Test::kEquals, entry_}};
  change.set_keys = {{std::string(kLoosePrefix) + file_.file_id, std::string(kLooseDead)}};
  change.remove_keys = {std::string(kFilePrefix) + name_, std::string(kKeyPrefix) + file_.other};
  return Ask(Stage::kUnlink, std::move(change));
}

}  // namespace tailcast::storage::rolled
