#include "tailcast/app/followed_path.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tailcast::app {
namespace {

constexpr int64_t kReadBytes = 1 << 20;
// Of one path: rotated files that somebody may still write to.
constexpr size_t kOpenMax = 16;
// A first start at the end is behind the last whole line of so many bytes.
constexpr int64_t kEndBytes = 64 << 10;

Status Waiting(const Status& why) { return {why.code(), why.message() + "; waiting for it"}; }

bool Is(const FileInfo& info, const FileKey& key) {
  return info.device == key.device && info.inode == key.inode;
}

}  // namespace

FollowedPath::FollowedPath(FileSystem& files, std::string path, Options options,
                           std::function<void(const std::string&)> say)
    : files_(files), path_(std::move(path)), options_(std::move(options)), say_(std::move(say)) {}

// --- Which files

Status FollowedPath::NoRegularFile(const std::string& path) {
  return InvalidArgumentError(path + " is no regular file; `tailcast produce` reads pipes");
}

Status FollowedPath::Begin(const std::vector<FilePlace>& known, MonotonicTime now) {
  const auto here = files_.Stat(path_);
  if (here.ok() && !here->regular) {
    return NoRegularFile(path_);
  }
  known_ = known;
  TryBegin(now);
  return OkStatus();
}

void FollowedPath::TryBegin(MonotonicTime now) {
  const Status found = FindKnown(now);
  begun_ = found.ok();
  if (begun_) return;
  open_.clear();
  Trouble(found);
}

// Opens what is known, and what came since. An error: what can't be read may be one of them, so
// nothing is read for now, and nothing has changed.
Status FollowedPath::FindKnown(MonotonicTime now) {
  const auto here = files_.Stat(path_);
  if (!here.ok() && !IsNotFound(here.status())) return Waiting(here.status());
  if (here.ok() && !here->regular) return InvalidArgumentError(path_ + " is no regular file");
  std::vector<FilePlace> lost;
  bool moved = false, has_current = false;
  int64_t oldest_ns = INT64_MAX;
  for (const FilePlace& place : known_) {
    TAILCAST_ASSIGN_OR_RETURN(auto open, Find(place, here.ok() && Is(*here, place.key), now));
    if (!open) {
      const bool copied = std::any_of(known_.begin(), known_.end(), [&](const FilePlace& other) {
        return other.key != place.key && other.offset == place.offset && other.mark == place.mark;
      });
      if (!copied) lost.push_back(place);
      continue;
    }
    has_current |= open->current;
    moved |= !open->current;
    if (!open->current) oldest_ns = std::min(oldest_ns, open->info.modified_ns);
    open_.push_back(std::move(*open));
  }
  if (moved) {
    TAILCAST_ASSIGN_OR_RETURN(auto found, FindNewer(oldest_ns, now));
    for (Open& newer : found) open_.push_back(std::move(newer));
  }
  std::optional<Open> fresh;
  if (here.ok() && !has_current) {
    TAILCAST_ASSIGN_OR_RETURN(fresh, OpenAt(path_, {}, now));
    fresh->current = true;
    if (known_.empty() && options_.from_end) TAILCAST_RETURN_IF_ERROR(GoToEnd(*fresh));
  }
  // Of those that were read to their end some are deleted in time; the last one had more.
  for (const FilePlace& place : lost) {
    const bool is_here = here.ok() && Is(*here, place.key);
    if (is_here || open_.empty() || place.seen > place.offset) {
      SayLost(place, is_here ? "was truncated or replaced" : "is gone");
    }
    if (!open_.empty()) Close(place.key);
  }
  // In the order in which they were written.
  std::stable_sort(open_.begin(), open_.end(), [](const Open& a, const Open& b) {
    return a.current != b.current ? b.current : a.info.modified_ns < b.info.modified_ns;
  });
  if (fresh) open_.push_back(std::move(*fresh));
  trouble_.clear();
  if (!here.ok()) Trouble(Waiting(here.status()));
  return OkStatus();
}

// Behind its last whole line.
Status FollowedPath::GoToEnd(Open& open) {
  const int64_t from = std::max<int64_t>(0, open.info.size - kEndBytes);
  TAILCAST_ASSIGN_OR_RETURN(const std::string tail, open.file->Read(from, open.info.size - from));
  const size_t newline = tail.rfind('\n');
  const size_t whole = newline != std::string::npos ? newline + 1 : from == 0 ? 0 : tail.size();
  open.place.offset = from + static_cast<int64_t>(whole);
  open.place.mark = FileMark::Of(open.place.offset, std::string_view(tail).substr(0, whole));
  return OkStatus();
}

// A file of which is known where it stood: `here`, if that inode has the path now. nullopt: it is
// not to be found.
Result<std::optional<FollowedPath::Open>> FollowedPath::Find(const FilePlace& place, bool here,
                                                             MonotonicTime now) {
  const auto is_it = [&](Open& open) -> Result<bool> {
    if (!Is(open.info, place.key) || open.info.size < place.offset) return false;
    TAILCAST_ASSIGN_OR_RETURN(const bool marked, IsMarked(*open.file, place));
    if (marked) Remark(open);
    return marked;
  };
  if (here) {
    TAILCAST_ASSIGN_OR_RETURN(Open open, OpenAt(path_, place, now));
    TAILCAST_ASSIGN_OR_RETURN(const bool is, is_it(open));
    if (is) {
      open.current = true;
      return std::optional<Open>(std::move(open));
    }
  } else {
    TAILCAST_ASSIGN_OR_RETURN(const auto rotated, Rotated());
    for (const std::string& path : rotated) {
      const auto info = files_.Stat(path);
      if (!info.ok() || !info->regular || !Is(*info, place.key)) continue;
      if (info->size < place.offset) continue;  // another one has its inode
      auto open = OpenAt(path, place, now);
      if (!open.ok() && IsNotFound(open.status())) continue;
      if (!open.ok()) return open.status();
      TAILCAST_ASSIGN_OR_RETURN(const bool is, is_it(*open));
      if (is) return std::optional<Open>(std::move(*open));
    }
  }
  return FindCopy(place, now);
}

// The stream says that it was read further than its mark: that moves there.
void FollowedPath::Remark(Open& open) {
  const int64_t bytes = std::min(open.place.offset, FileMark::kBytesMax);
  const auto read = open.file->Read(open.place.offset - bytes, bytes);
  if (read.ok() && static_cast<int64_t>(read->size()) == bytes && bytes > 0) {
    open.place.mark = FileMark::Of(open.place.offset, *read);
  }
}

Result<FollowedPath::Open> FollowedPath::OpenAt(const std::string& path, FilePlace place,
                                                MonotonicTime now) {
  TAILCAST_ASSIGN_OR_RETURN(auto file, files_.Open(path));
  TAILCAST_ASSIGN_OR_RETURN(const FileInfo info, file->Info());
  if (!info.regular) return InvalidArgumentError(path + " is no regular file");
  place.key = {path_, info.device, info.inode};
  place.seen = info.size;
  Open open;
  open.file = std::move(file);
  open.place = std::move(place);
  open.info = info;
  open.quiet_since = now;
  return open;
}

// The file that has the bytes of this one up to its place, under another name: its copy. An error:
// there is none but perhaps one whose bytes can't be read.
Result<std::optional<FollowedPath::Open>> FollowedPath::FindCopy(const FilePlace& place,
                                                                 MonotonicTime now) {
  std::optional<Open> best;
  if (place.mark.bytes == 0) return best;
  TAILCAST_ASSIGN_OR_RETURN(const auto rotated, Rotated());
  Status unread, closed;
  for (const std::string& path : rotated) {
    const auto info = files_.Stat(path);
    if (!info.ok() || !info->regular || info->size < place.offset) continue;
    const auto knows = Knows(path, *info);
    if (!knows.ok()) unread = knows.status();
    if (!knows.ok() || *knows) continue;
    auto open = OpenAt(path, place, now);
    if (!open.ok()) {
      if (!IsNotFound(open.status())) closed = open.status();
      continue;
    }
    const auto marked = IsMarked(*open->file, place);
    if (!marked.ok()) unread = marked.status();
    if (!marked.ok() || !*marked) continue;
    if (!best || open->info.modified_ns > best->info.modified_ns) best = std::move(*open);
  }
  if (best) {
    Remark(*best);
    return best;
  }
  if (!unread.ok()) return unread;
  if (!closed.ok() && std::exchange(copy_trouble_, closed.message()) != closed.message()) {
    say_(closed.message());
  }
  return best;
}

// Files beside it that were written to later, and that nobody has seen.
Result<std::vector<FollowedPath::Open>> FollowedPath::FindNewer(int64_t than_ns,
                                                                MonotonicTime now) {
  std::vector<Open> found;
  const auto here = files_.Stat(path_);
  TAILCAST_ASSIGN_OR_RETURN(const auto rotated, Rotated());
  for (const std::string& path : rotated) {
    const auto info = files_.Stat(path);
    if (!info.ok() || !info->regular || info->modified_ns < than_ns) continue;
    if (here.ok() && here->device == info->device && here->inode == info->inode) continue;
    TAILCAST_ASSIGN_OR_RETURN(const bool knows, Knows(path, *info));
    if (knows) continue;
    auto open = OpenAt(path, {}, now);
    if (!open.ok() && IsNotFound(open.status())) continue;
    if (!open.ok()) return open.status();
    found.push_back(std::move(*open));
  }
  std::sort(found.begin(), found.end(),
            [](const Open& a, const Open& b) { return a.info.modified_ns < b.info.modified_ns; });
  return found;
}

// Whether the file there is open, or stood somewhere at the start. The inode of one that is gone
// may be another file's by now.
Result<bool> FollowedPath::Knows(const std::string& path, const FileInfo& info) const {
  if (std::any_of(open_.begin(), open_.end(),
                  [&](const Open& open) { return Is(info, open.place.key); })) {
    return true;
  }
  for (const FilePlace& place : known_) {
    if (!Is(info, place.key) || info.size < place.offset) continue;
    const auto file = files_.Open(path);
    if (!file.ok()) return true;
    TAILCAST_ASSIGN_OR_RETURN(const bool marked, IsMarked(**file, place));
    if (marked) return true;
  }
  return false;
}

Result<std::vector<std::string>> FollowedPath::Rotated() const {
  auto rotated = files_.Rotated(path_);
  if (rotated.ok()) {
    std::erase_if(*rotated, [this](const std::string& p) { return options_.others.contains(p); });
  }
  return rotated;
}

void FollowedPath::Close(const FileKey& key) {
  closed_.push_back(key);
  std::erase_if(known_, [&](const FilePlace& place) { return place.key == key; });
}

Result<bool> FollowedPath::IsMarked(OpenedFile& file, const FilePlace& place) {
  const FileMark& mark = place.mark;
  if (mark.bytes == 0) return true;
  TAILCAST_ASSIGN_OR_RETURN(const std::string bytes, file.Read(mark.begin(), mark.bytes));
  return FileMark::Of(mark.end, bytes) == mark;
}

FollowedPath::Open* FollowedPath::Current() {
  return !open_.empty() && open_.back().current ? &open_.back() : nullptr;
}

// --- Changes

void FollowedPath::Look(MonotonicTime now) {
  if (!begun_) {
    TryBegin(now);
    return;
  }
  const auto here = files_.Stat(path_);
  Open* current = Current();
  if (!here.ok()) {
    if (current != nullptr && IsNotFound(here.status())) {
      current->current = false;
      current->quiet_since = now;
    }
    Trouble(Waiting(here.status()));
  } else if (!here->regular) {
    Trouble(InvalidArgumentError(path_ + " is no regular file"));
  } else if (current == nullptr || !Is(*here, current->place.key)) {
    if (const Status rotated = Rotate(now); rotated.ok()) {
      trouble_.clear();
    } else {
      Trouble(rotated);
    }
  } else {
    trouble_.clear();
  }
  CloseOld(now);
}

// Another file has the path.
Status FollowedPath::Rotate(MonotonicTime now) {
  TAILCAST_ASSIGN_OR_RETURN(Open next, OpenAt(path_, {}, now));
  if (Open* current = Current()) {
    if (Is(next.info, current->place.key)) return OkStatus();  // it is back
    current->current = false;
    current->quiet_since = now;
  }
  // It was lost sight of before.
  for (const FilePlace& place : known_) {
    if (!Is(next.info, place.key) || next.info.size < place.offset) continue;
    TAILCAST_ASSIGN_OR_RETURN(const bool marked, IsMarked(*next.file, place));
    if (marked) next.place = place;
  }
  const auto again = std::find_if(open_.begin(), open_.end(),
                                  [&](const Open& open) { return Is(next.info, open.place.key); });
  if (again != open_.end()) {
    next = std::move(*again);
    open_.erase(again);
  } else if (!open_.empty()) {
    // Others may have had the path in between.
    TAILCAST_ASSIGN_OR_RETURN(const FileInfo info, open_.back().file->Info());
    TAILCAST_ASSIGN_OR_RETURN(auto found, FindNewer(info.modified_ns, now));
    for (Open& newer : found) {
      if (!Is(newer.info, next.place.key)) open_.push_back(std::move(newer));
    }
  }
  next.current = true;
  open_.push_back(std::move(next));
  return OkStatus();
}

Status FollowedPath::OnTruncated(const FileKey& key, MonotonicTime now) {
  const auto at = std::find_if(open_.begin(), open_.end(),
                               [&](const Open& open) { return open.place.key == key; });
  const FilePlace before = at->place;
  TAILCAST_ASSIGN_OR_RETURN(auto copy, FindCopy(before, now));
  std::vector<Open> found;
  if (copy) {
    TAILCAST_ASSIGN_OR_RETURN(found, FindNewer(copy->info.modified_ns, now));
    std::erase_if(found, [&](const Open& open) { return Is(copy->info, open.place.key); });
    found.insert(found.begin(), std::move(*copy));
  } else {
    SayLost(before, "was truncated, and there is no copy of it beside it");
  }
  at->place = FilePlace();
  at->place.key = key;
  at->checked = false;
  at->unfinished = 0;
  open_.insert(at, std::move_iterator(found.begin()), std::move_iterator(found.end()));
  return OkStatus();
}

void FollowedPath::CloseOld(MonotonicTime now) {
  const auto done = [&](const Open& open) {
    return !open.current && open.place.offset == open.info.size &&
           ((!open.info.linked && now - open.quiet_since >= options_.rotated_wait) ||
            open_.size() > kOpenMax);
  };
  for (auto at = open_.begin(); at != open_.end();) {
    if (!done(*at) || HasChanged(*at)) {
      ++at;
      continue;
    }
    Close(FileKey(at->place.key));
    at = open_.erase(at);
  }
}

// Since it was looked at last.
bool FollowedPath::HasChanged(Open& open) {
  const auto info = open.file->Info();
  return !info.ok() || info->size != open.info.size || info->modified_ns != open.info.modified_ns;
}

// --- Bytes

FollowedPath::State FollowedPath::Check(Open& open, MonotonicTime now) {
  const auto info = open.file->Info();
  if (!info.ok()) {
    ReadTrouble(info.status().message());
    return State::kUnreadable;
  }
  if (info->size != open.info.size) open.quiet_since = now;
  if (info->size != open.info.size || info->modified_ns != open.info.modified_ns) {
    open.checked = false;
  }
  open.info = *info;
  if (open.checked) return State::kReadable;
  if (info->size >= open.place.offset) {
    const auto marked = IsMarked(*open.file, open.place);
    if (!marked.ok()) {
      ReadTrouble(marked.status().message());
      return State::kUnreadable;
    }
    if (*marked) {
      open.place.seen = info->size;
      open.checked = true;
      return State::kReadable;
    }
  }
  if (const Status anew = OnTruncated(FileKey(open.place.key), now); !anew.ok()) {
    ReadTrouble(anew.message());
    return State::kUnreadable;
  }
  return State::kTruncated;
}

std::optional<FollowedPath::Piece> FollowedPath::Read(MonotonicTime now) {
  unreadable_ = false;
  for (size_t i = 0; i < open_.size();) {
    const State state = Check(open_[i], now);
    if (state == State::kTruncated) continue;
    if (state == State::kReadable) {
      if (auto piece = ReadOf(open_[i], now)) return piece;
    }
    ++i;
  }
  if (!unreadable_) read_trouble_.clear();
  return std::nullopt;
}

std::optional<FollowedPath::Piece> FollowedPath::ReadOf(Open& open, MonotonicTime now) {
  FilePlace& place = open.place;
  const int64_t there = open.info.size - place.offset;
  open.unfinished = there;
  if (there <= 0) return std::nullopt;
  // With what the next mark is made of before it.
  const int64_t before = std::min(place.offset, FileMark::kBytesMax);
  std::string bytes;
  size_t whole = std::string::npos;
  for (const int64_t most : {kReadBytes, options_.message_bytes_max}) {
    const int64_t wanted = std::min(there, std::min(most, options_.message_bytes_max));
    auto read = open.file->Read(place.offset - before, before + wanted);
    if (!read.ok()) {
      ReadTrouble(read.status().message());
      return std::nullopt;
    }
    bytes = std::move(*read);
    open.checked = static_cast<int64_t>(bytes.size()) > before &&
                   (place.mark.end != place.offset ||
                    FileMark::Of(place.offset, std::string_view(bytes).substr(
                                                   0, static_cast<size_t>(before))) == place.mark);
    if (!open.checked) return std::nullopt;  // truncated meanwhile
    whole = bytes.rfind('\n');
    if (whole != std::string::npos && static_cast<int64_t>(whole) >= before) break;
    whole = std::string::npos;
    if (wanted == there) break;
  }
  const auto got = static_cast<int64_t>(bytes.size()) - before;
  if (whole != std::string::npos) {
    ++whole;
  } else if (got == options_.message_bytes_max) {
    say_(path_ + ": a line of more than " + std::to_string(got) +
         " bytes is cut (--message-bytes-max)");
    whole = bytes.size();
  } else if (!open.current && got == there && now - open.quiet_since >= options_.rotated_wait) {
    whole = bytes.size();
  } else {
    return std::nullopt;
  }
  Piece piece;
  piece.from = place;
  if (place.offset == 0) {
    // So that its copy is found should none of this come to be.
    const size_t head = std::min(whole, static_cast<size_t>(FileMark::kBytesMax));
    piece.from.mark =
        FileMark::Of(static_cast<int64_t>(head), std::string_view(bytes).substr(0, head));
  }
  place.offset += static_cast<int64_t>(whole) - before;
  place.mark = FileMark::Of(place.offset, std::string_view(bytes).substr(0, whole));
  open.unfinished = open.info.size - place.offset;
  piece.to = place;
  piece.bytes = bytes.substr(static_cast<size_t>(before), whole - static_cast<size_t>(before));
  return piece;
}

bool FollowedPath::Enter(TailLedger& ledger, const std::optional<Piece>& piece) {
  for (const FileKey& key : std::exchange(closed_, {})) ledger.Forget(key);
  bool keep = false;
  // First where a copy stands, then what its original has behind it.
  for (const Open& open : open_) {
    // Of an old file of which nothing was read there is nothing to know it by: its inode may be
    // another one's when it is gone.
    if (!open.current && open.place.mark.bytes == 0) continue;
    if (!piece || open.place.key != piece->from.key) keep |= ledger.Observe(open.place);
  }
  if (piece) keep |= ledger.Add(piece->from, piece->to);
  return keep;
}

// --- What others ask

std::vector<FilePlace> FollowedPath::Places() const {
  std::vector<FilePlace> places;
  for (const Open& open : open_) places.push_back(open.place);
  return places;
}

bool FollowedPath::idle() const {
  return (trouble_.empty() || not_there_) && read_trouble_.empty() &&
         std::all_of(open_.begin(), open_.end(),
                     [](const Open& open) { return open.current || open.unfinished == 0; });
}

int64_t FollowedPath::unfinished_bytes() const {
  return !open_.empty() && open_.back().current ? open_.back().unfinished : 0;
}

std::optional<bool> FollowedPath::EndsWith(FileSystem& files, const FilePlace& place,
                                           std::string_view message) {
  std::vector<std::string> paths = {place.key.path};
  if (const auto rotated = files.Rotated(place.key.path); rotated.ok()) {
    paths.insert(paths.end(), rotated->begin(), rotated->end());
  }
  for (const std::string& path : paths) {
    const auto info = files.Stat(path);
    if (!info.ok() || !Is(*info, place.key)) continue;
    const auto file = files.Open(path);
    if (!file.ok() || info->size < place.mark.end) continue;
    const auto marked = IsMarked(**file, place);
    if (!marked.ok() || !*marked) continue;
    const auto bytes = static_cast<int64_t>(message.size());
    if (place.offset < bytes) return false;
    const auto read = (*file)->Read(place.offset - bytes, bytes);
    if (read.ok()) return *read == message;
  }
  return std::nullopt;
}

void FollowedPath::Trouble(const Status& why) {
  not_there_ = IsNotFound(why);
  if (std::exchange(trouble_, why.message()) != why.message()) say_(why.message());
}

void FollowedPath::ReadTrouble(const std::string& text) {
  if (std::exchange(unreadable_, true)) return;  // one at a time
  if (std::exchange(read_trouble_, text) != text) say_(text);
}

void FollowedPath::SayLost(const FilePlace& place, const std::string& why) {
  const int64_t lost = place.seen - place.offset;
  say_(path_ + " (inode " + std::to_string(place.key.inode) + ") " + why + ": " +
       (lost > 0
            ? std::to_string(lost) + " bytes of it from byte " + std::to_string(place.offset) +
                  " on are lost, and what was written since"
            : "all that was seen of it was published, up to byte " + std::to_string(place.offset)));
}

}  // namespace tailcast::app
