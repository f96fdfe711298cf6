#include "tailcast/storage/rolled_names_core.h"

#include <utility>

#include "tailcast/base/fault_point.h"

namespace tailcast::storage::rolled {
namespace {

FAULT_POINT(kKeyNotGuarded, "storage.rolled_key_not_guarded",
            "a file is named without a look at who has its key");
FAULT_POINT(kLooseNotGuarded, "storage.rolled_loose_not_guarded",
            "a file is named although its objects may have been removed");
FAULT_POINT(kLooseNotClaimed, "storage.rolled_loose_not_claimed",
            "objects that had no name are removed, although they may have one by now");
FAULT_POINT(kNotMarked, "storage.rolled_deletion_not_marked",
            "the objects of a deleted file are removed before its manifest is fenced");

constexpr const char* kHere = "1";  // a key whose value says nothing
constexpr size_t kNamesPage = 10'000;

std::string FileKey(const std::string& name) { return std::string(kFilePrefix) + name; }
std::string KeyKey(const std::string& key) { return std::string(kKeyPrefix) + key; }
std::string LooseKey(const std::string& file_id) { return std::string(kLoosePrefix) + file_id; }

bool IsError(const ObjectReply& reply) {
  return reply.outcome == ObjectOutcome::kFailed || reply.outcome == ObjectOutcome::kUnknown;
}

using Guard = ObjectChange::Guard;
Guard Absent(std::string key) { return {std::move(key), Guard::Test::kEquals, ""}; }

}  // namespace

// ---------------------------------------------------------------------------------------------
// Creation.

CreateCore::CreateCore(std::string folder, std::string name, std::string key, int64_t roll_bytes,
                       Rng* rng)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      key_(std::move(key)),
      roll_bytes_(roll_bytes),
      rng_(rng) {
  for (size_t slash = 0; slash != std::string::npos && !folder_.empty();) {
    slash = folder_.find('/', slash + 1);
    folders_.push_back(folder_.substr(0, slash));
  }
}

std::string CreateCore::What() const { return "create " + folder_ + "/" + name_; }

Next<CreateCore::Outcome> CreateCore::Ask(Stage stage, ObjectRequest request) {
  stage_ = stage;
  return request;
}

Next<CreateCore::Outcome> CreateCore::Begin() { return Announce(); }

Next<CreateCore::Outcome> CreateCore::Announce() {
  file_id_ = DrawFileId(*rng_);
  ObjectChange change;
  change.object = FolderObject(folder_);
  change.key_guards = {Absent(KeyKey(key_))};
  change.set_keys = {{LooseKey(file_id_), std::string(kLooseNew)}};
  return Ask(Stage::kLoose, std::move(change));
}

// Each folder's name is set in the one above it; that makes the one above it if need be. The last
// step makes the folder itself.
Next<CreateCore::Outcome> CreateCore::MakeFolder() {
  ObjectChange change;
  const size_t depth = folders_made_;
  change.object = FolderObject(depth == 0 ? "" : folders_[depth - 1]);
  // The root is not made: it is there as long as the pool is.
  if (depth > 0) change.create = ObjectChange::Create::kIfAbsent;
  if (depth < folders_.size()) {
    const std::string& path = folders_[depth];
    const std::string last = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
    change.set_keys = {{std::string(kFolderPrefix) + last, kHere}};
  }
  return Ask(Stage::kFolders, std::move(change));
}

Next<CreateCore::Outcome> CreateCore::OnReply(const ObjectReply& reply) {
  const ObjectOutcome outcome = reply.outcome;
  if (stage_ == Stage::kCleanUp) return CleanUpNext();
  if (stage_ == Stage::kRoot) {
    return Outcome(ResultOfAbsence(reply, UnavailableError(What() + ": its folder went away")));
  }
  if (IsError(reply)) return Outcome(StatusOf(reply, What()));
  switch (stage_) {
    case Stage::kLoose:
      if (outcome == ObjectOutcome::kRefused) break;
      if (outcome == ObjectOutcome::kAbsent) {
        if (folder_.empty() || --races_left_ < 0) return Ask(Stage::kRoot, AskForRoot());
        folders_made_ = 0;
        return MakeFolder();
      }
      {
        ObjectChange change;
        change.object = ManifestObject(file_id_);
        change.create = ObjectChange::Create::kExclusively;
        change.set_attributes = {{kEpoch, EncodeEpoch(Epoch::kFirst)}, {kSealed, EncodeNumber(0)}};
        change.append = EncodeManifestHead(roll_bytes_);
        return Ask(Stage::kManifest, std::move(change));
      }
    case Stage::kFolders:
      if (outcome == ObjectOutcome::kAbsent) return Ask(Stage::kRoot, AskForRoot());
      if (folders_made_++ < folders_.size()) return MakeFolder();
      return Announce();
    case Stage::kManifest:  // kExists: our request came twice; nobody else knows this id
      return Ask(Stage::kObject, NewAppendObject(file_id_, 0, Epoch::kFirst));
    case Stage::kObject:
      return Name();
    case Stage::kName:
      if (outcome == ObjectOutcome::kAbsent) return Ask(Stage::kRoot, AskForRoot());
      if (outcome == ObjectOutcome::kRefused) break;
      return Outcome(
          Ownership{file_id_, {.epoch = Epoch::kFirst, .roll_bytes = roll_bytes_, .sealed = {}}});
    case Stage::kWho:
      if (outcome == ObjectOutcome::kAbsent) return Ask(Stage::kRoot, AskForRoot());
      return OnWho(reply);
    case Stage::kCleanUp:
    case Stage::kRoot:
      return Outcome(InternalError(What()));
  }
  return Ask(Stage::kWho,
             LookAtKeys(FolderObject(folder_), {KeyKey(key_), FileKey(name_), LooseKey(file_id_)}));
}

Next<CreateCore::Outcome> CreateCore::Name() {
  ObjectChange change;
  change.object = FolderObject(folder_);
  if (!kLooseNotGuarded.planted()) {
    change.key_guards.push_back({LooseKey(file_id_), Guard::Test::kEquals, std::string(kLooseNew)});
  }
  if (!kKeyNotGuarded.planted()) {
    change.key_guards.push_back(Absent(KeyKey(key_)));
    change.key_guards.push_back(Absent(FileKey(name_)));
  }
  change.set_keys = {{FileKey(name_), EncodeEntry({file_id_, key_})},
                     {KeyKey(key_), EncodeEntry({file_id_, name_})}};
  change.remove_keys = {LooseKey(file_id_)};
  return Ask(Stage::kName, std::move(change));
}

Next<CreateCore::Outcome> CreateCore::OnWho(const ObjectReply& reply) {
  if (const auto it = reply.keys.find(KeyKey(key_)); it != reply.keys.end()) {
    const Result<Entry> winner = DecodeEntry(it->second);
    if (!winner.ok()) return Outcome(winner.status().WithContext(What()));
    if (winner->file_id == file_id_) {  // our request came twice
      return Outcome(
          Ownership{file_id_, {.epoch = Epoch::kFirst, .roll_bytes = roll_bytes_, .sealed = {}}});
    }
    return CleanUp(AlreadyExistsError(winner->other));
  }
  if (reply.keys.contains(FileKey(name_))) {
    return CleanUp(FailedPreconditionError(What() + ": the name is taken under another key"));
  }
  // Who had the key is deleted since, or our objects were taken for a dead process'.
  if (--races_left_ < 0) return CleanUp(AbortedError(What() + ": others are at it all the time"));
  return CleanUp(OkStatus());
}

Next<CreateCore::Outcome> CreateCore::CleanUp(Status then) {
  then_ = std::move(then);
  cleaned_ = 0;
  return CleanUpNext();
}

// What becomes of these requests is not asked: who deletes in this folder does them again.
Next<CreateCore::Outcome> CreateCore::CleanUpNext() {
  switch (cleaned_++) {
    case 0:
      return Ask(Stage::kCleanUp, Remove(AppendObject(file_id_, 0)));
    case 1:
      return Ask(Stage::kCleanUp, Remove(ManifestObject(file_id_)));
    case 2: {
      ObjectChange change;
      change.object = FolderObject(folder_);
      change.remove_keys = {LooseKey(file_id_)};
      return Ask(Stage::kCleanUp, std::move(change));
    }
    default:
      break;
  }
  if (then_.ok()) return Announce();
  return Outcome(then_);
}

// ---------------------------------------------------------------------------------------------
// Removal.

PurgeCore::PurgeCore(std::string folder, std::string file_id)
    : folder_(std::move(folder)), file_id_(std::move(file_id)) {}

Next<Status> PurgeCore::Ask(Stage stage, ObjectRequest request) {
  stage_ = stage;
  return request;
}

Next<Status> PurgeCore::Begin() { return Ask(Stage::kManifest, LookAtManifest(file_id_)); }

Next<Status> PurgeCore::NextObject() {
  if (objects_left_ == 0) return Ask(Stage::kRemoveManifest, Remove(ManifestObject(file_id_)));
  return Ask(Stage::kObjects, Remove(AppendObject(file_id_, --objects_left_)));
}

Next<Status> PurgeCore::OnReply(const ObjectReply& reply) {
  if (IsError(reply)) return StatusOf(reply, "remove a file's objects");
  const bool absent = reply.outcome == ObjectOutcome::kAbsent;
  switch (stage_) {
    case Stage::kManifest: {
      // The manifest goes last: without it there is nothing.
      if (absent) break;
      const Result<Manifest> manifest = DecodeManifest(reply);
      if (!manifest.ok()) return manifest.status().WithContext(ManifestObject(file_id_));
      objects_left_ = manifest->sealed.size() + 1;
      if (manifest->epoch == kEpochDeleted || kNotMarked.planted()) return NextObject();
      ObjectChange mark = ChangeOfManifest(file_id_, *manifest);
      mark.set_attributes = {{kEpoch, EncodeEpoch(kEpochDeleted)}};
      return Ask(Stage::kMark, std::move(mark));
    }
    case Stage::kMark:
      if (absent) break;
      if (reply.outcome == ObjectOutcome::kRefused) {
        if (--races_left_ < 0) return AbortedError("remove a file's objects: it is rolled");
        return Begin();
      }
      return NextObject();
    case Stage::kObjects:
      return NextObject();
    case Stage::kRemoveManifest:
      break;
    case Stage::kNotLoose:
      return OkStatus();
  }
  ObjectChange change;
  change.object = FolderObject(folder_);
  change.remove_keys = {LooseKey(file_id_)};
  return Ask(Stage::kNotLoose, std::move(change));
}

IdentifyCore::IdentifyCore(std::string folder, std::string name)
    : folder_(std::move(folder)), name_(std::move(name)) {}

Next<IdentifyCore::Outcome> IdentifyCore::Begin() {
  return LookAtKeys(FolderObject(folder_), {FileKey(name_)});
}

Next<IdentifyCore::Outcome> IdentifyCore::OnReply(const ObjectReply& reply) {
  const Status not_there = NotFoundError("no file " + folder_ + "/" + name_);
  if (asked_root_) return Outcome(ResultOfAbsence(reply, not_there));
  if (reply.outcome == ObjectOutcome::kAbsent) {
    asked_root_ = true;
    return AskForRoot();
  }
  if (reply.outcome != ObjectOutcome::kDone) {
    return Outcome(StatusOf(reply, "identify " + folder_ + "/" + name_));
  }
  const auto it = reply.keys.find(FileKey(name_));
  if (it == reply.keys.end()) return Outcome(not_there);
  Result<Entry> entry = DecodeEntry(it->second);
  if (!entry.ok()) return Outcome(entry.status().WithContext(folder_ + "/" + name_));
  return Outcome(std::move(entry->file_id));
}

DeleteCore::DeleteCore(std::string folder, std::string name, std::optional<std::string> only)
    : folder_(std::move(folder)), name_(std::move(name)), only_(std::move(only)) {}

Status DeleteCore::NotThere() const { return NotFoundError("no file " + folder_ + "/" + name_); }

Next<Status> DeleteCore::Ask(Stage stage, ObjectRequest request) {
  stage_ = stage;
  return request;
}

Next<Status> DeleteCore::Begin() {
  return Ask(Stage::kEntry, LookAtKeys(FolderObject(folder_), {FileKey(name_)}));
}

Next<Status> DeleteCore::OnReply(const ObjectReply& reply) {
  if (stage_ == Stage::kPurge || stage_ == Stage::kPurgeLoose) {
    return OnPurge(purge_->OnReply(reply));
  }
  if (stage_ == Stage::kRoot) return ResultOfAbsence(reply, NotThere());
  if (stage_ == Stage::kLoose) {
    // The file is deleted, whatever becomes of the others.
    if (reply.outcome != ObjectOutcome::kDone) return OkStatus();
    for (const auto& [key, value] : reply.keys) {
      if (key.starts_with(kLoosePrefix)) loose_.push_back(key.substr(kLoosePrefix.size()));
    }
    return NextLoose();
  }
  if (stage_ == Stage::kClaim || stage_ == Stage::kWhyNotClaimed) return OnClaim(reply);
  if (IsError(reply)) return StatusOf(reply, "delete " + folder_ + "/" + name_);
  if (reply.outcome == ObjectOutcome::kAbsent) return Ask(Stage::kRoot, AskForRoot());
  if (stage_ == Stage::kUnlink) {
    if (reply.outcome == ObjectOutcome::kDone) return Purge(Stage::kPurge, file_id_);
    if (--races_left_ < 0) return AbortedError("delete " + folder_ + "/" + name_);
    return Begin();
  }
  const auto it = reply.keys.find(FileKey(name_));
  Entry entry;
  if (it != reply.keys.end()) {
    Result<Entry> decoded = DecodeEntry(it->second);
    if (!decoded.ok()) return decoded.status().WithContext(folder_ + "/" + name_);
    entry = *std::move(decoded);
  }
  // Gone since we found it: our request came twice, or another deleted it. It may have objects.
  if (unlinked_ && entry.file_id != file_id_) return Purge(Stage::kPurge, file_id_);
  if (it == reply.keys.end() || (only_ && entry.file_id != *only_)) return NotThere();
  unlinked_ = true;
  file_id_ = entry.file_id;
  ObjectChange change;
  change.object = FolderObject(folder_);
  change.key_guards = {{FileKey(name_), Guard::Test::kEquals, it->second}};
  change.set_keys = {{LooseKey(file_id_), std::string(kLooseDead)}};
  change.remove_keys = {FileKey(name_), KeyKey(entry.other)};
  return Ask(Stage::kUnlink, std::move(change));
}

Next<Status> DeleteCore::Purge(Stage stage, const std::string& file_id) {
  stage_ = stage;
  purge_.emplace(folder_, file_id);
  return purge_->Begin();
}

Next<Status> DeleteCore::OnPurge(Next<Status> next) {
  if (std::holds_alternative<ObjectRequest>(next)) return next;
  if (stage_ == Stage::kPurgeLoose) return NextLoose();
  if (const Status& purged = std::get<Status>(next); !purged.ok()) return next;
  ObjectLook look;
  look.object = FolderObject(folder_);
  look.names_after = std::string(kLoosePrefix);
  look.names_max = kLooseMax;
  return Ask(Stage::kLoose, std::move(look));
}

Next<Status> DeleteCore::NextLoose() {
  if (loose_.empty()) return OkStatus();
  file_id_ = std::move(loose_.back());
  loose_.pop_back();
  if (kLooseNotClaimed.planted()) return Purge(Stage::kPurgeLoose, file_id_);
  ObjectChange change;
  change.object = FolderObject(folder_);
  change.key_guards = {{LooseKey(file_id_), Guard::Test::kEquals, std::string(kLooseNew)}};
  change.set_keys = {{LooseKey(file_id_), std::string(kLooseDead)}};
  return Ask(Stage::kClaim, std::move(change));
}

// Whoever was creating it may have given it its name since we saw it.
Next<Status> DeleteCore::OnClaim(const ObjectReply& reply) {
  if (reply.outcome == ObjectOutcome::kRefused) {
    return Ask(Stage::kWhyNotClaimed, LookAtKeys(FolderObject(folder_), {LooseKey(file_id_)}));
  }
  if (reply.outcome != ObjectOutcome::kDone) return OkStatus();
  if (stage_ == Stage::kWhyNotClaimed) {
    const auto it = reply.keys.find(LooseKey(file_id_));
    if (it == reply.keys.end() || it->second != kLooseDead) return NextLoose();
  }
  return Purge(Stage::kPurgeLoose, file_id_);
}

// ---------------------------------------------------------------------------------------------
// Listing.

ListCore::ListCore(std::string folder, Kind kind)
    : folder_(std::move(folder)), prefix_(kind == Kind::kFiles ? kFilePrefix : kFolderPrefix) {}

ObjectRequest ListCore::Page(std::string after) const {
  ObjectLook look;
  look.object = FolderObject(folder_);
  look.names_after = std::move(after);
  look.names_max = kNamesPage;
  return look;
}

Next<ListCore::Outcome> ListCore::Begin() { return Page(prefix_); }

Next<ListCore::Outcome> ListCore::OnReply(const ObjectReply& reply) {
  if (asked_root_) {
    const Status status = ResultOfAbsence(reply, OkStatus());
    if (!status.ok()) return Outcome(status.WithContext("list " + folder_));
    return Outcome(std::vector<std::string>());
  }
  if (reply.outcome == ObjectOutcome::kAbsent) {
    asked_root_ = true;
    return AskForRoot();
  }
  if (reply.outcome != ObjectOutcome::kDone) return Outcome(StatusOf(reply, "list " + folder_));
  std::string last;
  for (const auto& [key, value] : reply.keys) {
    if (!key.starts_with(prefix_)) return Outcome(std::move(names_));
    names_.push_back(key.substr(prefix_.size()));
    last = key;
  }
  if (!reply.more || last.empty()) return Outcome(std::move(names_));
  return Page(std::move(last));
}

}  // namespace tailcast::storage::rolled
