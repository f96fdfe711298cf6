#include "tailcast/storage/posix_aside.h"

#include <cstdio>
#include <memory>
#include <vector>

#include "tailcast/base/strong.h"
#include "tailcast/storage/posix_inodes.h"
#include "tailcast/storage/posix_names.h"

namespace tailcast::storage::posix {
namespace {

constexpr const char* kAsideFolder = ".aside";

// NAME and what may be its segments, of whatever id.
Result<std::vector<std::string>> NamesOf(const Context& c, const std::string& folder,
                                         const std::string& name) {
  TAILCAST_ASSIGN_OR_RETURN(const std::vector<OpsEntry> entries, c.ops->ListFolder(folder));
  std::vector<std::string> names;
  for (const OpsEntry& entry : entries) {
    if (!entry.is_folder && (entry.name == name || IsSegmentOf(entry.name, name))) {
      names.push_back(entry.name);
    }
  }
  return names;
}

Status KeepAside(const Context& c, const std::string& folder, const std::string& name) {
  const std::string aside = Join(folder, kAsideFolder);
  TAILCAST_RETURN_IF_ERROR(EnsureFolder(c, aside));
  TAILCAST_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesOf(c, folder, name));
  char number[17];
  std::snprintf(number, sizeof number, "%016llx",
                static_cast<unsigned long long>(c.ops->Random64()));
  for (const std::string& entry : names) {
    Result<std::unique_ptr<OpsFile>> file = c.ops->Open(Join(folder, entry), false);
    if (!file.ok() && IsNotFound(file.status())) continue;
    if (!file.ok()) return file.status();
    TAILCAST_RETURN_IF_ERROR(c.ops->Link(**file, Join(aside, entry + "~" + number)));
  }
  return FlushFolder(c, aside);
}

Status UnlinkIfThere(const Context& c, const std::string& path) {
  Status status = c.ops->Unlink(path);
  return IsNotFound(status) ? OkStatus() : status;
}

// Under the lock of `file`, which is the inode of `name`: so it stays so.
Status RemoveNames(const Context& c, const std::string& folder, const std::string& name,
                   OpsFile& file) {
  TAILCAST_ASSIGN_OR_RETURN(const bool still, c.ops->IsName(Join(folder, name), file));
  if (!still) return NotFoundError("no file " + Join(folder, name));
  TAILCAST_ASSIGN_OR_RETURN(const std::vector<OpsEntry> entries, c.ops->ListFolder(folder));
  for (const OpsEntry& entry : entries) {
    const std::string path = Join(folder, entry.name);
    bool ours = IsSegmentOf(entry.name, name);
    if (IsClaim(entry.name)) {
      TAILCAST_ASSIGN_OR_RETURN(ours, c.ops->IsName(path, file));
    }
    if (ours && !entry.is_folder) TAILCAST_RETURN_IF_ERROR(UnlinkIfThere(c, path));
  }
  TAILCAST_RETURN_IF_ERROR(FlushFolder(c, folder));
  TAILCAST_RETURN_IF_ERROR(UnlinkIfThere(c, Join(folder, name)));
  return FlushFolder(c, folder);
}

}  // namespace

Status RemoveDamaged(const Context& c, const std::string& folder, const std::string& name) {
  const std::string path = Join(folder, name);
  TAILCAST_ASSIGN_OR_RETURN(const std::unique_ptr<OpsFile> file, c.ops->Open(path, true));
  // The name may be a new file's by now.
  const Result<Header> header = ReadHeader(*file, path);
  if (!header.ok() && !IsDataLoss(header.status())) return header.status();
  if (header.ok() && header->epoch == Epoch::kFirst && header->name == name) {
    return NotFoundError(path + " is another file now");
  }
  // Whoever appends compares the word with its own, also where the rest of the page is garbage; and
  // where there is no page it cannot commit.
  if (Result<std::unique_ptr<SharedPage>> page = file->MapPage(true); page.ok()) {
    FenceForEver(**page);
  }
  TAILCAST_ASSIGN_OR_RETURN(const bool locked, file->TryLock());
  if (!locked) return UnavailableError("remove " + path + ": another process is at it; try again");
  Status removed = RemoveNames(c, folder, name, *file);
  file->Unlock();
  return removed;
}

Status Quarantine(const Context& c, const std::string& folder, const std::string& name,
                  const std::function<bool()>& wanted) {
  const Result<FirstInode> first = OpenNamed(c, folder, name, true);
  if (!wanted()) return DeadlineExceededError("set aside " + Join(folder, name) + ": too late");
  const bool damaged = !first.ok() && first.status().code() == StatusCode::kDataLoss;
  if (!first.ok() && !damaged) return first.status();
  TAILCAST_RETURN_IF_ERROR(KeepAside(c, folder, name));
  return damaged ? RemoveDamaged(c, folder, name) : DeleteFile(c, *first);
}

Status EmptyAside(const Context& c, const std::string& folder) {
  const std::string aside = Join(folder, kAsideFolder);
  const Result<std::vector<OpsEntry>> entries = c.ops->ListFolder(aside);
  if (!entries.ok()) return IsNotFound(entries.status()) ? OkStatus() : entries.status();
  for (const OpsEntry& entry : *entries) {
    if (!entry.is_folder) TAILCAST_RETURN_IF_ERROR(UnlinkIfThere(c, Join(aside, entry.name)));
  }
  return OkStatus();
}

}  // namespace tailcast::storage::posix
