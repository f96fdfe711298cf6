#include "tailcast/storage/posix_file.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"

namespace tailcast::storage::posix {
namespace {

// How often a lost race is run again before the caller is told to.
constexpr int kAttemptsMax = 100;
constexpr int64_t kReadBytesMax = 8 << 20;  // of one Read; the caller asks again
constexpr int64_t kChecksumPieceBytes = 1 << 20;

std::string Join(const std::string& folder, std::string_view name) {
  return folder.empty() ? std::string(name) : folder + "/" + std::string(name);
}

// Fields of the log of steps.
std::string LogWord(CommitWord w) {
  return "\"epoch\":" + std::to_string(w.epoch) + ",\"length\":" + std::to_string(w.length);
}
std::string LogRange(int64_t at, int64_t bytes) {
  return "\"at\":" + std::to_string(at) + ",\"bytes\":" + std::to_string(bytes);
}
std::string LogFlag(const char* name, bool value) {
  return "\"" + std::string(name) + (value ? "\":true" : "\":false");
}
void LogStep(StepLog& log, std::string_view step, uint64_t writer, const std::string& fields) {
  std::string more;
  if (writer != 0) {
    AppendStepFields({{"writer", std::string_view(log.process() + std::to_string(writer))}}, &more);
  }
  if (!fields.empty()) more += (more.empty() ? "" : ",") + fields;
  log.WriteAt(log.Stamp(), step, {}, more);
}
#define TAILCAST_LOG_STEP(context, step, writer, fields)                             \
  do {                                                                               \
    if ((context).steps != nullptr) LogStep(*(context).steps, step, writer, fields); \
  } while (false)

Status Flush(const Context& c, OpsFile& file) {
  return c.durable() && c.bug != PlantedBug::kAckBeforeFlush ? file.SyncData() : OkStatus();
}
Status FlushFolder(const Context& c, const std::string& folder) {
  return c.durable() ? c.ops->SyncFolder(folder) : OkStatus();
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

// The inode that `entry` names, mapped.
Result<FirstInode> OpenFirstInode(const Context& c, const std::string& folder,
                                  const std::string& entry, bool writable) {
  const std::string path = Join(folder, entry);
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<OpsFile> file, c.ops->Open(path, writable));
  TAILCAST_ASSIGN_OR_RETURN(Header header, ReadHeader(*file, path));
  if (header.epoch != 1) {
    return DataLossError(path + ": the first inode of a file has epoch " +
                         std::to_string(header.epoch));
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

// Removes what is left of a file whose tombstone is set. Unavailable: another process is at it.
//
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
  TAILCAST_RETURN_IF_ERROR(remove_if_ours(file.name));
  TAILCAST_ASSIGN_OR_RETURN(const std::vector<OpsEntry> entries, c.ops->ListFolder(file.folder));
  for (const OpsEntry& entry : entries) {
    if (!entry.is_folder &&
        ParseSegmentName(entry.name, file.name, file.header.file_id).has_value()) {
      TAILCAST_RETURN_IF_ERROR(remove_if_ours(entry.name));
    }
  }
  // The claim goes late: as long as it is there, whoever creates with this key comes by and
  // finishes. A helper that had not seen the tombstone may have linked the name once more; without
  // the claim and the name the inode is beyond linking.
  TAILCAST_RETURN_IF_ERROR(remove_if_ours(ClaimName(file.header.key)));
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

// All inodes of the file. `known`: a list from before, whose open inodes are used again.
Result<std::shared_ptr<Segments>> ListSegments(const Context& c, const FirstInode& file,
                                               const Segments* known) {
  auto segments = std::make_shared<Segments>();
  segments->by_epoch.push_back({file.header, file.file});
  TAILCAST_ASSIGN_OR_RETURN(const std::vector<OpsEntry> entries, c.ops->ListFolder(file.folder));
  for (const OpsEntry& entry : entries) {
    const std::optional<uint64_t> epoch =
        ParseSegmentName(entry.name, file.name, file.header.file_id);
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
                           std::to_string(header.epoch));
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

Result<uint32_t> ChecksumOf(const Segment& segment, int64_t from, int64_t to) {
  uint32_t crc = 0;
  while (from < to) {
    const int64_t size = std::min(to - from, kChecksumPieceBytes);
    TAILCAST_ASSIGN_OR_RETURN(
        const std::string piece,
        segment.file->ReadAt(kDataOffset + from - segment.header.start, size));
    crc = Crc32cExtend(crc, piece.data(), piece.size());
    if (static_cast<int64_t>(piece.size()) < size) return ~crc;  // ends early: cannot match
    from += size;
  }
  return crc;
}

// What one inode says about the length after a power loss.
Result<int64_t> DurableLength(const Context& c, const Segment& segment) {
  TAILCAST_ASSIGN_OR_RETURN(const std::string page, segment.file->ReadAt(0, kPageBytes));
  for (const Slot& slot : SlotsOf(page, segment.header)) {
    if (c.bug == PlantedBug::kNoRangeChecksum) return slot.length;
    TAILCAST_ASSIGN_OR_RETURN(const uint32_t crc,
                              ChecksumOf(segment, slot.range_start, slot.length));
    if (crc == slot.range_crc) return slot.length;
  }
  return segment.header.start;
}

// Length and highest epoch from what the disk kept. spec Fencing: Recovered.
Result<CommitWord> Recover(const Context& c, const FirstInode& file, const Segments& segments) {
  for (const Segment& segment : segments.by_epoch) {
    if (segment.header.unflushed) {
      return DataLossError(Join(file.folder, file.name) +
                           ": it was written without flushes (durability page_cache) and the "
                           "machine has restarted since; its content is not known, delete it");
    }
  }
  const Segment& newest = segments.by_epoch.back();
  CommitWord word{newest.header.epoch, 0};
  TAILCAST_ASSIGN_OR_RETURN(word.length, DurableLength(c, newest));
  if (c.bug == PlantedBug::kSlotsOfAnySegment) {
    for (const Segment& segment : segments.by_epoch) {
      TAILCAST_ASSIGN_OR_RETURN(const int64_t length, DurableLength(c, segment));
      word.length = std::max(word.length, length);
    }
  }
  if (c.bug == PlantedBug::kTrustWord) word.length = LoadWord(*file.page).length;
  return word;
}

// A new inode with its first page, flushed, without a name.
Result<std::unique_ptr<OpsFile>> MakeInode(const Context& c, const std::string& folder,
                                           const Header& header) {
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<OpsFile> file, c.ops->CreateUnnamed(folder));
  const CommitWord word{header.epoch, header.start};
  TAILCAST_RETURN_IF_ERROR(file->WriteAt(0, EncodePage(header, word, c.ops->BootTag())));
  if (c.durable()) TAILCAST_RETURN_IF_ERROR(file->SyncData());
  return file;
}

// Makes the folder and those above it, and sees that they survive a power loss: also if they
// existed, as whoever made them may not have got that far.
Status EnsureFolder(const Context& c, const std::string& folder) {
  if (folder.empty()) return OkStatus();
  {
    std::lock_guard lock(c.folders_mutex);
    if (c.durable_folders.contains(folder)) return OkStatus();
  }
  const size_t slash = folder.rfind('/');
  const std::string parent = slash == std::string::npos ? "" : folder.substr(0, slash);
  TAILCAST_RETURN_IF_ERROR(EnsureFolder(c, parent));
  Status made = c.ops->MakeFolder(folder);
  if (!made.ok() && !IsAlreadyExists(made)) return made;
  TAILCAST_RETURN_IF_ERROR(FlushFolder(c, parent));
  std::lock_guard lock(c.folders_mutex);
  c.durable_folders.insert(folder);
  return OkStatus();
}

void ForgetFolders(const Context& c) {
  std::lock_guard lock(c.folders_mutex);
  c.durable_folders.clear();
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
  // The claim must be durable before the name: a power loss that kept only the name would let a
  // second file take the key.
  if (c.bug != PlantedBug::kClaimNotDurable) {
    TAILCAST_RETURN_IF_ERROR(FlushFolder(c, folder));
  }
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

Status LostRace(const std::string& what) {
  return AbortedError(what + ": lost " + std::to_string(kAttemptsMax) +
                      " races against other processes; try again");
}

}  // namespace

// ---------------------------------------------------------------------------------------------

Appender::Appender(const Context* context, uint64_t writer, FirstInode file, Segment segment,
                   CommitWord word)
    : context_(context),
      writer_(writer),
      file_(std::move(file)),
      segment_(std::move(segment)),
      word_(word) {}
Appender::~Appender() = default;

AppendResult Appender::Fail(AppendOutcome outcome, Status error) const {
  return {outcome, word_.length, std::move(error)};
}

AppendResult Appender::Append(std::string_view bytes) {
  const Context& c = *context_;
  SharedPage& page = *file_.page;
  const std::string path = Join(file_.folder, file_.name);
  const auto fenced = [&] {
    return AbortedError(path + ": epoch " + std::to_string(word_.epoch) + " was fenced by epoch " +
                        std::to_string(LoadWord(page).epoch));
  };
  const CommitWord next{word_.epoch, word_.length + static_cast<int64_t>(bytes.size())};
  if (next.length > kLengthMax) {
    return Fail(AppendOutcome::kUnknown,
                ResourceExhaustedError(path + ": would grow beyond 1 TiB"));
  }
  // Fenced before anything was written: certainly refused.
  if (LoadWord(page) != word_) {
    TAILCAST_LOG_STEP(c, "AppendRefused", writer_, "");
    return Fail(AppendOutcome::kFenced, fenced());
  }
  if (bytes.empty()) return {AppendOutcome::kApplied, word_.length, OkStatus()};

  // spec Fencing: AppendWrite. The slot that is overwritten is the older one, never that of the
  // committed length.
  const int64_t slot_offset = kSlotOffsets[next_slot_];
  if (c.bug != PlantedBug::kOneSlot) next_slot_ = 1 - next_slot_;
  Status status = segment_.file->WriteAt(kDataOffset + word_.length - segment_.header.start, bytes);
  if (status.ok() && c.bug != PlantedBug::kNoSlot) {
    const Slot slot{file_.header.file_id, word_.epoch, next.length, word_.length, Crc32c(bytes)};
    status = segment_.file->WriteAt(slot_offset, EncodeSlot(slot));
  }
  if (status.ok()) {
    TAILCAST_LOG_STEP(c, "AppendWrite", writer_,
                      LogRange(word_.length, static_cast<int64_t>(bytes.size())));
    // spec Fencing: AppendSync. One flush for bytes and slot.
    status = Flush(c, *segment_.file);
    TAILCAST_LOG_STEP(c, status.ok() ? "AppendSync" : "AppendSyncFail", writer_, "");
  }
  if (!status.ok()) return Fail(AppendOutcome::kUnknown, std::move(status));

  // spec Fencing: AppendCommit; spec DuelingWriters: PrimaryAppend.
  const int64_t stamp = c.lengths != nullptr ? c.lengths->Stamp() : 0;
  bool committed;
  if (c.bug == PlantedBug::kNoCommitCheck) {
    page.Store(kWordOffset, Pack(next));
    committed = true;
  } else {
    committed = SwapWord(page, word_, next);
  }
  TAILCAST_LOG_STEP(c, "AppendCommit", writer_, LogFlag("swapped", committed));
  if (committed) {
    word_ = next;
    if (c.lengths != nullptr) {
      c.lengths->WriteAt(stamp, "PrimaryAppend",
                         {{"dir", std::string_view(file_.folder)},
                          {"name", std::string_view(file_.name)},
                          {"len", word_.length}});
    }
    return {AppendOutcome::kApplied, word_.length, OkStatus()};
  }
  // Fenced after the flush. If the power went now, before the fencer's segment is durable, recovery
  // would believe our slot; so the slot is taken back before we say that these bytes are refused.
  if (c.durable() && c.bug != PlantedBug::kFencedNotRevoked) {
    // spec Fencing: AppendRevoke, AppendRevokeSync.
    status = segment_.file->WriteAt(slot_offset, std::string(kSectorBytes, '\0'));
    if (status.ok()) {
      TAILCAST_LOG_STEP(c, "AppendRevoke", writer_, "");
      status = segment_.file->SyncData();
      TAILCAST_LOG_STEP(c, status.ok() ? "AppendRevokeSync" : "AppendSyncFail", writer_, "");
    }
    if (!status.ok()) {
      return Fail(AppendOutcome::kUnknown, status.WithContext(fenced().message()));
    }
  }
  return Fail(AppendOutcome::kFenced, fenced());
}

// ---------------------------------------------------------------------------------------------

Reader::Reader(const Context* context, FirstInode file)
    : context_(context), file_(std::move(file)) {}
Reader::~Reader() = default;

bool Reader::FastSize(FileSize& size) const {
  // The tag first: once it is ours, the word counts.
  if (file_.page->Load(kBootTagOffset) != context_->ops->BootTag()) return false;
  const CommitWord word = LoadWord(*file_.page);
  size = {word.length, word.epoch};
  return true;
}

Result<Reader::View> Reader::Look(bool want_segments) {
  const Context& c = *context_;
  SharedPage& page = *file_.page;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    View view;
    std::shared_ptr<const Segments> known;
    uint64_t known_old_tag;
    View known_old_view;
    {
      std::lock_guard lock(mutex_);
      known = segments_;
      known_old_tag = old_tag_;
      known_old_view = old_view_;
    }
    // The tag first: once it is ours, the word counts.
    const uint64_t tag = page.Load(kBootTagOffset);
    if (tag == c.ops->BootTag()) {
      view.committed = LoadWord(page);
      if (!want_segments) return view;
      TAILCAST_LOG_STEP(c, "ReadWord", 0, LogFlag("booted", true) + "," + LogWord(view.committed));
      // A list is complete for the word (epoch, length) if it has the segment of that epoch, or if
      // it was made when the word already had that length (the epoch's owner may not have made its
      // segment yet, and then has not appended).
      const bool valid = known != nullptr && known->listed_at.epoch == view.committed.epoch &&
                         (known->has_epoch || c.bug == PlantedBug::kListingKept ||
                          known->listed_at.length >= view.committed.length);
      if (valid) {
        view.segments = std::move(known);
        return view;
      }
      TAILCAST_ASSIGN_OR_RETURN(std::shared_ptr<Segments> fresh,
                                ListSegments(c, file_, known.get()));
      fresh->listed_at = view.committed;
      for (const Segment& segment : fresh->by_epoch) {
        if (segment.header.epoch == view.committed.epoch) fresh->has_epoch = true;
      }
      view.segments = fresh;
      std::lock_guard lock(mutex_);
      segments_ = std::move(fresh);
      return view;
    }
    // The machine has restarted and nobody has opened the file for append since. As long as the tag
    // stays, nobody appends, and what we once computed holds.
    if (want_segments) TAILCAST_LOG_STEP(c, "ReadWord", 0, LogFlag("booted", false));
    if (known_old_tag == tag && known_old_view.segments != nullptr) {
      if (want_segments) LogOldView(known_old_view.committed.length, false);
      return known_old_view;
    }
    TAILCAST_ASSIGN_OR_RETURN(std::shared_ptr<Segments> fresh, ListSegments(c, file_, known.get()));
    TAILCAST_ASSIGN_OR_RETURN(view.committed, Recover(c, file_, *fresh));
    // An opener may have recovered the file meanwhile and begun to append: then a slot that we saw
    // may be of bytes that are not flushed.
    const bool booted = page.Load(kBootTagOffset) != tag;
    if (want_segments) LogOldView(view.committed.length, booted);
    if (booted && c.bug != PlantedBug::kNoBracket) continue;
    view.segments = std::move(fresh);
    std::lock_guard lock(mutex_);
    old_tag_ = tag;
    old_view_ = view;
    return view;
  }
  return LostRace("read " + Join(file_.folder, file_.name));
}

void Reader::LogOldView(int64_t length, bool booted) const {
  TAILCAST_LOG_STEP(*context_, "ReadSlots", 0, "\"length\":" + std::to_string(length));
  TAILCAST_LOG_STEP(*context_, "ReadBracket", 0, LogFlag("booted", booted));
}

Result<FileSize> Reader::Size() {
  TAILCAST_ASSIGN_OR_RETURN(const View view, Look(false));
  return FileSize{view.committed.length, view.committed.epoch};
}

Result<std::string> Reader::Read(int64_t offset, int64_t length) {
  if (offset < 0 || length < 0) {
    return InvalidArgumentError("read " + Join(file_.folder, file_.name) + ": " +
                                std::to_string(length) + " bytes at " + std::to_string(offset));
  }
  TAILCAST_ASSIGN_OR_RETURN(const View view, Look(true));
  const int64_t committed = view.committed.length;
  if (length == 0 || offset >= committed) {
    TAILCAST_LOG_STEP(*context_, "ReadShow", 0,
                      LogRange(std::min(offset, committed), 0) + ",\"epoch\":1");
    return std::string();
  }
  const int64_t end = std::min({committed, offset + std::min(length, kReadBytesMax)});
  std::string bytes;
  const std::vector<Segment>& segments = view.segments->by_epoch;
  bool logged = false;  // the model's reader shows one piece for each look
  while (offset < end) {
    // Position p is in the segment of the highest epoch whose start is at most p.
    size_t i = segments.size() - 1;
    while (segments[i].header.start > offset) --i;  // the first starts at 0
    int64_t stop = end;
    for (size_t k = i + 1; k < segments.size(); ++k) {
      stop = std::min(stop, segments[k].header.start);
    }
    TAILCAST_ASSIGN_OR_RETURN(
        const std::string piece,
        segments[i].file->ReadAt(kDataOffset + offset - segments[i].header.start, stop - offset));
    bytes += piece;
    if (static_cast<int64_t>(piece.size()) < stop - offset) {
      return DataLossError("read " + Join(file_.folder, file_.name) + ": position " +
                           std::to_string(offset + static_cast<int64_t>(piece.size())) + " of " +
                           std::to_string(committed) + " committed bytes is missing from " +
                           SegmentName(file_.name, file_.header.file_id, segments[i].header.epoch) +
                           "; was the file cut by another program?");
    }
    if (!logged) {
      logged = true;
      TAILCAST_LOG_STEP(*context_, "ReadShow", 0,
                        LogRange(offset, stop - offset) +
                            ",\"epoch\":" + std::to_string(segments[i].header.epoch));
    }
    offset = stop;
  }
  return bytes;
}

// ---------------------------------------------------------------------------------------------

Result<std::unique_ptr<Appender>> CreateExclusive(const Context& c, const std::string& folder,
                                                  const std::string& name, const std::string& key) {
  const std::string path = Join(folder, name);
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    Result<std::string> winner = CompleteClaim(c, folder, key);
    if (!winner.ok()) return winner.status();
    if (!winner->empty()) return AlreadyExistsError(*winner);
    if (Result<FirstInode> taken = OpenNamed(c, folder, name, true); taken.ok()) {
      if (taken->header.key != key) {
        return FailedPreconditionError(path + ": exists under the key '" + taken->header.key +
                                       "'; choose another name");
      }
      // A power loss kept the name of a delete that had removed the claim, or the like: the claim
      // is made again from the name.
      Status linked = c.ops->Link(*taken->file, Join(folder, ClaimName(key)));
      if (!linked.ok() && !IsAlreadyExists(linked) && !IsNotFound(linked)) return linked;
      continue;
    } else if (!IsNotFound(taken.status())) {
      return taken.status();
    }

    Header header;
    header.file_id = c.ops->Random64();
    header.unflushed = !c.durable();
    header.name = name;
    header.key = key;
    TAILCAST_RETURN_IF_ERROR(EnsureFolder(c, folder));
    Result<std::unique_ptr<OpsFile>> made = MakeInode(c, folder, header);
    if (!made.ok() && IsNotFound(made.status())) {  // somebody removed the folder
      ForgetFolders(c);
      continue;
    }
    if (!made.ok()) return made.status();
    FirstInode first;
    first.folder = folder;
    first.name = name;
    first.header = header;
    first.file = *std::move(made);
    TAILCAST_ASSIGN_OR_RETURN(first.page, first.file->MapPage(true));

    Status linked = c.ops->Link(*first.file, Join(folder, ClaimName(key)));
    if (IsAlreadyExists(linked)) continue;  // another creator was faster
    if (!linked.ok()) return linked;
    if (c.bug != PlantedBug::kClaimNotDurable) {
      TAILCAST_RETURN_IF_ERROR(FlushFolder(c, folder));
    }
    linked = c.ops->Link(*first.file, path);
    if (IsAlreadyExists(linked)) {
      // A helper completed our claim; or, a rule of the caller's broken, another file got the name.
      TAILCAST_ASSIGN_OR_RETURN(const FirstInode there, OpenNamed(c, folder, name, false));
      if (there.header.file_id != header.file_id) {
        TAILCAST_RETURN_IF_ERROR(
            first.file->WriteAt(kTombstoneOffset, EncodeTombstone(header.file_id)));
        TAILCAST_RETURN_IF_ERROR(FinishDelete(c, first));
        return FailedPreconditionError(path + ": was created under the key '" + there.header.key +
                                       "' at the same time");
      }
    } else if (!linked.ok()) {
      return linked;  // whoever comes next completes it
    }
    TAILCAST_RETURN_IF_ERROR(FlushFolder(c, folder));
    if (IsDeleted(*first.page)) {
      TAILCAST_RETURN_IF_ERROR(FinishDelete(c, first));
      return AbortedError("create " + path + ": it was deleted at once by another process");
    }
    Segment segment{header, first.file};
    const uint64_t writer = ++c.writers;
    TAILCAST_LOG_STEP(c, "Create", writer, "");
    return std::make_unique<Appender>(&c, writer, std::move(first), std::move(segment),
                                      CommitWord{1, 0});
  }
  return LostRace("create " + path);
}

Result<std::unique_ptr<Appender>> OpenFencing(const Context& c, const std::string& folder,
                                              const std::string& name) {
  const std::string path = Join(folder, name);
  TAILCAST_ASSIGN_OR_RETURN(FirstInode first, OpenNamed(c, folder, name, true));
  TAILCAST_RETURN_IF_ERROR(EnsureFolder(c, folder));
  SharedPage& page = *first.page;
  const uint64_t writer = ++c.writers;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    // spec Fencing: RecoverReadWord. The raw word is what the swap expects; its fields count only
    // when the boot tag, read after it, is ours.
    uint64_t raw = page.Load(kWordOffset);
    const uint64_t tag = page.Load(kBootTagOffset);
    const bool booted = tag == c.ops->BootTag();
    CommitWord next = Unpack(raw);
    if (!booted) {
      TAILCAST_LOG_STEP(c, "RecoverReadWord", writer, LogWord(next));
      // spec Fencing: RecoverReadSlots.
      const bool live_sector_is_whole = page.Load(kLiveMagicOffset) == kLiveMagic;
      TAILCAST_ASSIGN_OR_RETURN(const std::shared_ptr<Segments> segments,
                                ListSegments(c, first, nullptr));
      TAILCAST_ASSIGN_OR_RETURN(const CommitWord recovered, Recover(c, first, *segments));
      next.length = recovered.length;
      next.epoch = std::max(recovered.epoch, live_sector_is_whole ? next.epoch : 0);
      if (c.bug == PlantedBug::kWordReadLate) raw = page.Load(kWordOffset);
      // spec Fencing: RecoverBracket. Had somebody recovered and begun to append meanwhile, then a
      // slot that we saw may be of bytes that are not flushed.
      TAILCAST_LOG_STEP(c, "RecoverReadSlots", writer, LogWord({next.epoch + 1, next.length}));
      const bool booted_meanwhile = page.Load(kBootTagOffset) != tag;
      TAILCAST_LOG_STEP(c, "RecoverBracket", writer, LogFlag("booted", booted_meanwhile));
      if (booted_meanwhile && c.bug != PlantedBug::kNoBracket &&
          c.bug != PlantedBug::kWordReadLate) {
        continue;
      }
    }
    const int64_t length = next.length;
    if (++next.epoch > kEpochMax) {
      return ResourceExhaustedError(path + ": was taken over " + std::to_string(kEpochMax) +
                                    " times, which is the limit of the format");
    }
    // spec Fencing: Fence, RecoverFence. From here every swap of an earlier epoch fails.
    const bool swapped = page.CompareAndSwap(kWordOffset, raw, Pack(next));
    if (!booted) {
      TAILCAST_LOG_STEP(c, "RecoverFence", writer, LogFlag("swapped", swapped));
    } else if (swapped) {
      TAILCAST_LOG_STEP(c, "Fence", writer, LogWord(next));
    }
    if (!swapped) continue;
    if (!booted) {
      // spec Fencing: RecoverSetBoot. From here the word counts.
      page.Store(kLiveMagicOffset, kLiveMagic);
      page.Store(kBootTagOffset, c.ops->BootTag());
      TAILCAST_LOG_STEP(c, "RecoverSetBoot", writer, "");
    }
    if (IsDeleted(page)) {
      TAILCAST_RETURN_IF_ERROR(FinishDelete(c, first));
      return NotFoundError("open " + path + ": it was deleted");
    }
    if (c.bug == PlantedBug::kSameInode) {
      TAILCAST_ASSIGN_OR_RETURN(auto segments, ListSegments(c, first, nullptr));
      const Segment last = segments->by_epoch.back();
      return std::make_unique<Appender>(&c, writer, std::move(first), last, next);
    }

    // spec Fencing: CreateSegment, CreateSegmentSync.
    Header header = first.header;
    header.epoch = next.epoch;
    header.start = length;
    header.unflushed = !c.durable();
    TAILCAST_ASSIGN_OR_RETURN(std::shared_ptr<OpsFile> file, MakeInode(c, folder, header));
    const std::string segment_path = Join(folder, SegmentName(name, header.file_id, next.epoch));
    const Status linked = c.ops->Link(*file, segment_path);
    if (IsAlreadyExists(linked)) {
      return DataLossError(segment_path + ": exists although its epoch was never used");
    }
    TAILCAST_RETURN_IF_ERROR(linked);
    TAILCAST_LOG_STEP(c, "CreateSegment", writer, "");
    if (c.bug != PlantedBug::kSegmentNotDurable) {
      TAILCAST_RETURN_IF_ERROR(FlushFolder(c, folder));
    }
    TAILCAST_LOG_STEP(c, "CreateSegmentSync", writer, "");
    if (LoadWord(page).epoch != next.epoch) {
      // Fenced in turn; nothing was appended, so the segment that we leave behind is harmless.
      TAILCAST_LOG_STEP(c, "AppendRefused", writer, "");
      return AbortedError("open " + path + ": another opener took it over at the same time");
    }
    Segment segment{std::move(header), std::move(file)};
    first.file.reset();  // the mapping stays: one descriptor for each open file
    return std::make_unique<Appender>(&c, writer, std::move(first), std::move(segment), next);
  }
  return LostRace("open " + path);
}

Result<std::unique_ptr<Reader>> OpenRead(const Context& c, const std::string& folder,
                                         const std::string& name) {
  TAILCAST_ASSIGN_OR_RETURN(FirstInode first, OpenNamed(c, folder, name, false));
  return std::make_unique<Reader>(&c, std::move(first));
}

Status Delete(const Context& c, const std::string& folder, const std::string& name) {
  TAILCAST_ASSIGN_OR_RETURN(const FirstInode first, OpenNamed(c, folder, name, true));
  // The tombstone first, durably: whatever part of the names a power loss brings back then stays
  // deleted, and a helper does not revive it.
  if (c.bug != PlantedBug::kNoTombstone) {
    TAILCAST_RETURN_IF_ERROR(
        first.file->WriteAt(kTombstoneOffset, EncodeTombstone(first.header.file_id)));
    if (c.durable()) TAILCAST_RETURN_IF_ERROR(first.file->SyncData());
  }
  // Fence, so that a writer learns of it.
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    const CommitWord word = LoadWord(*first.page);
    if (word.epoch >= kEpochMax || SwapWord(*first.page, word, {word.epoch + 1, word.length}))
      break;
  }
  return FinishDelete(c, first);
}

Result<std::vector<std::string>> List(const Context& c, const std::string& folder) {
  std::vector<std::string> names;
  Result<std::vector<OpsEntry>> entries = c.ops->ListFolder(folder);
  if (!entries.ok()) {
    if (IsNotFound(entries.status())) return names;
    return entries.status();
  }
  for (OpsEntry& entry : *entries) {
    if (!entry.is_folder && entry.name[0] != '.') names.push_back(std::move(entry.name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::vector<std::string>> ListFolders(const Context& c, const std::string& folder) {
  std::vector<std::string> names;
  Result<std::vector<OpsEntry>> entries = c.ops->ListFolder(folder);
  if (!entries.ok()) {
    if (IsNotFound(entries.status())) return names;
    return entries.status();
  }
  for (OpsEntry& entry : *entries) {
    if (entry.is_folder && entry.name[0] != '.') names.push_back(std::move(entry.name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tailcast::storage::posix
