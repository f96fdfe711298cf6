#include "tailcast/storage/rolled_append_core.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/fault_point.h"

namespace tailcast::storage::rolled {
namespace {

FAULT_POINT(kAppendNotGuarded, "storage.rolled_append_not_guarded",
            "an append does not compare the epoch");
FAULT_POINT(kLengthNotGuarded, "storage.rolled_length_not_guarded",
            "an append does not compare the length");
FAULT_POINT(kRefusedIsFenced, "storage.rolled_refused_is_fenced",
            "a refused append is called fenced without a look at its bytes");

using Guard = ObjectChange::Guard;

}  // namespace

AppendCore::AppendCore(std::string name, Ownership owned)
    : name_(std::move(name)),
      owned_(std::move(owned)),
      sealed_bytes_(owned_.manifest.sealed_bytes()) {}

Next<AppendResult> AppendCore::Ask(Stage stage, ObjectRequest request) {
  stage_ = stage;
  return request;
}

Next<AppendResult> AppendCore::Append(std::string bytes) {
  bytes_ = std::move(bytes);
  sent_ = 0;
  return owned_.length >= owned_.manifest.roll_bytes ? Seal() : Piece();
}

Next<AppendResult> AppendCore::Piece() {
  piece_ = std::min(bytes_.size() - sent_, static_cast<size_t>(owned_.manifest.roll_bytes));
  ObjectChange change;
  change.object = AppendObject(owned_.file_id, owned_.manifest.open());
  if (!kAppendNotGuarded.planted()) {
    change.attribute_guards.push_back(
        {kEpoch, Guard::Test::kEquals, EncodeEpoch(owned_.manifest.epoch)});
  }
  if (!kLengthNotGuarded.planted()) {
    change.attribute_guards.push_back({kLength, Guard::Test::kEquals, EncodeLength(owned_.length)});
  }
  change.append = bytes_.substr(sent_, piece_);
  change.set_attributes = {{kLength, EncodeLength(owned_.length + static_cast<int64_t>(piece_))}};
  return Ask(Stage::kAppend, std::move(change));
}

Next<AppendResult> AppendCore::Seal() {
  ObjectChange change = ChangeOfManifest(owned_.file_id, owned_.manifest);
  change.append = EncodeLength(owned_.length);
  change.set_attributes = {{kSealed, EncodeNumber(owned_.manifest.sealed.size() + 1)}};
  return Ask(Stage::kSeal, std::move(change));
}

Next<AppendResult> AppendCore::Create() {
  return Ask(Stage::kCreate,
             NewAppendObject(owned_.file_id, owned_.manifest.open(), owned_.manifest.epoch));
}

Next<AppendResult> AppendCore::OnReply(const ObjectReply& reply) {
  const ObjectOutcome outcome = reply.outcome;
  if (stage_ == Stage::kCleanUp) return Fenced("the file was deleted");
  if (stage_ == Stage::kRoot) {
    const Status status = ResultOfAbsence(reply, NotFoundError("the file was deleted"));
    return IsNotFound(status) ? Fenced("the file was deleted") : Unknown(status);
  }
  if (outcome == ObjectOutcome::kFailed || outcome == ObjectOutcome::kUnknown) {
    return Unknown(StatusOf(reply, "append"));
  }
  switch (stage_) {
    case Stage::kSeal:
      if (outcome == ObjectOutcome::kDone) return OnSealed();
      if (outcome == ObjectOutcome::kAbsent) return Ask(Stage::kRoot, AskForRoot());
      return Ask(Stage::kWhySealRefused, LookAtManifest(owned_.file_id));
    case Stage::kWhySealRefused: {
      if (outcome == ObjectOutcome::kAbsent) return Ask(Stage::kRoot, AskForRoot());
      const Result<Manifest> now = DecodeManifest(reply);
      if (!now.ok()) return Unknown(now.status());
      if (now->epoch != owned_.manifest.epoch) return Fenced("another opener owns the file");
      // Nobody else has our epoch: the request came twice.
      return OnSealed();
    }
    case Stage::kCreate:
      if (outcome == ObjectOutcome::kDone) {
        return Ask(Stage::kConfirm, LookAtManifest(owned_.file_id));
      }
      return Ask(Stage::kWhyCreateRefused, LookAtState(owned_.file_id, owned_.manifest.open()));
    case Stage::kWhyCreateRefused: {
      if (outcome == ObjectOutcome::kAbsent) return Ask(Stage::kRoot, AskForRoot());
      const Result<AppendState> state = DecodeAppendState(reply.attributes);
      if (!state.ok()) return Unknown(state.status());
      if (state->epoch != owned_.manifest.epoch) return Fenced("another opener owns the file");
      return Ask(Stage::kConfirm, LookAtManifest(owned_.file_id));
    }
    case Stage::kConfirm:
      return OnManifestAfterCreate(reply);
    case Stage::kAppend:
      if (outcome == ObjectOutcome::kDone) return OnApplied();
      if (outcome == ObjectOutcome::kAbsent) {
        return Ask(Stage::kWhyAbsent, LookAtManifest(owned_.file_id));
      }
      {
        ObjectLook look;
        look.object = AppendObject(owned_.file_id, owned_.manifest.open());
        look.attributes = true;
        look.offset = owned_.length;
        look.length = static_cast<int64_t>(piece_);
        return Ask(Stage::kWhyAppendRefused, std::move(look));
      }
    case Stage::kWhyAppendRefused:
      return OnWhyAppendRefused(reply);
    case Stage::kWhyAbsent: {
      if (outcome == ObjectOutcome::kAbsent) return Ask(Stage::kRoot, AskForRoot());
      const Result<Manifest> now = DecodeManifest(reply);
      if (now.ok() && now->epoch == kEpochDeleted) return Fenced("the file is being deleted");
      return Unknown(DataLossError("its open object is not there"));
    }
    case Stage::kCleanUp:
    case Stage::kRoot:
      break;
  }
  return Unknown(InternalError("append"));
}

Next<AppendResult> AppendCore::OnSealed() {
  sealed_bytes_ += owned_.length;
  owned_.manifest.sealed.push_back(std::exchange(owned_.length, 0));
  return Create();
}

// Who deletes the file removes the objects that are there; ours may have come after that, and an
// append to it would be acknowledged and lost.
Next<AppendResult> AppendCore::OnManifestAfterCreate(const ObjectReply& reply) {
  if (reply.outcome == ObjectOutcome::kDone) {
    const Result<Manifest> now = DecodeManifest(reply);
    if (!now.ok()) return Unknown(now.status());
    if (now->epoch == owned_.manifest.epoch) return Piece();
    if (now->epoch != kEpochDeleted) return Fenced("another opener owns the file");
  }
  return Ask(Stage::kCleanUp, Remove(AppendObject(owned_.file_id, owned_.manifest.open())));
}

Next<AppendResult> AppendCore::OnApplied() {
  owned_.length += static_cast<int64_t>(piece_);
  sent_ += piece_;
  if (sent_ == bytes_.size()) {
    bytes_.clear();
    return AppendResult{AppendOutcome::kApplied, committed_length(), OkStatus()};
  }
  return owned_.length >= owned_.manifest.roll_bytes ? Seal() : Piece();
}

Next<AppendResult> AppendCore::OnWhyAppendRefused(const ObjectReply& reply) {
  if (reply.outcome == ObjectOutcome::kAbsent) {
    return Ask(Stage::kWhyAbsent, LookAtManifest(owned_.file_id));
  }
  const Result<AppendState> state = DecodeAppendState(reply.attributes);
  if (!state.ok()) return Unknown(state.status());
  if (state->epoch == owned_.manifest.epoch && !kRefusedIsFenced.planted()) {
    if (state->length == owned_.length + static_cast<int64_t>(piece_)) return OnApplied();
    return Unknown(DataLossError("its open object has " + std::to_string(state->length) +
                                 " bytes, appended were " + std::to_string(owned_.length)));
  }
  // Had ours been applied, our bytes would be there: what is appended never changes.
  const bool like_ours =
      piece_ > 0 && reply.bytes.size() == piece_ && bytes_.compare(sent_, piece_, reply.bytes) == 0;
  if (like_ours && !kRefusedIsFenced.planted()) {
    return Unknown(AbortedError("another opener owns the file, and has bytes like these"));
  }
  return Fenced("another opener owns the file");
}

Next<AppendResult> AppendCore::Fenced(const std::string& why) {
  bytes_.clear();
  const bool nothing = sent_ == 0;
  return AppendResult{nothing ? AppendOutcome::kFenced : AppendOutcome::kUnknown,
                      committed_length(), AbortedError(name_ + ": " + why)};
}

Next<AppendResult> AppendCore::Unknown(Status why) {
  bytes_.clear();
  return AppendResult{AppendOutcome::kUnknown, committed_length(), why.WithContext(name_)};
}

}  // namespace tailcast::storage::rolled
