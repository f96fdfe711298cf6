#include "tailcast/storage/rolled_core.h"

#include "tailcast/base/fault_point.h"

namespace tailcast::storage::rolled {
namespace {

FAULT_POINT(kNotExclusive, "storage.rolled_create_not_exclusive",
            "an append object is created over one that is there");
FAULT_POINT(kManifestNotGuarded, "storage.rolled_manifest_not_guarded",
            "a change of the manifest does not compare what was read");
FAULT_POINT(kPoolNotAsked, "storage.rolled_pool_not_asked",
            "an absent folder is taken for an empty one without asking for the pool");

using Guard = ObjectChange::Guard;

}  // namespace

Status StatusOf(const ObjectReply& reply, const std::string& what) {
  switch (reply.outcome) {
    case ObjectOutcome::kDone:
      return OkStatus();
    case ObjectOutcome::kAbsent:
      return NotFoundError(what + ": an object of it is not there");
    case ObjectOutcome::kExists:
      return AlreadyExistsError(what);
    case ObjectOutcome::kRefused:
      return AbortedError(what + ": another process was faster");
    case ObjectOutcome::kFailed:
    case ObjectOutcome::kUnknown:
      break;
  }
  return reply.error.WithContext(what);
}

ObjectRequest AskForRoot() {
  ObjectLook look;
  look.object = FolderObject("");
  look.attributes = true;
  return look;
}

Status ResultOfAbsence(const ObjectReply& root, Status absent) {
  if (root.outcome == ObjectOutcome::kDone || kPoolNotAsked.planted()) return absent;
  if (root.outcome == ObjectOutcome::kAbsent) {
    return UnavailableError(
        "the pool is gone, or what tailcast keeps in it: it was deleted while it was used; nothing "
        "can be said about its files");
  }
  return StatusOf(root, "the root folder");
}

Next<Status> FormatCore::OnReply(const ObjectReply& reply) {
  switch (reply.outcome) {
    case ObjectOutcome::kDone: {
      if (made_) return OkStatus();
      const auto it = reply.attributes.find(kFormat);
      const std::string version = it != reply.attributes.end() ? it->second : std::string("none");
      if (version == std::to_string(kFormatVersion)) return OkStatus();
      return FailedPreconditionError("what lies there has format version " + version +
                                     "; this program reads " + std::to_string(kFormatVersion));
    }
    case ObjectOutcome::kAbsent: {
      if (made_) break;  // the pool went meanwhile
      made_ = true;
      ObjectChange change;
      change.object = FolderObject("");
      change.create = ObjectChange::Create::kExclusively;
      change.set_attributes = {{kFormat, std::to_string(kFormatVersion)}};
      return ObjectRequest(std::move(change));
    }
    case ObjectOutcome::kExists:  // another process was faster
      made_ = false;
      return AskForRoot();
    case ObjectOutcome::kRefused:
    case ObjectOutcome::kFailed:
    case ObjectOutcome::kUnknown:
      break;
  }
  return StatusOf(reply, "the store's root folder");
}

ObjectRequest LookAtKeys(std::string object, std::vector<std::string> keys) {
  ObjectLook look;
  look.object = std::move(object);
  look.keys = std::move(keys);
  return look;
}

ObjectRequest LookAtManifest(const std::string& file_id) {
  ObjectLook look;
  look.object = ManifestObject(file_id);
  look.attributes = true;
  look.length = kManifestBytesMax;
  return look;
}

ObjectRequest LookAtState(const std::string& file_id, size_t number) {
  ObjectLook look;
  look.object = AppendObject(file_id, number);
  look.attributes = true;
  return look;
}

ObjectRequest Remove(std::string object) {
  ObjectChange change;
  change.object = std::move(object);
  change.remove = true;
  return change;
}

ObjectChange NewAppendObject(const std::string& file_id, size_t number, Epoch epoch) {
  ObjectChange change;
  change.object = AppendObject(file_id, number);
  change.create = kNotExclusive.planted() ? ObjectChange::Create::kIfAbsent
                                          : ObjectChange::Create::kExclusively;
  change.set_attributes = {{kEpoch, EncodeEpoch(epoch)}, {kLength, EncodeLength(0)}};
  return change;
}

ObjectChange ChangeOfManifest(const std::string& file_id, const Manifest& as_read) {
  ObjectChange change;
  change.object = ManifestObject(file_id);
  if (!kManifestNotGuarded.planted()) {
    change.attribute_guards = {
        {kEpoch, Guard::Test::kEquals, EncodeEpoch(as_read.epoch)},
        {kSealed, Guard::Test::kEquals, EncodeNumber(as_read.sealed.size())}};
  }
  return change;
}

}  // namespace tailcast::storage::rolled
