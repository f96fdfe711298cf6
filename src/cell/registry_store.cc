#include "tailcast/cell/registry_store.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"

namespace tailcast::cell {
namespace {

constexpr size_t kHeaderSize = 16;
constexpr std::string_view kMagic = "TCR1";
constexpr int64_t kReadBytes = 1 << 20;
constexpr std::string_view kSuffix = ".log";

FAULT_POINT(kLastButOne, "cell.last_snapshot_but_one", "a scheduler begins with an older registry");

void PutU32(std::string& out, uint32_t v) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(v >> (8 * i)));
}
uint32_t GetU32(std::string_view bytes, size_t at) {
  uint32_t v = 0;
  for (size_t i = 0; i < 4; ++i) v |= uint32_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  return v;
}

// How many bytes the snapshot at `at` says that it has, 0 if there is no valid header.
size_t ClaimedAt(std::string_view bytes, size_t at) {
  if (bytes.size() - at < kHeaderSize || bytes.substr(at, 4) != kMagic) return 0;
  if (GetU32(bytes, at + 12) != Crc32c(bytes.substr(at, 12))) return 0;
  return kHeaderSize + GetU32(bytes, at + 4);
}

// The size of the whole valid snapshot at `at`, 0 if there is none.
size_t SnapshotAt(std::string_view bytes, size_t at) {
  const size_t size = ClaimedAt(bytes, at);
  if (size == 0 || bytes.size() - at < size) return 0;
  const std::string_view payload = bytes.substr(at + kHeaderSize, size - kHeaderSize);
  return GetU32(bytes, at + 8) == Crc32c(payload) ? size : 0;
}

Status TakenOver(const std::string& name) {
  return FailedPreconditionError("another scheduler took over this cell's registry (registry/" +
                                 name + ")");
}

// The message of a whole valid snapshot; nullopt: it is none of ours.
std::optional<v1::RegistrySnapshot> MessageOf(std::string_view snapshot) {
  const std::string_view payload = snapshot.substr(kHeaderSize);
  v1::RegistrySnapshot message;
  if (!message.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return std::nullopt;
  }
  return message;
}

// As ParseRegistryLog. `each`: one that can't be parsed is damaged, and not only if it is the last.
Result<RegistryLogContent> Parse(std::string_view bytes, const std::string& file, bool each) {
  RegistryLogContent content;
  std::string_view last, before;
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t size = SnapshotAt(bytes, at);
    if (size > 0 && (!each || MessageOf(bytes.substr(at, size)))) {
      before = std::exchange(last, bytes.substr(at, size));
      ++content.snapshots;
      at += size;
      continue;
    }
    const size_t claimed = ClaimedAt(bytes, at);
    if (claimed > kHeaderSize + kSnapshotBytesMax) {
      return DataLossError("the registry log " + file + " has a snapshot of " +
                           std::to_string(claimed) + " bytes at byte " + std::to_string(at) +
                           ": no scheduler writes one of more than " +
                           std::to_string(kSnapshotBytesMax));
    }
    // What looks like a snapshot inside of this one is its content.
    const size_t behind = at + std::max<size_t>(claimed, 1);
    for (size_t next = bytes.find(kMagic, behind); next != std::string_view::npos;
         next = bytes.find(kMagic, next + 1)) {
      if (SnapshotAt(bytes, next) > 0) {
        return DataLossError("the registry log " + file + " is damaged at byte " +
                             std::to_string(at) + ", before a good snapshot at byte " +
                             std::to_string(next) +
                             ": restore the file, or move the registry folder away to begin with "
                             "an empty catalogue (docs/ops/storage.md)");
      }
    }
    content.torn_bytes = static_cast<int64_t>(bytes.size() - at);
    break;
  }
  if (!last.empty() && at == bytes.size() && kLastButOne.planted()) last = before;
  if (!last.empty()) content.last = MessageOf(last);
  return content;
}

}  // namespace

std::string EncodeSnapshot(const v1::RegistrySnapshot& snapshot) {
  const std::string payload = snapshot.SerializeAsString();
  std::string out(kMagic);
  PutU32(out, static_cast<uint32_t>(payload.size()));
  PutU32(out, Crc32c(payload));
  PutU32(out, Crc32c(out));
  return out + payload;
}

Result<RegistryLogContent> ParseRegistryLog(std::string_view bytes, const std::string& file) {
  Result<RegistryLogContent> content = Parse(bytes, file, /*each=*/false);
  // The last one can't be parsed: where the log ends is found by looking into each.
  if (content.ok() && content->snapshots > 0 && !content->last) {
    return Parse(bytes, file, /*each=*/true);
  }
  return content;
}

RegistryStore::RegistryStore(EventLoop& loop, storage::Store& store, Options options)
    : loop_(loop), store_(store), options_(std::move(options)), retry_(options_.retry) {}

std::string RegistryStore::NameOf(int64_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "%010" PRId64 ".log", number);
  return text;
}

std::optional<int64_t> RegistryStore::NumberOf(std::string_view name) {
  if (name.size() != 10 + kSuffix.size() || !name.ends_with(kSuffix)) return std::nullopt;
  int64_t number = 0;
  for (char c : name.substr(0, 10)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  return number;
}

void RegistryStore::Open(Callback<void(Result<v1::RegistrySnapshot>)> done) {
  TAILCAST_CHECK(!opened_ && file_ == nullptr, "a registry is opened once");
  opened_ = std::move(done);
  FindLast();
}

void RegistryStore::FinishOpen(Status status) {
  if (IsResourceExhausted(status) && dead_.ok()) {
    return WaitForRoom(status, scope_.Bind([this] {
      file_ = nullptr;
      FindLast();
    }));
  }
  if (!status.ok()) dead_ = status;
  auto done = std::exchange(opened_, nullptr);
  if (!status.ok()) return done(std::move(status));
  done(state_);
}

void RegistryStore::FindLast() {
  store_.List(options_.dir, scope_.Bind([this](Result<std::vector<storage::DirEntry>> entries) {
    if (!entries.ok()) return FinishOpen(entries.status().WithContext("the registry"));
    int64_t last = 0;
    for (const auto& entry : *entries) {
      if (const auto number = NumberOf(entry.name)) last = std::max(last, *number);
    }
    if (last == number_ && file_ != nullptr) return AfterFence();
    if (last == 0) return CreateFile(1);
    FenceFile(NameOf(last), last);
  }));
}

void RegistryStore::FenceFile(const std::string& name, int64_t number) {
  store_.OpenFencing(
      options_.dir, name,
      scope_.Bind([this, name, number](Result<std::unique_ptr<storage::AppendFile>> file) {
        if (!file.ok()) return FinishOpen(file.status().WithContext("registry/" + name));
        file_ = std::move(*file);
        name_ = name;
        number_ = number;
        FindLast();  // was a newer one made meanwhile?
      }));
}

void RegistryStore::CreateFile(int64_t number) {
  const std::string name = NameOf(number);
  store_.CreateExclusive(
      options_.dir, name, name,
      scope_.Bind([this, name, number](Result<std::unique_ptr<storage::AppendFile>> file) {
        if (!file.ok() && IsAlreadyExists(file.status())) return FenceFile(name, number);
        if (!file.ok()) return FinishOpen(file.status().WithContext("registry/" + name));
        file_ = std::move(*file);
        name_ = name;
        number_ = number;
        // A newer file can't be there: it would have been made after this one. And what this one
        // follows was read.
        Begin();
      }));
}

void RegistryStore::AfterFence() {
  reading_number_ = number_;
  const std::string name = NameOf(number_);
  ReadAll(name, scope_.Bind([this, name](Result<std::string> bytes) {
    OnContent(name, std::move(bytes));
  }));
}

struct RegistryStore::WholeRead {
  std::unique_ptr<storage::ReadFile> file;
  std::string bytes;
  int64_t size = 0;
  Callback<void(Result<std::string>)> done;
};

void RegistryStore::ReadAll(const std::string& name, Callback<void(Result<std::string>)> done) {
  auto read = std::make_shared<WholeRead>();
  read->done = std::move(done);
  const auto opened = [this, read](Result<std::unique_ptr<storage::ReadFile>> file) {
    if (!file.ok()) return read->done(file.status());
    read->file = std::move(*file);
    read->file->Size(scope_.Bind([this, read](Result<storage::FileSize> size) {
      if (!size.ok()) return read->done(size.status());
      read->size = size->committed_length;
      ReadNext(read);
    }));
  };
  store_.OpenRead(options_.dir, name, scope_.Bind(opened));
}

void RegistryStore::ReadNext(std::shared_ptr<WholeRead> read) {
  if (static_cast<int64_t>(read->bytes.size()) >= read->size) {
    return read->done(std::move(read->bytes));
  }
  read->file->Read(static_cast<int64_t>(read->bytes.size()), kReadBytes,
                   scope_.Bind([this, read](Result<std::string> piece) {
                     if (!piece.ok()) return read->done(piece.status());
                     if (piece->empty()) read->size = static_cast<int64_t>(read->bytes.size());
                     read->bytes += *piece;
                     ReadNext(read);
                   }));
}

void RegistryStore::OnContent(const std::string& name, Result<std::string> bytes) {
  if (!bytes.ok()) return FinishOpen(bytes.status().WithContext("registry/" + name));
  auto content = ParseRegistryLog(*bytes, "registry/" + name);
  if (!content.ok()) return FinishOpen(content.status());
  if (content->last) state_ = *content->last;
  const bool of_newest = reading_number_ == number_;
  if (!content->last && reading_number_ > 1) {
    // Its first snapshot was never written: the state is at the end of the file before.
    --reading_number_;
    const std::string before = NameOf(reading_number_);
    newest_torn_ = of_newest && content->torn_bytes > 0;
    ReadAll(before, scope_.Bind([this, before](Result<std::string> older) {
      if (!older.ok() && IsNotFound(older.status())) {
        return FinishOpen(
            DataLossError("registry/" + before + " is missing, and the log after it is empty"));
      }
      OnContent(before, std::move(older));
    }));
    return;
  }
  if (of_newest ? content->torn_bytes > 0 || state_.rolled() ||
                      static_cast<int64_t>(bytes->size()) >= options_.file_bytes_max
                : newest_torn_) {
    // Nothing may follow a torn snapshot; and the end of a file is final.
    return CreateFile(number_ + 1);
  }
  Begin();
}

// file_ is fenced and state_ is the last snapshot: make it ours.
void RegistryStore::Begin() {
  state_.set_rolled(false);
  state_.set_scheduler_incarnation(state_.scheduler_incarnation() + 1);
  state_.set_sequence(state_.sequence() + 1);
  Append(state_, scope_.Bind([this](const Status& status) {
    if (IsFailedPrecondition(status)) {
      return FinishOpen(AbortedError("another scheduler opened the registry at the same time"));
    }
    FinishOpen(status);
  }));
}

void RegistryStore::Append(const v1::RegistrySnapshot& snapshot, Callback<void(Status)> done) {
  if (const auto bytes = static_cast<int64_t>(snapshot.ByteSizeLong());
      bytes > options_.snapshot_bytes_max) {
    dead_ = ResourceExhaustedError("this cell's registry would take " + std::to_string(bytes) +
                                   " bytes, and " + std::to_string(options_.snapshot_bytes_max) +
                                   " are its limit");
    return loop_.Post(std::move(done).With(dead_));
  }
  file_->AppendAt(
      file_->committed_length(), EncodeSnapshot(snapshot),
      scope_.Bind([this, &snapshot, done = std::move(done)](storage::AppendResult result) mutable {
        switch (result.outcome) {
          case storage::AppendOutcome::kApplied:
            OnRoom();
            return done(OkStatus());
          case storage::AppendOutcome::kFenced:
          case storage::AppendOutcome::kWrongOffset:
            dead_ = TakenOver(name_);
            return done(dead_);
          case storage::AppendOutcome::kUnknown:
            if (IsResourceExhausted(result.error)) {
              return OnNoRoom(result.error, snapshot, std::move(done));
            }
            dead_ = UnavailableError(
                "registry/" + name_ +
                " cannot be written, and whether it was is not known: " + result.error.ToString());
            return done(dead_);
        }
      }));
}

void RegistryStore::WaitForRoom(const Status& why, Task again) {
  no_room_ = why.WithContext("registry/" + (name_.empty() ? NameOf(1) : name_));
  retry_timer_.After(retry_, std::move(again));
  retry_ = std::min(retry_ + retry_, options_.retry_max);
}

void RegistryStore::OnRoom() {
  no_room_ = OkStatus();
  retry_ = options_.retry;
}

void RegistryStore::OnNoRoom(const Status& why, const v1::RegistrySnapshot& snapshot,
                             Callback<void(Status)> done) {
  if (opened_) return done(why);  // it begins with the opening again
  WaitForRoom(why, scope_.Bind([this, &snapshot, done = std::move(done)]() mutable {
    Reopen(snapshot, std::move(done));
  }));
}

void RegistryStore::LookAt(const std::string& name,
                           Callback<void(Result<storage::FileSize>)> done) {
  auto opened = [this,
                 done = std::move(done)](Result<std::unique_ptr<storage::ReadFile>> file) mutable {
    if (!file.ok()) return done(file.status());
    const std::shared_ptr<storage::ReadFile> held = std::move(*file);
    held->Size(scope_.Bind([held, done = std::move(done)](
                               const Result<storage::FileSize>& size) mutable { done(size); }));
  };
  store_.OpenRead(options_.dir, name, scope_.Bind(std::move(opened)));
}

// Who has begun since has written to this file, or, where it was not to be gone on with
// (OnContent), made the next one, which then is his. So as long as it is as we know it, it is ours.
// The epoch says nothing: a fence of ours may have found no room behind it.
void RegistryStore::Reopen(const v1::RegistrySnapshot& snapshot, Callback<void(Status)> done) {
  LookAt(name_, scope_.Bind([this, &snapshot, done = std::move(done)](
                                const Result<storage::FileSize>& size) mutable {
    if (IsNotFound(size.status()) ||
        (size.ok() && size->committed_length > file_->committed_length())) {
      dead_ = TakenOver(name_);
      return done(dead_);
    }
    if (!size.ok()) return OnNotReopened(size.status(), snapshot, std::move(done));
    ReopenFencing(snapshot, std::move(done));
  }));
}

// A primary layer that does not answer now may later; one that has damaged the file will not, and
// who was fenced meanwhile (Aborted) ends.
void RegistryStore::OnNotReopened(const Status& why, const v1::RegistrySnapshot& snapshot,
                                  Callback<void(Status)> done) {
  if (IsResourceExhausted(why) || IsUnavailable(why) || IsDeadlineExceeded(why)) {
    return OnNoRoom(why, snapshot, std::move(done));
  }
  dead_ = UnavailableError("registry/" + name_ + " cannot be opened again: " + why.ToString());
  done(dead_);
}

void RegistryStore::ReopenFencing(const v1::RegistrySnapshot& snapshot,
                                  Callback<void(Status)> done) {
  store_.OpenFencing(options_.dir, name_,
                     scope_.Bind([this, &snapshot, done = std::move(done)](
                                     Result<std::unique_ptr<storage::AppendFile>> file) mutable {
                       if (IsNotFound(file.status())) {
                         dead_ = TakenOver(name_);
                         return done(dead_);
                       }
                       if (!file.ok())
                         return OnNotReopened(file.status(), snapshot, std::move(done));
                       if ((*file)->committed_length() != file_->committed_length()) {
                         dead_ = TakenOver(name_);
                         return done(dead_);
                       }
                       file_ = std::move(*file);
                       Append(snapshot, std::move(done));
                     }));
}

void RegistryStore::Write(v1::RegistrySnapshot snapshot, Callback<void(Status)> done) {
  TAILCAST_CHECK(writing_ == nullptr, "a snapshot is written while another is");
  writing_ = std::make_unique<Writing>(Writing{std::move(snapshot), std::move(done)});
  if (!dead_.ok() || file_ == nullptr) {
    const Status status = dead_.ok() ? FailedPreconditionError("the registry is not open") : dead_;
    loop_.Post(scope_.Bind([this, status] { Answer(status); }));
    return;
  }
  writing_->snapshot.set_scheduler_incarnation(state_.scheduler_incarnation());
  writing_->snapshot.set_sequence(state_.sequence() + 1);
  writing_->snapshot.set_rolled(false);
  if (file_->committed_length() < options_.file_bytes_max) return WriteSnapshot();
  // Roll: a last snapshot in this file proves that it is still ours; then the next file,
  // exclusively.
  state_.set_rolled(true);
  state_.set_sequence(state_.sequence() + 1);
  writing_->snapshot.set_sequence(state_.sequence() + 1);
  Append(state_, scope_.Bind([this](const Status& status) {
    if (!status.ok()) return Answer(status);
    Roll();
  }));
}

void RegistryStore::CheckFence(Callback<void(Status)> done) {
  if (!dead_.ok()) return loop_.Post(std::move(done).With(dead_));
  if (!no_room_.ok()) return loop_.Post(std::move(done).With(no_room_));
  LookAt(name_, scope_.Bind([this, name = name_, epoch = file_->epoch(), done = std::move(done)](
                                const Result<storage::FileSize>& size) mutable {
    // Who has rolled twice since has deleted it.
    if (size.ok() ? size->epoch > epoch : IsNotFound(size.status()) && name == name_) {
      dead_ = TakenOver(name);
    }
    done(dead_.ok() ? size.status() : dead_);
  }));
}

void RegistryStore::Roll() {
  const std::string name = NameOf(number_ + 1);
  store_.CreateExclusive(
      options_.dir, name, name,
      scope_.Bind([this, name](Result<std::unique_ptr<storage::AppendFile>> file) {
        if (IsAlreadyExists(file.status()) && half_made_) return RollIntoHalfMade(name);
        if (IsAlreadyExists(file.status())) return EndRolling(TakenOver(name));
        half_made_ = IsResourceExhausted(file.status());
        OnNextFile(name, std::move(file));
      }));
}

// Ours, or of somebody who has taken over since: then he has written to it before he began. An
// empty one is taken from whoever is about to.
void RegistryStore::RollIntoHalfMade(const std::string& name) {
  LookAt(name, scope_.Bind([this, name](const Result<storage::FileSize>& size) {
    if (size.ok() && size->committed_length > 0) return EndRolling(TakenOver(name));
    if (!size.ok()) return OnNextFile(name, size.status());
    store_.OpenFencing(options_.dir, name,
                       scope_.Bind([this, name](Result<std::unique_ptr<storage::AppendFile>> file) {
                         if (file.ok() && (*file)->committed_length() > 0)
                           return EndRolling(TakenOver(name));
                         OnNextFile(name, std::move(file));
                       }));
  }));
}

void RegistryStore::OnNextFile(const std::string& name,
                               Result<std::unique_ptr<storage::AppendFile>> file) {
  if (IsResourceExhausted(file.status())) {
    return WaitForRoom(file.status(), scope_.Bind([this] { Roll(); }));
  }
  if (!file.ok()) {
    return EndRolling(
        UnavailableError("registry/" + name + " cannot be created: " + file.status().ToString()));
  }
  OnRoom();
  half_made_ = false;
  file_ = std::move(*file);
  name_ = name;
  ++number_;
  WriteSnapshot();
  // The one before the last is kept: the newest may still be empty.
  if (number_ > 2) {
    store_.Delete(options_.dir, NameOf(number_ - 2), scope_.Bind([](const Status&) {}));
  }
}

void RegistryStore::EndRolling(Status why) {
  dead_ = std::move(why);
  Answer(dead_);
}

void RegistryStore::WriteSnapshot() {
  Append(writing_->snapshot, scope_.Bind([this](const Status& status) {
    if (status.ok()) state_ = writing_->snapshot;
    Answer(status);
  }));
}

void RegistryStore::Answer(const Status& status) {
  const std::unique_ptr<Writing> written = std::move(writing_);
  written->done(status);
}

}  // namespace tailcast::cell
