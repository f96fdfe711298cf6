#include "tailcast/storage/posix_names.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/strong.h"
#include "tailcast/storage/posix_aside.h"

namespace tailcast::storage::posix {
namespace {

FAULT_POINT(kClaimNotDurable, "storage.claim_not_durable",
            "no flush of the folder between claim and name");
FAULT_POINT(kNoTombstone, "storage.no_tombstone", "delete removes names without marking the file");

// The claim must be durable before the name: a power loss that kept only the name would let a
// second file take the key.
Status FlushClaim(const Context& c, const std::string& folder) {
  return kClaimNotDurable.planted() ? OkStatus() : FlushFolder(c, folder);
}

// If the key is claimed: completes the winner's creation and returns its name. "" if the key is
// free.
Result<std::string> CompleteClaim(const Context& c, const std::string& folder,
                                  const std::string& key) {
  Result<FirstInode> claim = OpenFirstInode(c, folder, ClaimName(key), true);
  if (!claim.ok()) {
    if (IsNotFound(claim.status())) return std::string();
    return claim.status();
  }
  if (IsDeleted(*claim->page)) {
    TAILCAST_RETURN_IF_ERROR(FinishDelete(c, *claim));
    return std::string();
  }
  TAILCAST_RETURN_IF_ERROR(FlushClaim(c, folder));
  Status linked = c.ops->Link(*claim->file, Join(folder, claim->name));
  if (IsNotFound(linked)) return std::string();  // deleted since
  if (!linked.ok() && !IsAlreadyExists(linked)) return linked;
  if (IsDeleted(*claim->page)) {  // deleted while we helped: our link brought the name back
    TAILCAST_RETURN_IF_ERROR(FinishDelete(c, *claim));
    return std::string();
  }
  TAILCAST_RETURN_IF_ERROR(FlushFolder(c, folder));
  return claim->name;
}

// If the name is there although its key is free: makes the claim again, or refuses if the name is
// another key's. True: look at the key again.
Result<bool> RestoreClaim(const Context& c, const std::string& folder, const std::string& name,
                          const std::string& key) {
  const Result<FirstInode> taken = OpenNamed(c, folder, name, true);
  if (!taken.ok()) {
    if (IsNotFound(taken.status())) return false;
    return taken.status();
  }
  if (taken->header.key != key) {
    return FailedPreconditionError(Join(folder, name) + ": exists under the key '" +
                                   taken->header.key + "'; choose another name");
  }
  // A power loss kept the name of a delete that had removed the claim, or the like.
  Status linked = c.ops->Link(*taken->file, Join(folder, ClaimName(key)));
  if (!linked.ok() && !IsAlreadyExists(linked) && !IsNotFound(linked)) return linked;
  return true;
}

// The first inode of a new file, without a name. NotFound: somebody removed the folder.
Result<FirstInode> MakeFirstInode(const Context& c, const std::string& folder,
                                  const Header& header) {
  FirstInode first;
  first.folder = folder;
  first.name = header.name;
  first.header = header;
  TAILCAST_ASSIGN_OR_RETURN(first.file, MakeInode(c, folder, header));
  TAILCAST_ASSIGN_OR_RETURN(first.page, first.file->MapPage(true));
  return first;
}

// Gives an inode whose claim is durable its name.
Status LinkName(const Context& c, const FirstInode& first) {
  const std::string path = Join(first.folder, first.name);
  Status linked = c.ops->Link(*first.file, path);
  if (IsAlreadyExists(linked)) {
    // A helper completed our claim; or, a rule of the caller's broken, another file got the name.
    TAILCAST_ASSIGN_OR_RETURN(const FirstInode there,
                              OpenNamed(c, first.folder, first.name, false));
    if (there.header.file_id != first.header.file_id) {
      TAILCAST_RETURN_IF_ERROR(
          first.file->WriteAt(kTombstoneOffset, EncodeTombstone(first.header.file_id)));
      TAILCAST_RETURN_IF_ERROR(FinishDelete(c, first));
      return FailedPreconditionError(path + ": was created under the key '" + there.header.key +
                                     "' at the same time");
    }
  } else if (!linked.ok()) {
    return linked;  // whoever comes next completes it
  }
  TAILCAST_RETURN_IF_ERROR(FlushFolder(c, first.folder));
  if (IsDeleted(*first.page)) {
    TAILCAST_RETURN_IF_ERROR(FinishDelete(c, first));
    return AbortedError("create " + path + ": it was deleted at once by another process");
  }
  return OkStatus();
}

// Names in a folder that are no driver's own; none if the folder does not exist.
Result<std::vector<std::string>> ListEntries(const Context& c, const std::string& folder,
                                             bool folders) {
  std::vector<std::string> names;
  Result<std::vector<OpsEntry>> entries = c.ops->ListFolder(folder);
  if (!entries.ok()) {
    if (IsNotFound(entries.status())) return names;
    return entries.status();
  }
  for (OpsEntry& entry : *entries) {
    if (entry.is_folder == folders && entry.name[0] != '.') names.push_back(std::move(entry.name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Result<std::unique_ptr<Appender>> CreateExclusive(const Context& c, const std::string& folder,
                                                  const std::string& name, const std::string& key) {
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    TAILCAST_ASSIGN_OR_RETURN(const std::string winner, CompleteClaim(c, folder, key));
    if (!winner.empty()) return AlreadyExistsError(winner);
    TAILCAST_ASSIGN_OR_RETURN(const bool restored, RestoreClaim(c, folder, name, key));
    if (restored) continue;

    Header header;
    header.file_id = c.ops->Random64();
    header.unflushed = !c.durable();
    header.name = name;
    header.key = key;
    TAILCAST_RETURN_IF_ERROR(EnsureFolder(c, folder));
    Result<FirstInode> made = MakeFirstInode(c, folder, header);
    if (!made.ok() && IsNotFound(made.status())) {
      ForgetFolders(c);
      continue;
    }
    if (!made.ok()) return made.status();
    FirstInode first = *std::move(made);

    const Status claimed = c.ops->Link(*first.file, Join(folder, ClaimName(key)));
    if (IsAlreadyExists(claimed)) continue;  // another creator was faster
    TAILCAST_RETURN_IF_ERROR(claimed);
    TAILCAST_RETURN_IF_ERROR(FlushClaim(c, folder));
    TAILCAST_RETURN_IF_ERROR(LinkName(c, first));

    Segment segment{header, first.file};
    const uint64_t writer = ++c.writers;
    TAILCAST_LOG_STEP(c, "Create", writer, "");
    return std::make_unique<Appender>(&c, writer, std::move(first), std::move(segment),
                                      CommitWord{Epoch::kFirst, 0});
  }
  return LostRace("create " + Join(folder, name));
}

Status DeleteFile(const Context& c, const FirstInode& file) {
  // The tombstone first, durably: whatever part of the names a power loss brings back then stays
  // deleted, and a helper does not revive it.
  if (!kNoTombstone.planted()) {
    TAILCAST_RETURN_IF_ERROR(
        file.file->WriteAt(kTombstoneOffset, EncodeTombstone(file.header.file_id)));
    if (c.durable()) TAILCAST_RETURN_IF_ERROR(file.file->SyncData());
  }
  FenceForEver(*file.page);  // so that a writer learns of it
  return FinishDelete(c, file);
}

Status Delete(const Context& c, const std::string& folder, const std::string& name) {
  const Result<FirstInode> file = OpenNamed(c, folder, name, true);
  if (!file.ok() && file.status().code() != StatusCode::kDataLoss) return file.status();
  TAILCAST_RETURN_IF_ERROR(file.ok() ? DeleteFile(c, *file) : RemoveDamaged(c, folder, name));
  return EmptyAside(c, folder);
}

Result<std::string> Identify(const Context& c, const std::string& folder, const std::string& name) {
  const Result<FirstInode> file = OpenNamed(c, folder, name, true);  // finishes a deletion
  if (!file.ok() && IsDataLoss(file.status())) return std::string();
  if (!file.ok()) return file.status();
  return std::to_string(file->header.file_id);
}

// From here on it is the inode that goes, whatever gets its name: see FinishDelete.
Status DeleteExactly(const Context& c, const std::string& folder, const std::string& name,
                     const std::string& id) {
  const Result<FirstInode> file = OpenNamed(c, folder, name, true);
  if (!file.ok() && !IsDataLoss(file.status())) return file.status();
  const std::string there = file.ok() ? std::to_string(file->header.file_id) : std::string();
  if (there != id) return NotFoundError(Join(folder, name) + " is another file now");
  TAILCAST_RETURN_IF_ERROR(file.ok() ? DeleteFile(c, *file) : RemoveDamaged(c, folder, name));
  return EmptyAside(c, folder);
}

// A name is removed only if it is this file's, as the key or the name may have a new owner by now.
// The inode's lock makes looking and removing one step: whoever removes names of this inode holds
// it, so a name that was seen to be this inode's stays so. The lock dies with its holder; one that
// is stopped delays who wants the key again, nobody else.
Status FinishDelete(const Context& c, const FirstInode& file) {
  TAILCAST_ASSIGN_OR_RETURN(const bool locked, file.file->TryLock());
  if (!locked) {
    return UnavailableError("delete " + Join(file.folder, file.name) +
                            ": another process is deleting it; try again");
  }
  struct Unlocker {
    OpsFile* file;
    ~Unlocker() { file->Unlock(); }
  } unlocker{file.file.get()};
  const auto remove_if_ours = [&](const std::string& entry) -> Status {
    const std::string path = Join(file.folder, entry);
    Result<std::unique_ptr<OpsFile>> open = c.ops->Open(path, false);
    if (!open.ok()) return IsNotFound(open.status()) ? OkStatus() : open.status();
    Result<Header> header = ReadHeader(**open, path);
    if (!header.ok() || header->file_id != file.header.file_id) return OkStatus();
    Status status = c.ops->Unlink(path);
    return IsNotFound(status) ? OkStatus() : status;
  };
  // The name goes last, behind a flush: a delete that died halfway, or a power loss, leaves it to
  // those who list the folder, and who deletes it again finishes the rest. The claim goes before
  // it: who meets the key free meanwhile comes by the name (RestoreClaim).
  TAILCAST_ASSIGN_OR_RETURN(const std::vector<std::string> segments, SegmentNames(c, file));
  for (const std::string& segment : segments) {
    TAILCAST_RETURN_IF_ERROR(remove_if_ours(segment));
  }
  TAILCAST_RETURN_IF_ERROR(remove_if_ours(ClaimName(file.header.key)));
  TAILCAST_RETURN_IF_ERROR(FlushFolder(c, file.folder));
  TAILCAST_RETURN_IF_ERROR(remove_if_ours(file.name));
  return FlushFolder(c, file.folder);
}

Result<FirstInode> OpenNamed(const Context& c, const std::string& folder, const std::string& name,
                             bool writable) {
  TAILCAST_ASSIGN_OR_RETURN(FirstInode first, OpenFirstInode(c, folder, name, writable));
  if (first.name != name) {
    return DataLossError(Join(folder, name) + ": the file calls itself '" + first.name + "'");
  }
  if (IsDeleted(*first.page)) {
    // A delete that died halfway; or one that is under way, then there is nothing to do.
    const Status finished = writable ? FinishDelete(c, first) : OkStatus();
    if (!finished.ok() && finished.code() != StatusCode::kUnavailable) return finished;
    return NotFoundError("open " + Join(folder, name) + ": it was deleted");
  }
  return first;
}

Result<std::vector<std::string>> List(const Context& c, const std::string& folder) {
  return ListEntries(c, folder, false);
}

Result<std::vector<std::string>> ListFolders(const Context& c, const std::string& folder) {
  return ListEntries(c, folder, true);
}

}  // namespace tailcast::storage::posix
