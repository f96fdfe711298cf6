#include "tailcast/storage/fake_store.h"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/scope.h"
#include "tailcast/storage/store_names.h"

namespace tailcast::storage {

// A process, as its handles and its requests that are on the way know it.
struct FakeStore::Client {
  EventLoop* loop = nullptr;  // null once the process ended
  OutstandingCalls calls;     // of the store and of all its handles
  Scope scope;                // ends with the process

  // As FakeDisk's, when this process' requests get there.
  void AtDisk(FakeDisk& disk, Duration delay, UniqueFunction<void()> landing) {
    delay = delay + slower_by;
    if (!hung) return disk.AtDisk(delay, std::move(landing));
    held.push_back([&disk, delay, landing = std::move(landing)]() mutable {
      disk.AtDisk(delay, std::move(landing));
    });
  }
  // Until all that was to be appended before is, and then these bytes.
  Duration Append(size_t bytes) {
    if (append_rate == 0) return Duration();
    const MonotonicTime now = loop->Now();
    appends_until = std::max(now, appends_until) +
                    Duration::Micros(static_cast<int64_t>(bytes) * 1'000'000 / append_rate);
    return appends_until - now;
  }
  StoreUse use = StoreUse::kMessages;
  bool hung = false;
  Duration slower_by;
  int64_t append_rate = 0;  // bytes per second
  MonotonicTime appends_until;
  std::deque<UniqueFunction<void()>> held;
};

// ---------------------------------------------------------------------------------------------
// Handles.

namespace {
void Acknowledge(FakeImage::File& file, int64_t length) {
  file.acknowledged = std::max(file.acknowledged, length);
}
}  // namespace

class FakeAppendFile final : public AppendFile {
 public:
  FakeAppendFile(FakeDisk* disk, std::shared_ptr<FakeStore::Client> client,
                 std::shared_ptr<FakeImage::File> file, Epoch epoch, int64_t committed)
      : disk_(disk),
        client_(std::move(client)),
        file_(std::move(file)),
        epoch_(epoch),
        life_(disk->life_),
        committed_(committed) {}
  ~FakeAppendFile() override {
    // The callback runs now rather than when the append lands.
    if (client_->loop != nullptr) client_->calls.Close(outstanding_.number, *client_->loop);
  }

  void AppendAt(int64_t expected_offset, std::string bytes,
                Callback<void(AppendResult)> done) override {
    if (client_->loop == nullptr) return;
    TAILCAST_CHECK(outstanding_.number == 0, "one append at a time");
    if (!dead_ && disk_->life_ != life_) {
      dead_ = true;
      last_ = {AppendOutcome::kUnknown, committed_,
               UnavailableError(file_->name + ": the disk lost power")};
    }
    if (dead_ || expected_offset != committed_) {
      AppendResult result = dead_ ? last_ : WrongOffset(file_->name, expected_offset, committed_);
      client_->loop->Post(std::move(done).With(std::move(result)));
      return;
    }

    FakeDisk& disk = *disk_;
    const Duration turn = client_->Append(bytes.size());
    const std::shared_ptr<FakeImage::Append> append =
        disk.image_.Send(file_, epoch_, expected_offset, std::move(bytes), client_->use);
    outstanding_ = client_->calls.Add<AppendResult>(
        std::move(done),
        {AppendOutcome::kUnknown, committed_, CancelledError("the handle was closed")});
    Callback<void(AppendResult)> answered =
        scope_.Bind([this](AppendResult result) { OnAnswer(std::move(result)); });

    const FakeDiskOptions& o = disk.options_;
    const Duration request = o.request.Draw(disk.rng_);
    const Duration answer = o.answer.Draw(disk.rng_);
    const bool answer_lost = disk.rng_.Chance(o.append_unknown_rate);
    const bool io_error = disk.rng_.Chance(o.append_io_error_rate);
    if (answer_lost || io_error) {
      ++disk.counters_.injected_errors;
      AppendResult result{AppendOutcome::kUnknown, committed_,
                          answer_lost
                              ? DeadlineExceededError(file_->name + ": no answer to an append")
                              : UnavailableError(file_->name + ": Input/output error")};
      client_->loop->After(answer_lost ? o.answer_timeout : request + answer,
                           std::move(answered).With(std::move(result)));
      SendToAnyFate(append, request);
      return;
    }
    client_->AtDisk(
        disk, turn + request,
        [d = &disk, client = client_, append, answer, committed = committed_,
         answered = std::move(answered)]() mutable {
          d->Land(*append);  // nothing if a power loss has decided already
          if (client->loop == nullptr) return;
          const bool applied = append->outcome == AppendOutcome::kApplied;
          AppendResult result{
              append->outcome,
              applied ? append->offset + static_cast<int64_t>(append->bytes.size()) : committed,
              append->error};
          client->loop->After(answer, std::move(answered).With(std::move(result)));
        });
  }

  int64_t committed_length() const override { return committed_; }
  Epoch epoch() const override { return epoch_; }
  const std::string& name() const override { return file_->name; }

 private:
  // An append whose outcome nobody is told: never lands, lands in time, or late.
  void SendToAnyFate(const std::shared_ptr<FakeImage::Append>& append, Duration request) {
    FakeDisk& disk = *disk_;
    const uint64_t fate = disk.rng_.Below(3);
    if (fate == 0) {
      disk.image_.Lose(*append);
      return;
    }
    Duration landing = request;
    if (fate == 2) {
      const int64_t late_max = std::max<int64_t>(disk.options_.late_landing_max.micros(), 1);
      landing =
          landing +
          Duration::Micros(static_cast<int64_t>(disk.rng_.Below(static_cast<uint64_t>(late_max))));
    }
    client_->AtDisk(disk, landing, [d = &disk, append] { d->Land(*append); });
  }

  void OnAnswer(AppendResult result) {
    const CallId<AppendResult> call = std::exchange(outstanding_, {});
    if (result.outcome == AppendOutcome::kApplied) {
      committed_ = result.committed_length;
      Acknowledge(*file_, committed_);
    }
    if (result.outcome == AppendOutcome::kFenced || result.outcome == AppendOutcome::kUnknown) {
      dead_ = true;
      last_ = result;
    }
    client_->calls.Answer(call, std::move(result));
  }

  FakeDisk* const disk_;
  const std::shared_ptr<FakeStore::Client> client_;
  const std::shared_ptr<FakeImage::File> file_;
  const Epoch epoch_;
  const uint64_t life_;
  int64_t committed_;
  bool dead_ = false;
  AppendResult last_;  // when dead
  CallId<AppendResult> outstanding_;
  Scope scope_;
};

class FakeReadFile final : public ReadFile {
 public:
  FakeReadFile(FakeDisk* disk, std::shared_ptr<FakeStore::Client> client,
               std::shared_ptr<FakeImage::File> file)
      : disk_(disk), client_(std::move(client)), file_(std::move(file)), life_(disk->life_) {}
  ~FakeReadFile() override {
    if (client_->loop == nullptr) return;
    for (const uint64_t call : outstanding_) client_->calls.Close(call, *client_->loop);
  }

  void Size(Callback<void(Result<FileSize>)> done) override { Look(false, std::move(done)); }
  void CheckedSize(Callback<void(Result<FileSize>)> done) override { Look(true, std::move(done)); }
  void Look(bool checked, Callback<void(Result<FileSize>)> done) {
    Request<FileSize>(
        std::move(done),
        [file = file_, shown = shown_, checked](FakeDisk& disk) -> Result<FileSize> {
          if (checked) TAILCAST_RETURN_IF_ERROR(FakeImage::CheckWhole(*file));
          FileSize size{file->visible(), file->epoch};
          if (const int64_t lag_max = disk.options_.size_lag_max.micros(); lag_max > 0) {
            size = FakeImage::SizeAsOf(
                *file, disk.loop_->Now() - Duration::Micros(disk.rng_.Between(0, lag_max)));
            if (size.committed_length < file->committed) ++disk.counters_.stale_sizes;
          }
          shown->committed_length = std::max(shown->committed_length, size.committed_length);
          shown->epoch = std::max(shown->epoch, size.epoch);
          Acknowledge(*file, shown->committed_length);
          return *shown;
        });
  }

  void Read(int64_t offset, int64_t length, Callback<void(Result<std::string>)> done) override {
    Request<std::string>(
        std::move(done), [file = file_, offset, length](FakeDisk& disk) -> Result<std::string> {
          if (offset < 0 || length < 0) {
            return InvalidArgumentError(file->name + ": read of " + std::to_string(length) +
                                        " bytes at " + std::to_string(offset));
          }
          TAILCAST_ASSIGN_OR_RETURN(std::string bytes, FakeImage::ReadAt(*file, offset, length));
          if (bytes.size() > 1 && disk.rng_.Chance(disk.options_.short_read_rate)) {
            ++disk.counters_.short_reads;
            bytes.resize(1 + disk.rng_.Below(bytes.size() - 1));
          }
          Acknowledge(*file, offset + static_cast<int64_t>(bytes.size()));
          return bytes;
        });
  }

 private:
  // `look` runs when the request lands, also if the handle is closed by then.
  template <typename T, typename Look>
  void Request(Callback<void(Result<T>)> done, Look look) {
    if (client_->loop == nullptr) return;
    const auto call =
        client_->calls.Add<Result<T>>(std::move(done), CancelledError("the handle was closed"));
    outstanding_.insert(call.number);
    Callback<void(Result<T>)> answered = scope_.Bind([this, call](Result<T> result) {
      outstanding_.erase(call.number);
      client_->calls.Answer(call, std::move(result));
    });
    client_->AtDisk(*disk_, disk_->options_.request.Draw(disk_->rng_),
                    [disk = disk_, client = client_, file = file_, look = std::move(look),
                     life = life_, answered = std::move(answered)]() mutable {
                      if (client->loop == nullptr) return;
                      Result<T> result = UnavailableError(file->name + ": the disk lost power");
                      const bool hangs = disk->hanging_.contains({file->dir, file->name});
                      if (disk->life_ == life) {
                        if (hangs) {
                          ++disk->counters_.injected_errors;
                          result = DeadlineExceededError(file->name + ": no answer");
                        } else if (disk->rng_.Chance(disk->options_.read_error_rate) ||
                                   disk->unreadable_.contains({file->dir, file->name})) {
                          ++disk->counters_.injected_errors;
                          result = UnavailableError(file->name + ": Input/output error");
                        } else {
                          result = look(*disk);
                        }
                      }
                      client->loop->After(
                          hangs ? FakeDisk::kHangs : disk->options_.answer.Draw(disk->rng_),
                          std::move(answered).With(std::move(result)));
                    });
  }

  FakeDisk* const disk_;
  const std::shared_ptr<FakeStore::Client> client_;
  const std::shared_ptr<FakeImage::File> file_;
  const uint64_t life_;
  // The largest size that was told, shared with requests on the way.
  const std::shared_ptr<FileSize> shown_ = std::make_shared<FileSize>();
  std::set<uint64_t> outstanding_;  // numbers of calls
  Scope scope_;
};

// ---------------------------------------------------------------------------------------------
// The store.

FakeStore::FakeStore(FakeDisk* disk, EventLoop* loop, StoreUse use)
    : disk_(disk), client_(std::make_shared<Client>()) {
  client_->loop = loop;
  client_->use = use;
}

FakeStore::~FakeStore() {
  client_->scope.End();
  client_->calls.CloseAll(*std::exchange(client_->loop, nullptr));
  std::exchange(client_->held, {}).clear();  // they know the client
}

void FakeStore::Hang() { client_->hung = true; }

void FakeStore::Unhang() {
  client_->hung = false;
  for (UniqueFunction<void()>& request : std::exchange(client_->held, {})) request();
}

void FakeStore::SetDelay(Duration delay) { client_->slower_by = delay; }

void FakeStore::SetAppendRate(int64_t bytes_per_second) {
  client_->append_rate = bytes_per_second;
  client_->appends_until = client_->loop->Now();
}

template <typename R, typename T>
void FakeStore::Send(CallId<T> call, UniqueFunction<Result<R>(FakeImage&)> apply,
                     UniqueFunction<void(Callback<void(T)>, Result<R>)> arrived) {
  FakeDisk* disk = disk_;
  const bool fails = disk->rng_.Chance(disk->options_.open_error_rate);
  const bool undone = fails && disk->rng_.Chance(0.5);
  Callback<void(Result<R>)> answered = client_->scope.Bind(
      [client = client_.get(), call, arrived = std::move(arrived)](Result<R> result) mutable {
        if (auto done = client->calls.Take(call); done != nullptr) {
          arrived(std::move(done), std::move(result));
        }
      });
  client_->AtDisk(*disk, disk->options_.request.Draw(disk->rng_),
                  [disk, client = client_, apply = std::move(apply), answered = std::move(answered),
                   fails, undone, life = disk->life_]() mutable {
                    Result<R> result = UnavailableError("the disk lost power");
                    if (disk->life_ == life) {
                      if (!undone) result = apply(disk->image_);
                      if (fails) {
                        ++disk->counters_.injected_errors;
                        result = UnavailableError("Input/output error");
                      }
                    }
                    if (client->loop == nullptr) return;
                    client->loop->After(disk->options_.answer.Draw(disk->rng_),
                                        std::move(answered).With(std::move(result)));
                  });
}

template <typename T>
void FakeStore::Request(Callback<void(Result<T>)> done,
                        UniqueFunction<Result<T>(FakeImage&)> apply) {
  const auto call =
      client_->calls.Add<Result<T>>(std::move(done), CancelledError("the store was closed"));
  Send<T, Result<T>>(call, std::move(apply),
                     [](Callback<void(Result<T>)> d, Result<T> result) { d(std::move(result)); });
}

void FakeStore::CreateExclusive(const std::string& dir, const std::string& name,
                                const std::string& key,
                                Callback<void(Result<std::unique_ptr<AppendFile>>)> done) {
  using Opened = Result<std::unique_ptr<AppendFile>>;
  using File = std::shared_ptr<FakeImage::File>;
  Status bad = CheckFolder(dir);
  if (bad.ok()) bad = CheckFileName("file name", name);
  if (bad.ok()) bad = CheckFileName("key", key);
  if (!bad.ok()) {
    client_->loop->Post(std::move(done).With(Opened(std::move(bad))));
    return;
  }
  // Two landings, as in a driver that first claims the key and then names the file. In between the
  // process may die: whoever finds the claim next completes the creation.
  const auto call =
      client_->calls.Add<Opened>(std::move(done), CancelledError("the store was closed"));
  Send<File, Opened>(
      call,
      [dir, name, key, disk = disk_, use = client_->use](FakeImage& image) {
        return image.Claim(dir, name, key, disk->loop_->Now(), disk->Room(), use);
      },
      [this](Callback<void(Opened)> d, Result<File> claimed) {
        if (!claimed.ok()) return d(claimed.status());
        Request<std::unique_ptr<AppendFile>>(
            std::move(d),
            [disk = disk_, client = client_, file = *claimed](FakeImage& image) -> Opened {
              TAILCAST_RETURN_IF_ERROR(image.GiveName(file, disk->Room()));
              // Epoch 1, also if somebody has helped and fenced it meanwhile.
              return std::unique_ptr<AppendFile>(
                  std::make_unique<FakeAppendFile>(disk, client, file, Epoch::kFirst, 0));
            });
      });
}

void FakeStore::OpenFencing(const std::string& dir, const std::string& name,
                            Callback<void(Result<std::unique_ptr<AppendFile>>)> done) {
  Request<std::unique_ptr<AppendFile>>(
      std::move(done),
      [disk = disk_, client = client_, dir,
       name](FakeImage& image) -> Result<std::unique_ptr<AppendFile>> {
        TAILCAST_ASSIGN_OR_RETURN(
            const auto file, image.Fence(dir, name, disk->loop_->Now(), disk->Room(), client->use));
        Acknowledge(*file, file->committed);
        return std::unique_ptr<AppendFile>(
            std::make_unique<FakeAppendFile>(disk, client, file, file->epoch, file->committed));
      });
}

void FakeStore::OpenRead(const std::string& dir, const std::string& name,
                         Callback<void(Result<std::unique_ptr<ReadFile>>)> done) {
  Request<std::unique_ptr<ReadFile>>(
      std::move(done),
      [disk = disk_, client = client_, dir,
       name](FakeImage& image) -> Result<std::unique_ptr<ReadFile>> {
        TAILCAST_ASSIGN_OR_RETURN(const auto file, image.Find(dir, name));
        return std::unique_ptr<ReadFile>(std::make_unique<FakeReadFile>(disk, client, file));
      });
}

void FakeStore::List(const std::string& dir, Callback<void(Result<std::vector<DirEntry>>)> done) {
  Request<std::vector<DirEntry>>(std::move(done),
                                 [dir](FakeImage& image) -> Result<std::vector<DirEntry>> {
                                   std::vector<DirEntry> entries;
                                   for (std::string& name : image.Names(dir))
                                     entries.push_back({std::move(name)});
                                   return entries;
                                 });
}

void FakeStore::ListDirs(const std::string& dir,
                         Callback<void(Result<std::vector<std::string>>)> done) {
  Request<std::vector<std::string>>(
      std::move(done),
      [dir](FakeImage& image) -> Result<std::vector<std::string>> { return image.Folders(dir); });
}

void FakeStore::Delete(const std::string& dir, const std::string& name,
                       Callback<void(Status)> done) {
  Remove(std::move(done), [dir, name](FakeImage& image) { return image.Delete(dir, name); });
}

void FakeStore::Identify(const std::string& dir, const std::string& name,
                         Callback<void(Result<std::string>)> done) {
  Request<std::string>(std::move(done), [dir, name](FakeImage& image) -> Result<std::string> {
    TAILCAST_ASSIGN_OR_RETURN(const auto file, image.Find(dir, name));
    return std::to_string(file->number);
  });
}

void FakeStore::DeleteExactly(const std::string& dir, const std::string& name,
                              const std::string& id, Callback<void(Status)> done) {
  const uint64_t number = id.empty() ? 0 : std::stoull(id);
  Remove(std::move(done),
         [dir, name, number](FakeImage& image) { return image.DeleteExactly(dir, name, number); });
}

void FakeStore::Quarantine(const std::string& dir, const std::string& name,
                           Callback<void(Status)> done) {
  Remove(std::move(done), [dir, name](FakeImage& image) { return image.Quarantine(dir, name); });
}

// A look that somebody has now and then: it draws nothing, so that it changes no other's luck.
void FakeStore::Room(Callback<void(Result<StoreRoom>)> done) {
  const auto call = client_->calls.Add<Result<StoreRoom>>(std::move(done),
                                                          CancelledError("the store was closed"));
  Callback<void(Result<StoreRoom>)> answered =
      client_->scope.Bind([client = client_.get(), call](Result<StoreRoom> result) {
        client->calls.Answer(call, std::move(result));
      });
  client_->AtDisk(
      *disk_, disk_->options_.request.base,
      [disk = disk_, client = client_, answered = std::move(answered)]() mutable {
        if (client->loop == nullptr) return;
        const FakeRoom room = disk->Room();
        const int64_t used = disk->image_.bytes_used(room.file_bytes);
        const int64_t free = std::max<int64_t>(room.capacity_bytes - room.reserve_bytes - used, 0);
        StoreRoom found{.free_bytes = free,
                        .total_bytes = room.capacity_bytes,
                        .low = free < std::max(room.reserve_bytes, room.file_bytes),
                        .text = std::to_string(free) + " of " +
                                std::to_string(room.capacity_bytes) + " bytes are free"};
        client->loop->After(disk->options_.answer.base, std::move(answered).With(std::move(found)));
      });
}

void FakeStore::Remove(Callback<void(Status)> done, UniqueFunction<Status(FakeImage&)> remove) {
  const auto call =
      client_->calls.Add<Status>(std::move(done), CancelledError("the store was closed"));
  Send<bool, Status>(
      call,
      [remove = std::move(remove)](FakeImage& image) mutable -> Result<bool> {
        TAILCAST_RETURN_IF_ERROR(remove(image));
        return true;
      },
      [](Callback<void(Status)> d, Result<bool> result) { d(result.status()); });
}

}  // namespace tailcast::storage
