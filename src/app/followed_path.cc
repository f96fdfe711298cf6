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

std::string Waiting(const Status& why) { return why.message() + "; waiting for it"; }

bool Is(const FileInfo& info, const FileKey& key) {
  return info.device == key.device && info.inode == key.inode;
}

}  // namespace

FollowedPath::FollowedPath(FileSystem& files, std::string path, Options options,
                           std::function<void(const std::string&)> say)
    : files_(files), path_(std::move(path)), options_(std::move(options)), say_(std::move(say)) {}

// --- Which files

Status FollowedPath::Begin(const std::vector<FilePlace>& known, MonotonicTime now) {
  const auto here = files_.Stat(path_);
  if (here.ok() && !here->regular) {
    return InvalidArgumentError(path_ + " is no regular file; `tailcast produce` reads pipes");
  }
  known_ = known;
  if (!here.ok() && !IsNotFound(here.status())) {
    Trouble(Waiting(here.status()));
    return OkStatus();
  }
  std::vector<FilePlace> lost;
  bool moved = false;
  int64_t oldest_ns = INT64_MAX;
  for (const FilePlace& place : known) {
    const bool is_here = here.ok() && Is(*here, place.key);
    if (is_here && !OpenAt(path_, place, now)) continue;  // it is there, and can't be read now
    auto open = Find(place, is_here, now);
    if (!open) {
      const bool copied = std::any_of(known.begin(), known.end(), [&](const FilePlace& other) {
        return other.key != place.key && other.offset == place.offset && other.mark == place.mark;
      });
      if (!copied) lost.push_back(place);
      continue;
    }
    moved |= !open->current;
    if (!open->current) oldest_ns = std::min(oldest_ns, open->info.modified_ns);
    open_.push_back(std::move(*open));
  }
  if (moved) {
    for (Open& newer : FindNewer(oldest_ns, now)) open_.push_back(std::move(newer));
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
  if (!here.ok()) Trouble(Waiting(here.status()));
  if (Current() != nullptr || !here.ok()) return OkStatus();
  auto open = OpenAt(path_, {}, now);
  if (!open) return OkStatus();
  open->current = true;
  if (known.empty() && options_.from_end) {
    const int64_t from = std::max<int64_t>(0, open->info.size - kEndBytes);
    const auto tail = open->file->Read(from, open->info.size - from);
    if (tail.ok()) {
      const size_t newline = tail->rfind('\n');
      const size_t whole = newline != std::string::npos ? newline + 1
                           : from == 0                  ? 0
                                                        : tail->size();
      open->place.offset = from + static_cast<int64_t>(whole);
      open->place.mark = FileMark::Of(open->place.offset, std::string_view(*tail).substr(0, whole));
    }
  }
  open_.push_back(std::move(*open));
  return OkStatus();
}

// A file of which is known where it stood: `here`, if that inode has the path now. nullopt: it is
// not to be found.
std::optional<FollowedPath::Open> FollowedPath::Find(const FilePlace& place, bool here,
                                                     MonotonicTime now) {
  if (here) {
    auto open = OpenAt(path_, place, now);
    if (open && open->info.size >= place.offset && IsMarked(*open->file, place)) {
      open->current = true;
      Remark(*open);
      return open;
    }
  } else if (const auto rotated = Rotated(); rotated.ok()) {
    for (const std::string& path : *rotated) {
      const auto info = files_.Stat(path);
      if (!info.ok() || !Is(*info, place.key) || info->size < place.offset) continue;
      auto open = OpenAt(path, place, now);
      if (!open || !IsMarked(*open->file, place)) continue;
      Remark(*open);
      return open;
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

std::optional<FollowedPath::Open> FollowedPath::OpenAt(const std::string& path, FilePlace place,
                                                       MonotonicTime now) {
  auto file = files_.Open(path);
  if (!file.ok()) {
    Trouble(file.status().message());
    return std::nullopt;
  }
  const auto info = (*file)->Info();
  if (!info.ok() || !info->regular) {
    Trouble(info.ok() ? path + " is no regular file" : info.status().message());
    return std::nullopt;
  }
  place.key = {path_, info->device, info->inode};
  place.seen = info->size;
  Open open;
  open.file = std::move(*file);
  open.place = std::move(place);
  open.info = *info;
  open.quiet_since = now;
  return open;
}

// The file that has the bytes of this one up to its place, under another name: its copy.
std::optional<FollowedPath::Open> FollowedPath::FindCopy(const FilePlace& place,
                                                         MonotonicTime now) {
  if (place.mark.bytes == 0) return std::nullopt;
  const auto rotated = Rotated();
  std::optional<Open> best;
  for (const std::string& path : rotated.ok() ? *rotated : std::vector<std::string>()) {
    const auto info = files_.Stat(path);
    if (!info.ok() || !info->regular || Knows(path, *info) || info->size < place.offset) continue;
    auto open = OpenAt(path, place, now);
    if (!open || !IsMarked(*open->file, place)) continue;
    if (!best || open->info.modified_ns > best->info.modified_ns) best = std::move(open);
  }
  if (best) Remark(*best);
  return best;
}

// Files beside it that were written to later, and that nobody has seen.
std::vector<FollowedPath::Open> FollowedPath::FindNewer(int64_t than_ns, MonotonicTime now) {
  std::vector<Open> found;
  const auto here = files_.Stat(path_);
  const auto rotated = Rotated();
  for (const std::string& path : rotated.ok() ? *rotated : std::vector<std::string>()) {
    const auto info = files_.Stat(path);
    if (!info.ok() || !info->regular || info->modified_ns < than_ns || Knows(path, *info)) continue;
    if (here.ok() && here->device == info->device && here->inode == info->inode) continue;
    if (auto open = OpenAt(path, {}, now)) found.push_back(std::move(*open));
  }
  std::sort(found.begin(), found.end(),
            [](const Open& a, const Open& b) { return a.info.modified_ns < b.info.modified_ns; });
  return found;
}

// Whether the file there is open, or stood somewhere at the start. The inode of one that is gone
// may be another file's by now.
bool FollowedPath::Knows(const std::string& path, const FileInfo& info) const {
  if (std::any_of(open_.begin(), open_.end(),
                  [&](const Open& open) { return Is(info, open.place.key); })) {
    return true;
  }
  return std::any_of(known_.begin(), known_.end(), [&](const FilePlace& place) {
    if (!Is(info, place.key) || info.size < place.offset) return false;
    const auto file = files_.Open(path);
    return !file.ok() || IsMarked(**file, place);
  });
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

bool FollowedPath::IsMarked(OpenedFile& file, const FilePlace& place) {
  const FileMark& mark = place.mark;
  if (mark.bytes == 0) return true;
  const auto bytes = file.Read(mark.begin(), mark.bytes);
  return bytes.ok() && FileMark::Of(mark.end, *bytes) == mark;
}

FollowedPath::Open* FollowedPath::Current() {
  return !open_.empty() && open_.back().current ? &open_.back() : nullptr;
}

// --- Changes

void FollowedPath::Look(MonotonicTime now) {
  const auto here = files_.Stat(path_);
  Open* current = Current();
  if (!here.ok()) {
    if (current != nullptr && IsNotFound(here.status())) {
      current->current = false;
      current->quiet_since = now;
    }
    Trouble(Waiting(here.status()));
  } else if (!here->regular) {
    Trouble(path_ + " is no regular file");
  } else if (current == nullptr || !Is(*here, current->place.key)) {
    Rotate(now);
  } else {
    trouble_.clear();
  }
  CloseOld(now);
}

// Another file has the path.
void FollowedPath::Rotate(MonotonicTime now) {
  auto next = OpenAt(path_, {}, now);
  if (!next) return;
  trouble_.clear();
  if (Open* current = Current()) {
    if (Is(next->info, current->place.key)) return;  // it is back
    current->current = false;
    current->quiet_since = now;
  }
  // It could not be opened before.
  for (const FilePlace& place : known_) {
    if (Is(next->info, place.key) && next->info.size >= place.offset &&
        IsMarked(*next->file, place)) {
      next->place = place;
    }
  }
  const auto again = std::find_if(open_.begin(), open_.end(),
                                  [&](const Open& open) { return Is(next->info, open.place.key); });
  if (again != open_.end()) {
    next = std::move(*again);
    open_.erase(again);
  } else if (!open_.empty()) {
    // Others may have had the path in between.
    if (const auto info = open_.back().file->Info(); info.ok()) {
      for (Open& newer : FindNewer(info->modified_ns, now)) {
        if (!Is(newer.info, next->place.key)) open_.push_back(std::move(newer));
      }
    }
  }
  next->current = true;
  open_.push_back(std::move(*next));
}

void FollowedPath::OnTruncated(const FileKey& key, MonotonicTime now) {
  auto at = std::find_if(open_.begin(), open_.end(),
                         [&](const Open& open) { return open.place.key == key; });
  const FilePlace before = at->place;
  at->place = FilePlace();
  at->place.key = key;
  at->checked = false;
  at->unfinished = 0;
  auto copy = FindCopy(before, now);
  if (!copy) {
    SayLost(before, "was truncated, and there is no copy of it beside it");
    return;
  }
  std::vector<Open> found = FindNewer(copy->info.modified_ns, now);
  std::erase_if(found, [&](const Open& open) { return Is(copy->info, open.place.key); });
  found.insert(found.begin(), std::move(*copy));
  open_.insert(at, std::move_iterator(found.begin()), std::move_iterator(found.end()));
}

void FollowedPath::CloseOld(MonotonicTime now) {
  const auto done = [&](const Open& open) {
    return !open.current && open.place.offset == open.info.size &&
           ((!open.info.linked && now - open.quiet_since >= options_.rotated_wait) ||
            open_.size() > kOpenMax);
  };
  for (auto at = open_.begin(); at != open_.end();) {
    if (!done(*at)) {
      ++at;
      continue;
    }
    Close(FileKey(at->place.key));
    at = open_.erase(at);
  }
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
  if (info->size < open.place.offset || !IsMarked(*open.file, open.place)) {
    OnTruncated(FileKey(open.place.key), now);
    return State::kTruncated;
  }
  open.place.seen = info->size;
  open.checked = true;
  return State::kReadable;
}

std::optional<FollowedPath::Piece> FollowedPath::Read(MonotonicTime now) {
  for (size_t i = 0; i < open_.size();) {
    const State state = Check(open_[i], now);
    if (state == State::kTruncated) continue;
    if (state == State::kReadable) {
      if (auto piece = ReadOf(open_[i], now)) return piece;
    }
    ++i;
  }
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
    read_trouble_.clear();
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
  // First where a copy stands, then what its original has behind it.
  for (const Open& open : open_) {
    // Of an old file of which nothing was read there is nothing to know it by: its inode may be
    // another one's when it is gone.
    if (!open.current && open.place.mark.bytes == 0) continue;
    if (!piece || open.place.key != piece->from.key) ledger.Observe(open.place);
  }
  return piece && ledger.Add(piece->from, piece->to);
}

// --- What others ask

std::vector<FilePlace> FollowedPath::Places() const {
  std::vector<FilePlace> places;
  for (const Open& open : open_) places.push_back(open.place);
  return places;
}

bool FollowedPath::idle() const {
  return std::all_of(open_.begin(), open_.end(),
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
    if (!file.ok() || info->size < place.mark.end || !IsMarked(**file, place)) continue;
    const auto bytes = static_cast<int64_t>(message.size());
    if (place.offset < bytes) return false;
    const auto read = (*file)->Read(place.offset - bytes, bytes);
    if (read.ok()) return *read == message;
  }
  return std::nullopt;
}

void FollowedPath::Trouble(const std::string& text) {
  if (std::exchange(trouble_, text) != text) say_(text);
}

void FollowedPath::ReadTrouble(const std::string& text) {
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
