#include "tailcast/storage/fake_image.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/strong.h"

namespace tailcast::storage {
namespace {

FAULT_POINT(kNoEpochGuard, "storage.fake_no_epoch_guard",
            "an append of a fenced handle lands on the simulated disk");
FAULT_POINT(kShowsUnflushed, "storage.fake_shows_unflushed",
            "the simulated disk shows an append before it has landed");
FAULT_POINT(kGarbageIsCommitted, "storage.fake_garbage_is_committed",
            "the simulated disk shows what lies behind the committed length after a power loss");

constexpr size_t kSizeHistoryMax = 64;

void Remember(FakeImage::File& file, MonotonicTime now) {
  file.history.push_back({now, {file.committed, file.epoch}});
  if (file.history.size() > kSizeHistoryMax) file.history.pop_front();
}

}  // namespace

int64_t FakeImage::File::visible() const {
  return kShowsUnflushed.planted() ? static_cast<int64_t>(physical.size()) : committed;
}

Result<std::shared_ptr<FakeImage::File>> FakeImage::Claim(const std::string& dir,
                                                          const std::string& name,
                                                          const std::string& key, MonotonicTime now,
                                                          const FakeRoom& room, StoreUse use) {
  for (size_t slash = dir.find('/'); slash != std::string::npos; slash = dir.find('/', slash + 1)) {
    folders_[dir.substr(0, slash)];
  }
  Folder& folder = folders_[dir];
  if (const auto it = folder.claims.find(key); it != folder.claims.end()) {
    File& winner = *it->second;
    if (!winner.named) {
      TAILCAST_RETURN_IF_ERROR(CheckRoomForName(winner, room));
      ++counters_.creations_helped;
      winner.named = true;
      folder.names[winner.name] = it->second;
    }
    return AlreadyExistsError(winner.name);
  }
  if (folder.names.contains(name)) {
    return FailedPreconditionError(dir + "/" + name + ": exists under another key");
  }
  TAILCAST_RETURN_IF_ERROR(CheckRoom(name, room.file_bytes, room, use));
  auto file = std::make_shared<File>();
  file->dir = dir;
  file->name = name;
  file->key = key;
  file->number = ++last_number_;
  Remember(*file, now);
  folder.claims[key] = file;
  return file;
}

Status FakeImage::GiveName(const std::shared_ptr<File>& claimed, const FakeRoom& room) {
  File& file = *claimed;
  if (file.deleted) return AbortedError(file.name + ": was deleted meanwhile");
  Folder& folder = folders_[file.dir];
  const auto claim = folder.claims.find(file.key);
  if (claim == folder.claims.end() || claim->second != claimed) {
    return UnavailableError(file.name + ": its creation was lost with the disk's power");
  }
  if (!file.named) TAILCAST_RETURN_IF_ERROR(CheckRoomForName(file, room));
  file.named = true;
  folder.names[file.name] = claimed;
  return OkStatus();
}

Result<std::shared_ptr<FakeImage::File>> FakeImage::Find(const std::string& dir,
                                                         const std::string& name) const {
  if (const auto folder = folders_.find(dir); folder != folders_.end()) {
    const auto it = folder->second.names.find(name);
    if (it != folder->second.names.end()) return it->second;
  }
  return NotFoundError(dir + "/" + name);
}

Result<std::shared_ptr<FakeImage::File>> FakeImage::Fence(const std::string& dir,
                                                          const std::string& name,
                                                          MonotonicTime now, const FakeRoom& room,
                                                          StoreUse use) {
  TAILCAST_ASSIGN_OR_RETURN(std::shared_ptr<File> file, Find(dir, name));
  TAILCAST_RETURN_IF_ERROR(CheckRoom(name, room.file_bytes, room, use));
  file->epoch = Successor(file->epoch);
  file->physical.resize(static_cast<size_t>(file->committed));
  Remember(*file, now);
  return file;
}

Status FakeImage::Delete(const std::string& dir, const std::string& name) {
  TAILCAST_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, Find(dir, name));
  file->deleted = true;
  file->epoch = Successor(file->epoch);
  folders_[dir].names.erase(name);
  folders_[dir].claims.erase(file->key);
  return OkStatus();
}

Status FakeImage::DeleteExactly(const std::string& dir, const std::string& name, uint64_t number) {
  TAILCAST_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, Find(dir, name));
  if (file->number != number) return NotFoundError(dir + "/" + name);
  return Delete(dir, name);
}

Status FakeImage::Quarantine(const std::string& dir, const std::string& name) {
  TAILCAST_RETURN_IF_ERROR(Delete(dir, name));
  ++counters_.quarantined;
  return OkStatus();
}

Status FakeImage::Remove(const std::string& dir, const std::string& name) {
  TAILCAST_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, Find(dir, name));
  folders_[dir].names.erase(name);
  folders_[dir].claims.erase(file->key);
  return OkStatus();
}

Status FakeImage::Cut(const std::string& dir, const std::string& name, int64_t length) {
  TAILCAST_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, Find(dir, name));
  file->cut_at = length;
  return OkStatus();
}

Status FakeImage::CheckWhole(const File& file) {
  if (file.visible() <= file.cut_at) return OkStatus();
  return DataLossError(file.dir + "/" + file.name + ": position " + std::to_string(file.cut_at) +
                       " of " + std::to_string(file.visible()) + " committed bytes is missing");
}

std::vector<std::string> FakeImage::Names(const std::string& dir) const {
  std::vector<std::string> names;
  const auto folder = folders_.find(dir);
  if (folder == folders_.end()) return names;
  for (const auto& [name, file] : folder->second.names) names.push_back(name);
  return names;
}

std::vector<std::string> FakeImage::Folders(const std::string& dir) const {
  std::vector<std::string> names;
  const std::string prefix = dir.empty() ? "" : dir + "/";
  for (auto it = folders_.lower_bound(prefix);
       it != folders_.end() && it->first.starts_with(prefix); ++it) {
    const std::string rest = it->first.substr(prefix.size());
    if (!rest.empty() && rest.find('/') == std::string::npos) names.push_back(rest);
  }
  return names;
}

std::shared_ptr<FakeImage::Append> FakeImage::Send(std::shared_ptr<File> file, Epoch epoch,
                                                   int64_t offset, std::string bytes,
                                                   StoreUse use) {
  auto append = std::make_shared<Append>();
  append->file = std::move(file);
  append->epoch = epoch;
  append->offset = offset;
  append->bytes = std::move(bytes);
  append->use = use;
  std::erase_if(in_flight_, [](const std::weak_ptr<Append>& weak) {
    const std::shared_ptr<Append> other = weak.lock();
    return other == nullptr || other->sealed;
  });
  in_flight_.push_back(append);
  if (File& f = *append->file; kShowsUnflushed.planted() && f.epoch == epoch) {
    f.physical.resize(static_cast<size_t>(f.committed));
    f.physical.append(append->bytes);
  }
  return append;
}

void FakeImage::Land(Append& append, const FakeRoom& room, MonotonicTime now) {
  if (append.sealed) return;
  append.sealed = true;
  File& file = *append.file;
  file.physical.resize(static_cast<size_t>(file.committed));
  const bool guard_holds = file.epoch == append.epoch && !file.deleted;
  if (!guard_holds && (!kNoEpochGuard.planted() || file.deleted)) {
    ++counters_.appends_fenced;
    append.outcome = AppendOutcome::kFenced;
    append.error = AbortedError(file.name + ": fenced by epoch " + std::to_string(Raw(file.epoch)));
    return;
  }
  const auto size = static_cast<int64_t>(append.bytes.size());
  if (Status fits = CheckRoom(file.name, size, room, append.use); !fits.ok()) {
    append.outcome = AppendOutcome::kUnknown;
    append.error = std::move(fits);
    return;
  }
  if (!kNoEpochGuard.planted() && !kShowsUnflushed.planted() && !kGarbageIsCommitted.planted()) {
    TAILCAST_CHECK(file.committed == append.offset, "an epoch has one writer with one append");
  }
  file.physical.append(append.bytes);
  file.committed += size;
  // spec DuelingWriters: PrimaryAppend.
  if (steps_ != nullptr && size > 0) {
    steps_->Write("PrimaryAppend", {{"dir", std::string_view(file.dir)},
                                    {"name", std::string_view(file.name)},
                                    {"len", file.committed}});
  }
  Remember(file, now);
  ++counters_.appends_landed;
  append.outcome = AppendOutcome::kApplied;
}

void FakeImage::Lose(Append& append) {
  append.sealed = true;
  ++counters_.appends_lost;
}

void FakeImage::LosePower(const FakeRoom& room, MonotonicTime now, Rng& rng) {
  for (const std::weak_ptr<Append>& weak : in_flight_) {
    const std::shared_ptr<Append> append = weak.lock();
    if (append == nullptr || append->sealed) continue;
    File& file = *append->file;
    if (rng.Chance(0.5)) {
      Land(*append, room, now);
      continue;
    }
    Lose(*append);
    append->error = UnavailableError(file.name + ": the disk lost power during the append");
    if (file.epoch != append->epoch) continue;
    // Part of the new bytes, then zeros or garbage: the reader of a correct driver sees none of it.
    file.physical.resize(static_cast<size_t>(file.committed));
    const size_t true_bytes = rng.Below(append->bytes.size() + 1);
    file.physical.append(append->bytes, 0, true_bytes);
    const bool garbage = rng.Chance(0.5);
    for (size_t i = true_bytes; i < append->bytes.size(); ++i) {
      file.physical.push_back(garbage ? static_cast<char>(rng.Next()) : '\0');
    }
    if (kGarbageIsCommitted.planted()) {
      file.committed = static_cast<int64_t>(file.physical.size());
      Remember(file, now);
    }
  }
  in_flight_.clear();
  for (auto& [path, folder] : folders_) {
    // A creation whose second half was under way: its claim survives or not.
    for (auto it = folder.claims.begin(); it != folder.claims.end();) {
      if (!it->second->named && rng.Chance(0.5)) {
        it = folder.claims.erase(it);
      } else {
        ++it;
      }
    }
  }
}

FileSize FakeImage::SizeAsOf(const File& file, MonotonicTime then) {
  FileSize size{file.visible(), file.epoch};
  for (auto it = file.history.rbegin(); it != file.history.rend(); ++it) {
    size = it->size;
    if (it->when <= then) break;
  }
  return size;
}

Result<std::string> FakeImage::ReadAt(const File& file, int64_t offset, int64_t length) {
  if (offset >= file.visible()) return std::string();
  const int64_t end = offset + std::min(length, file.visible() - offset);
  if (end > file.cut_at) return CheckWhole(file);
  return file.physical.substr(static_cast<size_t>(offset), static_cast<size_t>(end - offset));
}

int64_t FakeImage::bytes_used(int64_t file_bytes) const {
  int64_t used = 0;
  for (const auto& [path, folder] : folders_) {
    for (const auto& [key, file] : folder.claims) {
      used += file->committed + static_cast<int64_t>(Raw(file->epoch)) * file_bytes;
    }
  }
  return used;
}

Status FakeImage::CheckRoomForName(const File& file, const FakeRoom& room) {
  if (room.names) return OkStatus();
  return ResourceExhaustedError(file.name + ": No space left on device (for its name)");
}

Status FakeImage::CheckRoom(const std::string& name, int64_t bytes, const FakeRoom& room,
                            StoreUse use) const {
  if (room.capacity_bytes == INT64_MAX) return OkStatus();
  const int64_t kept = use == StoreUse::kMessages ? room.reserve_bytes : 0;
  if (bytes == 0 || bytes_used(room.file_bytes) + bytes <= room.capacity_bytes - kept) {
    return OkStatus();
  }
  return ResourceExhaustedError(name + ": No space left on device (the disk is full)");
}

}  // namespace tailcast::storage
