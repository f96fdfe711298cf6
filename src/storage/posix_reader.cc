#include "tailcast/storage/posix_reader.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/strong.h"
#include "tailcast/storage/posix_names.h"
#include "tailcast/storage/posix_recovery.h"

namespace tailcast::storage::posix {
namespace {
constexpr int64_t kReadBytesMax = 8 << 20;  // of one Read; the caller asks again
}  // namespace

Reader::Reader(const Context* context, FirstInode file)
    : context_(context), file_(std::move(file)) {}
Reader::~Reader() = default;

bool Reader::FastSize(FileSize& size) const {
  // The tag first: once it is ours, the word counts.
  if (!file_.page->resident() || !WordCounts(*context_, *file_.page)) return false;
  const CommitWord word = LoadWord(*file_.page);
  size = {word.length, word.epoch};
  return !file_.page->lost();
}

Result<Reader::View> Reader::Look(bool want_segments) {
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    Known known;
    {
      std::lock_guard lock(mutex_);
      known = known_;
    }
    // The tag first: once it is ours, the word counts.
    const uint64_t tag = file_.page->Load(kAttachTagOffset);
    if (tag == context_->ops->AttachTag()) {
      Result<View> view = LookAtWord(known, want_segments);
      if (file_.page->lost()) return PageLost(file_);
      return view;
    }
    if (file_.page->lost()) return PageLost(file_);
    TAILCAST_ASSIGN_OR_RETURN(std::optional<View> view, LookAtSlots(known, tag, want_segments));
    if (view.has_value()) return *std::move(view);
  }
  return LostRace("read " + Join(file_.folder, file_.name));
}

// spec Fencing: ReadWord.
Result<Reader::View> Reader::LookAtWord(const Known& known, bool want_segments) {
  const Context& c = *context_;
  View view;
  view.committed = LoadWord(*file_.page);
  if (!want_segments) return view;
  TAILCAST_LOG_STEP(c, "ReadWord", 0, LogFlag("booted", true) + "," + LogWord(view.committed));
  if (known.segments != nullptr && known.segments->CompleteFor(view.committed)) {
    view.segments = known.segments;
    return view;
  }
  TAILCAST_ASSIGN_OR_RETURN(std::shared_ptr<Segments> fresh,
                            ListSegments(c, file_, known.segments.get()));
  fresh->MarkListedAt(view.committed);
  view.segments = fresh;
  std::lock_guard lock(mutex_);
  known_.segments = std::move(fresh);
  return view;
}

// spec Fencing: ReadWord, ReadSlots, ReadBracket. This is another attachment than the word's, and
// nobody has opened the file for append in it. As long as the tag stays, nobody appends, and what
// we once computed holds.
Result<std::optional<Reader::View>> Reader::LookAtSlots(const Known& known, uint64_t tag,
                                                        bool want_segments) {
  const Context& c = *context_;
  if (want_segments) TAILCAST_LOG_STEP(c, "ReadWord", 0, LogFlag("booted", false));
  if (known.old_tag == tag && known.old_view.segments != nullptr) {
    if (want_segments) LogOldView(known.old_view.committed.length, false);
    return std::optional<View>(known.old_view);
  }
  View view;
  const bool live_sector_is_whole = file_.page->Load(kLiveMagicOffset) == kLiveMagic;
  const CommitWord on_disk = LoadWord(*file_.page);
  TAILCAST_ASSIGN_OR_RETURN(std::shared_ptr<Segments> fresh,
                            ListSegments(c, file_, known.segments.get()));
  TAILCAST_ASSIGN_OR_RETURN(view.committed, Recover(c, file_, *fresh));
  const bool booted = file_.page->Load(kAttachTagOffset) != tag;
  if (want_segments) LogOldView(view.committed.length, booted);
  if (MustStartOver(booted)) return std::optional<View>();
  if (live_sector_is_whole) {
    TAILCAST_RETURN_IF_ERROR(CheckCovers(file_, on_disk, view.committed));
  }
  view.segments = std::move(fresh);
  std::lock_guard lock(mutex_);
  known_.old_tag = tag;
  known_.old_view = view;
  return std::optional<View>(std::move(view));
}

void Reader::LogOldView(int64_t length, bool booted) const {
  TAILCAST_LOG_STEP(*context_, "ReadSlots", 0, "\"length\":" + std::to_string(length));
  TAILCAST_LOG_STEP(*context_, "ReadBracket", 0, LogFlag("booted", booted));
}

Status Reader::Missing(int64_t position, int64_t committed, const Segment& segment) const {
  return DataLossError("read " + Join(file_.folder, file_.name) + ": position " +
                       std::to_string(position) + " of " + std::to_string(committed) +
                       " committed bytes is missing from " +
                       SegmentName(file_.name, file_.header.file_id, segment.header.epoch) +
                       "; was the file cut by another program?");
}

Status Reader::CheckWhole() {
  // The tag first, then the word, then the list: as a look.
  if (!WordCounts(*context_, *file_.page)) {
    return file_.page->lost() ? PageLost(file_) : OkStatus();
  }
  const CommitWord word = LoadWord(*file_.page);
  TAILCAST_ASSIGN_OR_RETURN(std::shared_ptr<Segments> segments,
                            ListSegments(*context_, file_, nullptr));
  if (file_.page->lost()) return PageLost(file_);
  segments->MarkListedAt(word);
  for (int64_t offset = 0; offset < word.length;) {
    const auto [index, stop] = PieceAt(*segments, offset, word.length);
    const Segment& segment = segments->by_epoch[index];
    const int64_t shift = kDataOffset - segment.header.start;
    TAILCAST_ASSIGN_OR_RETURN(const int64_t end, segment.file->WrittenEnd(shift + offset));
    if (end < shift + stop) return Missing(end - shift, word.length, segment);
    offset = stop;
  }
  std::lock_guard lock(mutex_);
  known_.segments = std::move(segments);
  return OkStatus();
}

Result<FileSize> Reader::Size() {
  TAILCAST_ASSIGN_OR_RETURN(const View view, Look(false));
  return FileSize{view.committed.length, view.committed.epoch};
}

Result<FileSize> Reader::CheckedSize() {
  TAILCAST_RETURN_IF_ERROR(CheckWhole());
  return Size();
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
  bool logged = false;  // the model's reader shows one piece for each look
  while (offset < end) {
    const auto [index, stop] = PieceAt(*view.segments, offset, end);
    const Segment& segment = view.segments->by_epoch[index];
    TAILCAST_ASSIGN_OR_RETURN(
        std::string piece,
        segment.file->ReadAt(kDataOffset + offset - segment.header.start, stop - offset));
    const auto got = static_cast<int64_t>(piece.size());
    if (bytes.empty()) {
      bytes = std::move(piece);  // nearly always all of it
    } else {
      bytes += piece;
    }
    if (got < stop - offset) return Missing(offset + got, committed, segment);
    if (!logged) {
      logged = true;
      TAILCAST_LOG_STEP(*context_, "ReadShow", 0,
                        LogRange(offset, stop - offset) +
                            ",\"epoch\":" + std::to_string(Raw(segment.header.epoch)));
    }
    offset = stop;
  }
  return bytes;
}

Result<std::unique_ptr<Reader>> OpenRead(const Context& context, const std::string& folder,
                                         const std::string& name) {
  TAILCAST_ASSIGN_OR_RETURN(FirstInode first, OpenNamed(context, folder, name, false));
  return std::make_unique<Reader>(&context, std::move(first));
}

}  // namespace tailcast::storage::posix
