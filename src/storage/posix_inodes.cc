#include "tailcast/storage/posix_inodes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/strong.h"

namespace tailcast::storage::posix {
namespace {

FAULT_POINT(kListingKept, "storage.listing_kept",
            "a reader lists segments only when the epoch changes");

}  // namespace

void Segments::MarkListedAt(CommitWord word) {
  listed_at_ = word;
  has_epoch_ = std::any_of(by_epoch.begin(), by_epoch.end(), [&](const Segment& segment) {
    return segment.header.epoch == word.epoch;
  });
}

bool Segments::CompleteFor(CommitWord word) const {
  return listed_at_.epoch == word.epoch &&
         (has_epoch_ || kListingKept.planted() || listed_at_.length >= word.length);
}

Piece PieceAt(const Segments& segments, int64_t offset, int64_t end) {
  const std::vector<Segment>& by_epoch = segments.by_epoch;
  Piece piece{by_epoch.size() - 1, end};
  while (by_epoch[piece.segment].header.start > offset) --piece.segment;  // the first starts at 0
  for (size_t k = piece.segment + 1; k < by_epoch.size(); ++k) {
    piece.stop = std::min(piece.stop, by_epoch[k].header.start);
  }
  return piece;
}

bool WordCounts(const Context& c, SharedPage& page) {
  return page.Load(kAttachTagOffset) == c.ops->AttachTag();
}
CommitWord LoadWord(SharedPage& page) { return Unpack(page.Load(kWordOffset)); }
bool SwapWord(SharedPage& page, CommitWord from, CommitWord to) {
  return page.CompareAndSwap(kWordOffset, Pack(from), Pack(to));
}
bool IsDeleted(SharedPage& page) { return page.Load(kTombstoneOffset) == kTombstoneMagic; }

Result<std::string> ReadFirstPage(OpsFile& file, const std::string& path) {
  TAILCAST_ASSIGN_OR_RETURN(std::string page, file.ReadAt(0, kPageBytes));
  if (static_cast<int64_t>(page.size()) < kPageBytes) {
    return DataLossError(path + ": the file has " + std::to_string(page.size()) +
                         " bytes, less than its first page; was it cut by another program?");
  }
  return page;
}

void FenceForEver(SharedPage& page) {
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    const CommitWord word = LoadWord(page);
    if (word.epoch >= kEpochMax || SwapWord(page, word, {Successor(word.epoch), word.length}))
      return;
  }
}

Status PageLost(const FirstInode& file) {
  const std::string path = Join(file.folder, file.name);
  if (file.file != nullptr) {
    const Result<std::string> page = ReadFirstPage(*file.file, path);
    if (!page.ok()) return page.status();
  }
  return UnavailableError(path +
                          ": its first page cannot be reached in memory any more; was the file cut "
                          "by another program, or its disk taken away?");
}

Result<Header> ReadHeader(OpsFile& file, const std::string& path) {
  TAILCAST_ASSIGN_OR_RETURN(const std::string page, file.ReadAt(0, kPageBytes));
  Result<Header> header = DecodeHeader(page);
  if (!header.ok()) return header.status().WithContext(path);
  return header;
}

Result<FirstInode> OpenFirstInode(const Context& c, const std::string& folder,
                                  const std::string& entry, bool writable) {
  const std::string path = Join(folder, entry);
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<OpsFile> file, c.ops->Open(path, writable));
  TAILCAST_ASSIGN_OR_RETURN(Header header, ReadHeader(*file, path));
  if (header.epoch != Epoch::kFirst) {
    return DataLossError(path + ": the first inode of a file has epoch " +
                         std::to_string(Raw(header.epoch)));
  }
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<SharedPage> page, file->MapPage(writable));
  FirstInode first;
  first.folder = folder;
  first.name = header.name;
  first.header = std::move(header);
  first.file = std::move(file);
  first.page = std::move(page);
  return first;
}

Result<std::unique_ptr<OpsFile>> MakeInode(const Context& c, const std::string& folder,
                                           const Header& header) {
  TAILCAST_RETURN_IF_ERROR(CheckRoom(c, "create " + Join(folder, header.name)));
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<OpsFile> file, c.ops->CreateUnnamed(folder));
  const CommitWord word{header.epoch, header.start};
  TAILCAST_RETURN_IF_ERROR(
      file->WriteAt(0, EncodePage(header, word, {c.ops->AttachTag(), c.ops->BootTag()})));
  if (c.durable()) TAILCAST_RETURN_IF_ERROR(file->SyncData());
  return file;
}

namespace {

constexpr Epoch kProbedEpochsMax{64};       // of one file; beyond it the folder is listed
constexpr size_t kListedFoldersMax = 1024;  // kept; beyond it they are listed again

// Hidden names of the folder that may be segments, as they were at some time of this attachment.
Result<std::shared_ptr<const std::vector<std::string>>> EarlierSegments(const Context& c,
                                                                        const std::string& folder) {
  using Names = std::shared_ptr<const std::vector<std::string>>;
  {
    std::lock_guard lock(c.folders_mutex);
    const auto known = c.earlier_segments.find(folder);
    if (known != c.earlier_segments.end()) return known->second;
  }
  TAILCAST_ASSIGN_OR_RETURN(const std::vector<OpsEntry> entries, c.ops->ListFolder(folder));
  std::vector<std::string> names;
  for (const OpsEntry& entry : entries) {
    if (!entry.is_folder && MayBeSegment(entry.name)) names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  const auto listed = std::make_shared<const std::vector<std::string>>(std::move(names));
  std::lock_guard lock(c.folders_mutex);
  if (c.earlier_segments.size() >= kListedFoldersMax) c.earlier_segments.clear();
  c.earlier_segments[folder] = listed;
  return Names(listed);
}

}  // namespace

Result<std::vector<std::string>> SegmentNames(const Context& c, const FirstInode& file) {
  std::vector<std::string> names;
  const bool counts = WordCounts(c, *file.page);
  const Epoch newest = LoadWord(*file.page).epoch;
  if (counts && newest <= kProbedEpochsMax) {
    for (Epoch epoch = Successor(Epoch::kFirst); epoch <= newest; epoch = Successor(epoch)) {
      names.push_back(SegmentName(file.name, file.header.file_id, epoch));
    }
    return names;
  }
  const auto add = [&](const std::string& name) {
    if (ParseSegmentName(name, file.name, file.header.file_id).has_value()) names.push_back(name);
  };
  if (counts) {
    TAILCAST_ASSIGN_OR_RETURN(const std::vector<OpsEntry> entries, c.ops->ListFolder(file.folder));
    for (const OpsEntry& entry : entries) {
      if (!entry.is_folder) add(entry.name);
    }
    return names;
  }
  TAILCAST_ASSIGN_OR_RETURN(const auto earlier, EarlierSegments(c, file.folder));
  const std::string prefix = SegmentPrefix(file.name, file.header.file_id);
  for (auto name = std::lower_bound(earlier->begin(), earlier->end(), prefix);
       name != earlier->end() && name->starts_with(prefix); ++name) {
    add(*name);
  }
  return names;
}

Result<std::shared_ptr<Segments>> ListSegments(const Context& c, const FirstInode& file,
                                               const Segments* known) {
  auto segments = std::make_shared<Segments>();
  segments->by_epoch.push_back({file.header, file.file});
  TAILCAST_ASSIGN_OR_RETURN(const std::vector<std::string> names, SegmentNames(c, file));
  for (const std::string& name : names) {
    const std::optional<Epoch> epoch = ParseSegmentName(name, file.name, file.header.file_id);
    const Segment* seen = nullptr;
    if (known != nullptr) {
      for (const Segment& segment : known->by_epoch) {
        if (segment.header.epoch == *epoch) seen = &segment;
      }
    }
    if (seen != nullptr) {
      segments->by_epoch.push_back(*seen);
      continue;
    }
    const std::string path = Join(file.folder, name);
    Result<std::unique_ptr<OpsFile>> inode = c.ops->Open(path, false);
    if (!inode.ok()) {
      // Never made, by a fencer that died or lost a race before it appended anything; or removed by
      // a delete, which the tombstone tells.
      if (IsNotFound(inode.status())) continue;
      return inode.status();
    }
    TAILCAST_ASSIGN_OR_RETURN(Header header, ReadHeader(**inode, path));
    if (header.file_id != file.header.file_id) continue;  // left by a deleted file of this name
    if (header.epoch != *epoch) {
      return DataLossError(path + ": the segment calls itself epoch " +
                           std::to_string(Raw(header.epoch)));
    }
    segments->by_epoch.push_back({std::move(header), *std::move(inode)});
  }
  // The tombstone is set before the first name is removed, so a list that lacks a name for that
  // reason is noticed here.
  if (IsDeleted(*file.page)) {
    return NotFoundError("open " + Join(file.folder, file.name) + ": it was deleted");
  }
  std::sort(segments->by_epoch.begin(), segments->by_epoch.end(),
            [](const Segment& a, const Segment& b) { return a.header.epoch < b.header.epoch; });
  return segments;
}

}  // namespace tailcast::storage::posix
