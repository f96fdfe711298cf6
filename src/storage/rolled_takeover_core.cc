#include "tailcast/storage/rolled_takeover_core.h"

#include <utility>

#include "tailcast/base/fault_point.h"

namespace tailcast::storage::rolled {
namespace {

FAULT_POINT(kManifestNotRaised, "storage.rolled_manifest_not_raised",
            "a takeover raises the open object's epoch only");
FAULT_POINT(kEpochNotGuarded, "storage.rolled_epoch_not_guarded",
            "a fencer that slept lowers the epoch of an object");
FAULT_POINT(kEarlyLookBelieved, "storage.rolled_early_look_believed",
            "the length is that of a look which landed before the open object was fenced");

using Guard = ObjectChange::Guard;

}  // namespace

TakeoverCore::TakeoverCore(std::string folder, std::string name)
    : folder_(std::move(folder)), name_(std::move(name)) {}

std::string TakeoverCore::What() const { return "take over " + folder_ + "/" + name_; }
Status TakeoverCore::NotThere() const { return NotFoundError("no file " + folder_ + "/" + name_); }

TakeoverCore::Step TakeoverCore::Ask(Stage stage, ObjectRequest request) {
  stage_ = stage;
  return request;
}

TakeoverCore::Step TakeoverCore::Begin() {
  return Ask(Stage::kEntry, LookAtKeys(FolderObject(folder_), {std::string(kFilePrefix) + name_}));
}

TakeoverCore::Step TakeoverCore::Again() {
  if (--races_left_ < 0) {
    return Outcome(AbortedError(What() + ": others take the file over all the time"));
  }
  return Ask(Stage::kManifest, LookAtManifest(owned_.file_id));
}

TakeoverCore::Step TakeoverCore::OnReply(const ObjectReply& reply) {
  const ObjectOutcome outcome = reply.outcome;
  if (stage_ == Stage::kRoot) return Outcome(ResultOfAbsence(reply, NotThere()));
  if (outcome == ObjectOutcome::kFailed || outcome == ObjectOutcome::kUnknown) {
    return Outcome(StatusOf(reply, What()));
  }
  if (outcome == ObjectOutcome::kAbsent) return Ask(Stage::kRoot, AskForRoot());
  switch (stage_) {
    case Stage::kEntry:
      return OnEntry(reply);
    case Stage::kManifest:
      return OnManifest(reply);
    case Stage::kRaiseManifest:
      if (outcome == ObjectOutcome::kRefused) return Again();
      owned_.manifest.epoch = Epoch{static_cast<uint64_t>(owned_.manifest.epoch) + 1};
      return RaiseObject();
    case Stage::kCreateObject:
      if (outcome == ObjectOutcome::kExists) {
        // The earlier owner came to it after all, or our own request came twice.
        if (--races_left_ < 0) return Outcome(AbortedError(What()));
        return RaiseObject();
      }
      created_ = true;
      return LookAtObject();
    case Stage::kObject:
      return OnObject(reply);
    case Stage::kConfirm: {
      // Who deletes the file removes the objects that are there; ours may have come after that.
      const Result<Manifest> now = DecodeManifest(reply);
      if (now.ok() && now->epoch == kEpochDeleted) return Outcome(NotThere());
      return Outcome(std::move(owned_));
    }
    case Stage::kRaiseObject:
    case Stage::kRoot:
      break;
  }
  return Outcome(InternalError(What()));
}

TakeoverCore::Step TakeoverCore::OnReplies(const ObjectReply& raise, const ObjectReply& look) {
  for (const ObjectReply* reply : {&raise, &look}) {
    if (reply->outcome == ObjectOutcome::kFailed || reply->outcome == ObjectOutcome::kUnknown) {
      return Outcome(StatusOf(*reply, What()));
    }
  }
  // The earlier owner sealed the object before it, and did not come to create this one.
  if (raise.outcome == ObjectOutcome::kAbsent) {
    return Ask(Stage::kCreateObject,
               NewAppendObject(owned_.file_id, owned_.manifest.open(), owned_.manifest.epoch));
  }
  // Refused: a later opener's, or ours that came twice; its state tells.
  if (look.outcome == ObjectOutcome::kAbsent) return LookAtObject();
  const Result<AppendState> state = DecodeAppendState(look.attributes);
  if (state.ok() && state->epoch < owned_.manifest.epoch) {
    if (!kEarlyLookBelieved.planted()) return LookAtObject();
    owned_.length = state->length;
    return Outcome(std::move(owned_));
  }
  return OnObject(look);
}

TakeoverCore::Step TakeoverCore::OnEntry(const ObjectReply& reply) {
  const auto it = reply.keys.find(std::string(kFilePrefix) + name_);
  if (it == reply.keys.end()) return Outcome(NotThere());
  Result<Entry> entry = DecodeEntry(it->second);
  if (!entry.ok()) return Outcome(entry.status().WithContext(What()));
  owned_.file_id = entry->file_id;
  return Ask(Stage::kManifest, LookAtManifest(owned_.file_id));
}

TakeoverCore::Step TakeoverCore::OnManifest(const ObjectReply& reply) {
  Result<Manifest> manifest = DecodeManifest(reply);
  if (!manifest.ok()) return Outcome(manifest.status().WithContext(What()));
  if (manifest->epoch == kEpochDeleted) return Outcome(NotThere());
  ObjectChange raise = ChangeOfManifest(owned_.file_id, *manifest);
  if (!kManifestNotRaised.planted()) {
    raise.set_attributes = {{kEpoch, EncodeNumber(static_cast<uint64_t>(manifest->epoch) + 1)}};
  }
  owned_.manifest = *std::move(manifest);
  return Ask(Stage::kRaiseManifest, std::move(raise));
}

TakeoverCore::Step TakeoverCore::RaiseObject() {
  ObjectChange raise;
  raise.object = AppendObject(owned_.file_id, owned_.manifest.open());
  const std::string mine = EncodeEpoch(owned_.manifest.epoch);
  if (!kEpochNotGuarded.planted()) {
    raise.attribute_guards = {{kEpoch, Guard::Test::kBelow, mine}};
  }
  raise.set_attributes = {{kEpoch, mine}};
  stage_ = Stage::kRaiseObject;
  return Two{std::move(raise), LookAtState(owned_.file_id, owned_.manifest.open())};
}

TakeoverCore::Step TakeoverCore::LookAtObject() {
  return Ask(Stage::kObject, LookAtState(owned_.file_id, owned_.manifest.open()));
}

TakeoverCore::Step TakeoverCore::OnObject(const ObjectReply& reply) {
  const Result<AppendState> state = DecodeAppendState(reply.attributes);
  if (!state.ok()) return Outcome(state.status().WithContext(What()));
  if (state->epoch != owned_.manifest.epoch) {
    return Outcome(AbortedError(What() + ": another opener was faster, with epoch " +
                                std::to_string(static_cast<uint64_t>(state->epoch))));
  }
  owned_.length = state->length;
  if (created_) return Ask(Stage::kConfirm, LookAtManifest(owned_.file_id));
  return Outcome(std::move(owned_));
}

}  // namespace tailcast::storage::rolled
