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

CommitWord LoadWord(SharedPage& page) { return Unpack(page.Load(kWordOffset)); }
bool SwapWord(SharedPage& page, CommitWord from, CommitWord to) {
  return page.CompareAndSwap(kWordOffset, Pack(from), Pack(to));
}
bool IsDeleted(SharedPage& page) { return page.Load(kTombstoneOffset) == kTombstoneMagic; }

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
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<OpsFile> file, c.ops->CreateUnnamed(folder));
  const CommitWord word{header.epoch, header.start};
  TAILCAST_RETURN_IF_ERROR(file->WriteAt(0, EncodePage(header, word, c.ops->BootTag())));
  if (c.durable()) TAILCAST_RETURN_IF_ERROR(file->SyncData());
  return file;
}

Result<std::shared_ptr<Segments>> ListSegments(const Context& c, const FirstInode& file,
                                               const Segments* known) {
  auto segments = std::make_shared<Segments>();
  segments->by_epoch.push_back({file.header, file.file});
  TAILCAST_ASSIGN_OR_RETURN(const std::vector<OpsEntry> entries, c.ops->ListFolder(file.folder));
  for (const OpsEntry& entry : entries) {
    const std::optional<Epoch> epoch = ParseSegmentName(entry.name, file.name, file.header.file_id);
    if (!epoch.has_value() || entry.is_folder) continue;
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
    const std::string path = Join(file.folder, entry.name);
    Result<std::unique_ptr<OpsFile>> inode = c.ops->Open(path, false);
    if (!inode.ok()) {
      // Removed since the listing: by a delete, which the tombstone tells, or by a fencer that had
      // lost the race before it appended anything.
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
