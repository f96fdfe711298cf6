#include "tailcast/storage/posix_recovery.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/strong.h"
#include "tailcast/storage/posix_names.h"

namespace tailcast::storage::posix {
namespace {

FAULT_POINT(kNoRangeChecksum, "storage.no_range_checksum",
            "a slot is believed without looking at its bytes");
FAULT_POINT(kTrustWord, "storage.trust_word",
            "the word is believed although the page cache was lost");
FAULT_POINT(kSlotsOfAnySegment, "storage.slots_of_any_segment",
            "recovery takes the longest slot of all segments");
FAULT_POINT(kSameInode, "storage.same_inode",
            "a takeover goes on in the inode that the earlier writer has open");
FAULT_POINT(kSegmentNotDurable, "storage.segment_not_durable",
            "a fence returns before its segment survives a power loss");
FAULT_POINT(kWordReadLate, "storage.word_read_late",
            "recovery reads the word to be swapped after the slots, once");
FAULT_POINT(kNoBracket, "storage.no_bracket", "recovery and readers do not look at the tag again");

constexpr int64_t kChecksumPieceBytes = 1 << 20;
// Looked for by one takeover. Each removes that of the one before it, if there is nothing in it.
constexpr int kEmptySegmentsMax = 64;

// Of positions [from, to).
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

Status LostAppend(const std::string& path, int64_t length, const std::string& why) {
  return DataLossError(path + ": its first " + std::to_string(length) +
                       " bytes were acknowledged, and not all of them are there (" + why +
                       "); did the disk lose what it had flushed?");
}

// What one inode says about the length after a power loss. An append writes its slot over the one
// before the last, when the last was acknowledged: so of two slots the older one's append was, and
// the newer one begins where that ended. A slot alone that does not begin where the segment does
// has lost its predecessor to an append that was taken back, or its own was never acknowledged and
// its predecessor is lost.
Result<int64_t> DurableLength(const Segment& segment, const std::string& path) {
  TAILCAST_ASSIGN_OR_RETURN(const std::string page, ReadFirstPage(*segment.file, path));
  const std::vector<Slot> slots = SlotsOf(page, segment.header);
  const int64_t start = segment.header.start;
  if (slots.size() == 2 && slots[0].range_start != slots[1].length) {
    return LostAppend(path, slots[0].range_start, "the slot of an append between two is lost");
  }
  for (const Slot& slot : slots) {
    if (kNoRangeChecksum.planted()) return slot.length;
    TAILCAST_ASSIGN_OR_RETURN(const uint32_t crc,
                              ChecksumOf(segment, slot.range_start, slot.length));
    if (crc == slot.range_crc) return slot.length;
  }
  if (slots.empty()) return start;
  const int64_t acknowledged = slots.size() == 2 ? slots[1].length : slots[0].range_start;
  if (acknowledged > start) {
    return LostAppend(path, acknowledged, "the bytes of its slots do not match their checksums");
  }
  return start;
}

}  // namespace

Result<CommitWord> Recover(const Context& c, const FirstInode& file, const Segments& segments) {
  const std::string path = Join(file.folder, file.name);
  const Segment& newest = segments.by_epoch.back();
  const bool unflushed =
      std::any_of(segments.by_epoch.begin(), segments.by_epoch.end(),
                  [](const Segment& segment) { return segment.header.unflushed; });
  if (unflushed) {
    const bool same_boot = file.page->Load(kBootTagOffset) == c.ops->BootTag();
    const CommitWord word = LoadWord(*file.page);
    if (same_boot && word.epoch >= newest.header.epoch) return word;
    return DataLossError(path +
                         ": it was written without flushes (durability page-cache) and the " +
                         (same_boot ? "disk was attached anew" : "machine has restarted") +
                         " since; its content is not known, delete it");
  }
  CommitWord word{newest.header.epoch, 0};
  TAILCAST_ASSIGN_OR_RETURN(word.length, DurableLength(newest, path));
  if (kSlotsOfAnySegment.planted()) {
    for (const Segment& segment : segments.by_epoch) {
      TAILCAST_ASSIGN_OR_RETURN(const int64_t length, DurableLength(segment, path));
      word.length = std::max(word.length, length);
    }
  }
  if (kTrustWord.planted()) word.length = LoadWord(*file.page).length;
  return word;
}

bool MustStartOver(bool booted_meanwhile) { return booted_meanwhile && !kNoBracket.planted(); }

CommitWord WordAfterRestart(CommitWord on_disk, bool sector_is_whole, CommitWord recovered) {
  return {std::max(recovered.epoch, sector_is_whole ? on_disk.epoch : Epoch::kNone),
          recovered.length};
}

Status CheckCovers(const FirstInode& file, CommitWord on_disk, CommitWord recovered) {
  if (on_disk.length <= recovered.length) return OkStatus();
  return LostAppend(Join(file.folder, file.name), on_disk.length,
                    "what can be recovered ends at " + std::to_string(recovered.length));
}

namespace {

// The word that a takeover after a restart of the machine starts from; nothing if somebody else
// recovered the file meanwhile. `raw`: the word as it was read before `tag`.
Result<std::optional<CommitWord>> RecoverWord(const Context& c, const FirstInode& first,
                                              uint64_t writer, uint64_t tag, uint64_t& raw) {
  SharedPage& page = *first.page;
  const CommitWord on_disk = Unpack(raw);
  TAILCAST_LOG_STEP(c, "RecoverReadWord", writer, LogWord(on_disk));
  // spec Fencing: RecoverReadSlots.
  const bool live_sector_is_whole = page.Load(kLiveMagicOffset) == kLiveMagic;
  TAILCAST_ASSIGN_OR_RETURN(const std::shared_ptr<Segments> segments,
                            ListSegments(c, first, nullptr));
  TAILCAST_ASSIGN_OR_RETURN(const CommitWord recovered, Recover(c, first, *segments));
  const CommitWord word = WordAfterRestart(on_disk, live_sector_is_whole, recovered);
  if (kWordReadLate.planted()) raw = page.Load(kWordOffset);
  // spec Fencing: RecoverBracket.
  TAILCAST_LOG_STEP(c, "RecoverReadSlots", writer, LogWord({Successor(word.epoch), word.length}));
  const bool booted_meanwhile = page.Load(kAttachTagOffset) != tag;
  TAILCAST_LOG_STEP(c, "RecoverBracket", writer, LogFlag("booted", booted_meanwhile));
  if (MustStartOver(booted_meanwhile) && !kWordReadLate.planted())
    return std::optional<CommitWord>();
  if (live_sector_is_whole) TAILCAST_RETURN_IF_ERROR(CheckCovers(first, on_disk, word));
  return std::optional<CommitWord>(word);
}

// Segments of openers before us that nobody appended to, as where each found no room behind its
// own: on a full disk they add up to what all others lack. Nothing in them is committed, nor ever
// will be; and ours is durable, so no recovery looks at their slots.
void RemoveEmptyBefore(const Context& c, const FirstInode& first, CommitWord word) {
  Epoch epoch = word.epoch;
  for (int looks = 0; looks < kEmptySegmentsMax; ++looks) {
    epoch = Epoch{Raw(epoch) - 1};
    if (epoch <= Epoch::kFirst) return;
    const std::string path =
        Join(first.folder, SegmentName(first.name, first.header.file_id, epoch));
    const Result<std::unique_ptr<OpsFile>> inode = c.ops->Open(path, false);
    if (!inode.ok() && IsNotFound(inode.status())) continue;  // there was no room for it, say
    if (!inode.ok()) return;
    const Result<Header> header = ReadHeader(**inode, path);
    if (!header.ok() || header->file_id != first.header.file_id || header->epoch != epoch ||
        header->start != word.length || !c.ops->Unlink(path).ok()) {
      return;
    }
  }
}

// The epoch is ours: makes its segment, where it appends. spec Fencing: CreateSegment,
// CreateSegmentSync.
Result<std::unique_ptr<Appender>> MakeSegment(const Context& c, FirstInode first, uint64_t writer,
                                              CommitWord word) {
  SharedPage& page = *first.page;
  Header header = first.header;
  header.epoch = word.epoch;
  header.start = word.length;
  header.unflushed = !c.durable();
  TAILCAST_ASSIGN_OR_RETURN(std::shared_ptr<OpsFile> file, MakeInode(c, first.folder, header));
  const std::string segment_path =
      Join(first.folder, SegmentName(first.name, header.file_id, word.epoch));
  const Status linked = c.ops->Link(*file, segment_path);
  if (IsAlreadyExists(linked)) {
    return DataLossError(segment_path + ": exists although its epoch was never used");
  }
  TAILCAST_RETURN_IF_ERROR(linked);
  TAILCAST_LOG_STEP(c, "CreateSegment", writer, "");
  if (!kSegmentNotDurable.planted()) {
    TAILCAST_RETURN_IF_ERROR(FlushFolder(c, first.folder));
  }
  TAILCAST_LOG_STEP(c, "CreateSegmentSync", writer, "");
  if (LoadWord(page).epoch != word.epoch) {
    // Fenced in turn; nothing was appended, so the segment that we leave behind is harmless.
    TAILCAST_LOG_STEP(c, "AppendRefused", writer, "");
    return AbortedError("open " + Join(first.folder, first.name) +
                        ": another opener took it over at the same time");
  }
  RemoveEmptyBefore(c, first, word);
  Segment segment{std::move(header), std::move(file)};
  first.file.reset();  // the mapping stays: one descriptor for each open file
  return std::make_unique<Appender>(&c, writer, std::move(first), std::move(segment), word);
}

}  // namespace

Result<std::unique_ptr<Appender>> OpenFencing(const Context& c, const std::string& folder,
                                              const std::string& name) {
  const std::string path = Join(folder, name);
  TAILCAST_ASSIGN_OR_RETURN(FirstInode first, OpenNamed(c, folder, name, true));
  TAILCAST_RETURN_IF_ERROR(EnsureFolder(c, folder));
  SharedPage& page = *first.page;
  const uint64_t writer = ++c.writers;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    // spec Fencing: RecoverReadWord. The raw word is what the swap expects; its fields count only
    // when the tag, read after it, is ours.
    uint64_t raw = page.Load(kWordOffset);
    const uint64_t tag = page.Load(kAttachTagOffset);
    const bool booted = tag == c.ops->AttachTag();
    if (page.lost()) return PageLost(first);
    CommitWord next = Unpack(raw);
    if (!booted) {
      TAILCAST_ASSIGN_OR_RETURN(const std::optional<CommitWord> recovered,
                                RecoverWord(c, first, writer, tag, raw));
      if (!recovered.has_value()) continue;
      next = *recovered;
    }
    next.epoch = Successor(next.epoch);
    if (next.epoch > kEpochMax) {
      return ResourceExhaustedError(path + ": was taken over " + std::to_string(Raw(kEpochMax)) +
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
      page.Store(kAttachTagOffset, c.ops->AttachTag());
      TAILCAST_LOG_STEP(c, "RecoverSetBoot", writer, "");
    }
    if (IsDeleted(page)) {
      TAILCAST_RETURN_IF_ERROR(FinishDelete(c, first));
      return NotFoundError("open " + path + ": it was deleted");
    }
    if (kSameInode.planted()) {
      TAILCAST_ASSIGN_OR_RETURN(auto segments, ListSegments(c, first, nullptr));
      const Segment last = segments->by_epoch.back();
      return std::make_unique<Appender>(&c, writer, std::move(first), last, next);
    }
    return MakeSegment(c, std::move(first), writer, next);
  }
  return LostRace("open " + path);
}

}  // namespace tailcast::storage::posix
