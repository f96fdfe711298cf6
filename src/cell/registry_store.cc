#include "tailcast/cell/registry_store.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "tailcast/base/crc32c.h"

namespace tailcast::cell {
namespace {

constexpr size_t kHeaderSize = 16;
constexpr std::string_view kMagic = "TCR1";
constexpr uint32_t kSnapshotBytesMax = 64 << 20;
constexpr int64_t kReadBytes = 1 << 20;
constexpr std::string_view kSuffix = ".log";

void PutU32(std::string& out, uint32_t v) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(v >> (8 * i)));
}
uint32_t GetU32(std::string_view bytes, size_t at) {
  uint32_t v = 0;
  for (size_t i = 0; i < 4; ++i) v |= uint32_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  return v;
}

// The size of the whole valid record at `at`, 0 if there is none.
size_t RecordAt(std::string_view bytes, size_t at) {
  if (bytes.size() - at < kHeaderSize || bytes.substr(at, 4) != kMagic) return 0;
  if (GetU32(bytes, at + 12) != Crc32c(bytes.substr(at, 12))) return 0;
  const uint32_t length = GetU32(bytes, at + 4);
  if (length > kSnapshotBytesMax || bytes.size() - at - kHeaderSize < length) return 0;
  if (GetU32(bytes, at + 8) != Crc32c(bytes.substr(at + kHeaderSize, length))) return 0;
  return kHeaderSize + length;
}

}  // namespace

std::string EncodeRegistryRecord(const v1::RegistrySnapshot& snapshot) {
  const std::string payload = snapshot.SerializeAsString();
  std::string out(kMagic);
  PutU32(out, static_cast<uint32_t>(payload.size()));
  PutU32(out, Crc32c(payload));
  PutU32(out, Crc32c(out));
  return out + payload;
}

Result<RegistryLogContent> ParseRegistryLog(std::string_view bytes, const std::string& file) {
  RegistryLogContent content;
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t size = RecordAt(bytes, at);
    v1::RegistrySnapshot snapshot;
    if (size > 0 && snapshot.ParseFromArray(bytes.data() + at + kHeaderSize,
                                            static_cast<int>(size - kHeaderSize))) {
      content.last = std::move(snapshot);
      ++content.records;
      at += size;
      continue;
    }
    for (size_t next = bytes.find(kMagic, at + 1); next != std::string_view::npos;
         next = bytes.find(kMagic, next + 1)) {
      if (RecordAt(bytes, next) > 0) {
        return DataLossError("the registry log " + file + " is damaged at byte " +
                             std::to_string(at) + ", before a good record at byte " +
                             std::to_string(next) +
                             ": restore the file, or move the registry folder away to begin with "
                             "an empty catalogue");
      }
    }
    content.torn_bytes = static_cast<int64_t>(bytes.size() - at);
    break;
  }
  return content;
}

RegistryStore::RegistryStore(EventLoop& loop, storage::Store& store, Options options)
    : loop_(loop), store_(store), options_(std::move(options)) {}

RegistryStore::~RegistryStore() { *alive_ = false; }

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
  if (!status.ok()) dead_ = status;
  auto done = std::exchange(opened_, nullptr);
  if (!status.ok()) return done(std::move(status));
  done(state_);
}

void RegistryStore::FindLast() {
  store_.List(options_.dir, [this, alive = alive_](Result<std::vector<storage::DirEntry>> entries) {
    if (!*alive) return;
    if (!entries.ok()) return FinishOpen(entries.status().WithContext("the registry"));
    int64_t last = 0;
    for (const auto& entry : *entries) {
      if (const auto number = NumberOf(entry.name)) last = std::max(last, *number);
    }
    if (last == number_ && file_ != nullptr) return AfterFence();
    if (last == 0) return CreateFile(1);
    FenceFile(NameOf(last), last);
  });
}

void RegistryStore::FenceFile(const std::string& name, int64_t number) {
  store_.OpenFencing(
      options_.dir, name,
      [this, alive = alive_, name, number](Result<std::unique_ptr<storage::AppendFile>> file) {
        if (!*alive) return;
        if (!file.ok()) return FinishOpen(file.status().WithContext("registry/" + name));
        file_ = std::move(*file);
        name_ = name;
        number_ = number;
        FindLast();  // was a newer one made meanwhile?
      });
}

void RegistryStore::CreateFile(int64_t number) {
  const std::string name = NameOf(number);
  store_.CreateExclusive(
      options_.dir, name, name,
      [this, alive = alive_, name, number](Result<std::unique_ptr<storage::AppendFile>> file) {
        if (!*alive) return;
        if (!file.ok() && IsAlreadyExists(file.status())) return FenceFile(name, number);
        if (!file.ok()) return FinishOpen(file.status().WithContext("registry/" + name));
        file_ = std::move(*file);
        name_ = name;
        number_ = number;
        // A newer file can't be there: it would have been made after this one. And what this one
        // follows was read.
        Begin();
      });
}

void RegistryStore::AfterFence() {
  reading_number_ = number_;
  const std::string name = NameOf(number_);
  ReadAll(name, [this, alive = alive_, name](Result<std::string> bytes) {
    if (*alive) OnContent(name, std::move(bytes));
  });
}

void RegistryStore::ReadAll(const std::string& name, Callback<void(Result<std::string>)> done) {
  struct Job {
    std::unique_ptr<storage::ReadFile> file;
    std::string bytes;
    int64_t size = 0;
    Callback<void(Result<std::string>)> done;
    Callback<void()> next;
  };
  auto job = std::make_shared<Job>();
  job->done = std::move(done);
  job->next = [weak = std::weak_ptr<Job>(job)] {
    const auto job = weak.lock();
    if (static_cast<int64_t>(job->bytes.size()) >= job->size) {
      return job->done(std::move(job->bytes));
    }
    job->file->Read(static_cast<int64_t>(job->bytes.size()), kReadBytes,
                    [job](Result<std::string> piece) {
                      if (!piece.ok()) return job->done(piece.status());
                      if (piece->empty()) job->size = static_cast<int64_t>(job->bytes.size());
                      job->bytes += *piece;
                      job->next();
                    });
  };
  store_.OpenRead(options_.dir, name, [job](Result<std::unique_ptr<storage::ReadFile>> file) {
    if (!file.ok()) return job->done(file.status());
    job->file = std::move(*file);
    job->file->Size([job](Result<storage::FileSize> size) {
      if (!size.ok()) return job->done(size.status());
      job->size = size->committed_length;
      job->next();
    });
  });
}

void RegistryStore::OnContent(const std::string& name, Result<std::string> bytes) {
  if (!bytes.ok()) return FinishOpen(bytes.status().WithContext("registry/" + name));
  auto content = ParseRegistryLog(*bytes, "registry/" + name);
  if (!content.ok()) return FinishOpen(content.status());
  if (content->last) state_ = *content->last;
  const bool of_newest = reading_number_ == number_;
  if (!content->last && reading_number_ > 1) {
    // Its first record was never written: the state is at the end of the file before.
    --reading_number_;
    const std::string before = NameOf(reading_number_);
    newest_torn_ = of_newest && content->torn_bytes > 0;
    ReadAll(before, [this, alive = alive_, before](Result<std::string> older) {
      if (!*alive) return;
      if (!older.ok() && IsNotFound(older.status())) {
        return FinishOpen(
            DataLossError("registry/" + before + " is missing, and the log after it is empty"));
      }
      OnContent(before, std::move(older));
    });
    return;
  }
  if (of_newest ? content->torn_bytes > 0 || state_.rolled() ||
                      static_cast<int64_t>(bytes->size()) >= options_.file_bytes_max
                : newest_torn_) {
    // Nothing may follow a torn record; and the end of a file is final.
    return CreateFile(number_ + 1);
  }
  Begin();
}

// file_ is fenced and state_ is the last snapshot: make it ours.
void RegistryStore::Begin() {
  state_.set_rolled(false);
  state_.set_scheduler_incarnation(state_.scheduler_incarnation() + 1);
  state_.set_sequence(state_.sequence() + 1);
  Append(state_, [this](const Status& status) {
    if (IsFailedPrecondition(status)) {
      return FinishOpen(AbortedError("another scheduler opened the registry at the same time"));
    }
    FinishOpen(status);
  });
}

void RegistryStore::Append(const v1::RegistrySnapshot& snapshot, Callback<void(Status)> done) {
  file_->AppendAt(
      file_->committed_length(), EncodeRegistryRecord(snapshot),
      [this, alive = alive_, done = std::move(done)](storage::AppendResult result) mutable {
        if (!*alive) return;
        switch (result.outcome) {
          case storage::AppendOutcome::kApplied:
            return done(OkStatus());
          case storage::AppendOutcome::kFenced:
          case storage::AppendOutcome::kWrongOffset:
            dead_ = FailedPreconditionError(
                "another scheduler took over this cell's registry (registry/" + name_ + ")");
            return done(dead_);
          case storage::AppendOutcome::kUnknown:
            dead_ = UnavailableError("registry/" + name_ +
                                     " cannot be written: " + result.error.ToString());
            return done(dead_);
        }
      });
}

void RegistryStore::Write(v1::RegistrySnapshot snapshot, Callback<void(Status)> done) {
  if (!waiting_) waiting_ = std::make_unique<Waiting>();
  waiting_->snapshot = std::move(snapshot);
  waiting_->done.push_back(std::move(done));
  SendNext();
}

void RegistryStore::SendNext() {
  if (writing_ || !waiting_) return;
  writing_ = true;
  const std::shared_ptr<Waiting> now = std::move(waiting_);
  const auto answer = [this, now](const Status& status) {
    writing_ = false;
    const std::shared_ptr<bool> alive = alive_;
    for (auto& done : now->done) done(status);
    if (*alive) SendNext();
  };
  if (!dead_.ok() || file_ == nullptr) {
    const Status status = dead_.ok() ? FailedPreconditionError("the registry is not open") : dead_;
    loop_.Post([alive = alive_, answer, status] {
      if (*alive) answer(status);
    });
    return;
  }
  now->snapshot.set_scheduler_incarnation(state_.scheduler_incarnation());
  now->snapshot.set_sequence(state_.sequence() + 1);
  now->snapshot.set_rolled(false);
  const auto write = [this, now, answer] {
    Append(now->snapshot, [this, now, answer](const Status& status) {
      if (status.ok()) state_ = now->snapshot;
      answer(status);
    });
  };
  if (file_->committed_length() < options_.file_bytes_max) return write();
  // Roll: a last record in this file proves that it is still ours; then the next file, exclusively.
  state_.set_rolled(true);
  state_.set_sequence(state_.sequence() + 1);
  now->snapshot.set_sequence(state_.sequence() + 1);
  Append(state_, [this, answer, write](const Status& status) {
    if (!status.ok()) return answer(status);
    const std::string name = NameOf(number_ + 1);
    store_.CreateExclusive(
        options_.dir, name, name,
        [this, alive = alive_, answer, write,
         name](Result<std::unique_ptr<storage::AppendFile>> file) {
          if (!*alive) return;
          if (!file.ok()) {
            dead_ = IsAlreadyExists(file.status())
                        ? FailedPreconditionError(
                              "another scheduler took over this cell's registry (registry/" + name +
                              ")")
                        : UnavailableError("registry/" + name +
                                           " cannot be created: " + file.status().ToString());
            return answer(dead_);
          }
          file_ = std::move(*file);
          name_ = name;
          ++number_;
          write();
          // The one before the last is kept: the newest may still be empty.
          if (number_ > 2) store_.Delete(options_.dir, NameOf(number_ - 2), [](const Status&) {});
        });
  });
}

}  // namespace tailcast::cell
