#include "tailcast/storage/fake_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/storage/store_names.h"

namespace tailcast::storage {
namespace {
constexpr size_t kSizeHistoryMax = 64;
}  // namespace

Duration FakeLatency::Draw(Rng& rng) const {
  double us = static_cast<double>(base.micros());
  if (mean_extra.micros() > 0) us += rng.Exponential(static_cast<double>(mean_extra.micros()));
  if (tail_rate > 0 && rng.Chance(tail_rate)) {
    us += rng.Exponential(static_cast<double>(tail_mean.micros()));
  }
  return Duration::Micros(static_cast<int64_t>(us));
}

FakeDiskOptions FakeDiskOptions::Swarm(Rng& rng) {
  const auto exists = [&] { return rng.Chance(0.5); };
  const auto rate = [&](double max) { return exists() ? rng.Unit() * max : 0.0; };
  const auto latency = [&] {
    FakeLatency l;
    l.base = Duration::Micros(rng.Between(10, exists() ? 5'000 : 500));
    l.mean_extra = Duration::Micros(rng.Between(0, exists() ? 10'000 : 200));
    l.tail_rate = rate(0.05);
    l.tail_mean = Duration::Millis(rng.Between(1, 1000));
    return l;
  };
  FakeDiskOptions o;
  o.request = latency();
  o.answer = latency();
  o.append_unknown_rate = rate(0.02);
  o.append_io_error_rate = rate(0.02);
  o.open_error_rate = rate(0.05);
  o.read_error_rate = rate(0.05);
  o.short_read_rate = rate(0.5);
  if (exists()) o.size_lag_max = Duration::Micros(rng.Between(0, 50'000));
  o.answer_timeout = Duration::Millis(rng.Between(50, 5'000));
  return o;
}

// ---------------------------------------------------------------------------------------------
// State of the disk.

struct FakeDisk::File {
  std::string dir;
  std::string name;
  std::string key;
  uint64_t epoch = 1;
  int64_t committed = 0;
  // What lies on the platters: [0, committed) are the file's bytes, the rest is junk that a power
  // loss or a planted bug left.
  std::string physical;
  int64_t unflushed_end = 0;  // for kShowsUnflushed only
  bool named = false;         // false: half created, only the claim is there
  bool deleted = false;
  struct Past {
    MonotonicTime when;
    FileSize size;
  };
  std::deque<Past> history;

  int64_t visible() const { return std::max(committed, unflushed_end); }
  void Remember(MonotonicTime now) {
    history.push_back({now, {committed, epoch}});
    if (history.size() > kSizeHistoryMax) history.pop_front();
  }
};

struct FakeDisk::InFlight {
  std::shared_ptr<File> file;
  uint64_t epoch = 0;
  int64_t offset = 0;
  std::string bytes;
  bool done = false;      // landed, refused or lost: its fate is sealed
  bool reported = false;  // the client was told kUnknown before
  AppendOutcome outcome = AppendOutcome::kUnknown;
  Status error;
};

// Callbacks of one process that wait for an answer.
struct FakeStore::Client {
  EventLoop* loop = nullptr;  // null once the process ended
  uint64_t next_id = 1;
  std::map<uint64_t, Task> cancels;  // by id, so in order of the calls

  uint64_t Add(Task cancel) {
    const uint64_t id = next_id++;
    cancels.emplace(id, std::move(cancel));
    return id;
  }
  // True for the first caller: who takes the id owns the callback.
  bool Take(uint64_t id) { return cancels.erase(id) > 0; }
};

FakeDisk::FakeDisk(EventLoop* loop, uint64_t seed, FakeDiskOptions options)
    : loop_(loop), rng_(seed), options_(options) {}

FakeDisk::~FakeDisk() { *alive_ = false; }

void FakeDisk::AtDisk(Duration delay, Task task) {
  loop_->After(delay, [this, alive = alive_, task = std::move(task)]() mutable {
    if (!*alive) return;
    if (frozen_) {
      held_.push_back(std::move(task));
    } else {
      task();
    }
  });
}

void FakeDisk::Freeze() { frozen_ = true; }

void FakeDisk::Thaw() {
  frozen_ = false;
  std::deque<Task> held = std::move(held_);
  held_.clear();
  for (Task& task : held) task();
}

// The one place where bytes become committed: guard and write are one atomic step.
void FakeDisk::Land(InFlight& append) {
  if (append.done) return;
  append.done = true;
  File& file = *append.file;
  file.unflushed_end = 0;
  const bool guard_holds = file.epoch == append.epoch && !file.deleted;
  if (!guard_holds && (bug_ != FakeDiskBug::kNoEpochGuard || file.deleted)) {
    ++counters_.appends_fenced;
    append.outcome = AppendOutcome::kFenced;
    append.error = AbortedError(file.name + ": fenced by epoch " + std::to_string(file.epoch));
    return;
  }
  const auto size = static_cast<int64_t>(append.bytes.size());
  if (bytes_used() + size > options_.capacity_bytes) {
    append.outcome = AppendOutcome::kUnknown;
    append.error = ResourceExhaustedError(file.name + ": the disk is full");
    return;
  }
  if (bug_ == FakeDiskBug::kNone) {
    TAILCAST_CHECK(file.committed == append.offset, "an epoch has one writer with one append");
  }
  file.physical.resize(static_cast<size_t>(file.committed));
  file.physical.append(append.bytes);
  file.committed += size;
  // spec DuelingWriters: PrimaryAppend.
  if (steps_ != nullptr && size > 0) {
    steps_->Write("PrimaryAppend", {{"dir", std::string_view(file.dir)},
                                    {"name", std::string_view(file.name)},
                                    {"len", file.committed}});
  }
  file.Remember(loop_->Now());
  ++counters_.appends_landed;
  if (append.reported) ++counters_.appends_landed_after_unknown;
  append.outcome = AppendOutcome::kApplied;
}

void FakeDisk::PowerLoss() {
  ++counters_.power_losses;
  ++generation_;
  for (const std::weak_ptr<InFlight>& weak : in_flight_) {
    const std::shared_ptr<InFlight> append = weak.lock();
    if (append == nullptr || append->done) continue;
    File& file = *append->file;
    if (rng_.Chance(0.5)) {
      Land(*append);
      continue;
    }
    append->done = true;
    append->outcome = AppendOutcome::kUnknown;
    append->error = UnavailableError(file.name + ": the disk lost power during the append");
    ++counters_.appends_lost;
    if (file.epoch != append->epoch) continue;
    // Part of the new bytes, then zeros or garbage: the reader of a correct driver sees none of it.
    file.physical.resize(static_cast<size_t>(file.committed));
    const size_t true_bytes = rng_.Below(append->bytes.size() + 1);
    file.physical.append(append->bytes, 0, true_bytes);
    const bool garbage = rng_.Chance(0.5);
    for (size_t i = true_bytes; i < append->bytes.size(); ++i) {
      file.physical.push_back(garbage ? static_cast<char>(rng_.Next()) : '\0');
    }
    file.unflushed_end = 0;
    if (bug_ == FakeDiskBug::kGarbageIsCommitted) {
      file.committed = static_cast<int64_t>(file.physical.size());
      file.Remember(loop_->Now());
    }
  }
  in_flight_.clear();
  for (auto& [path, folder] : folders_) {
    // A creation whose second half was under way: its claim survives or not.
    for (auto it = folder.claims.begin(); it != folder.claims.end();) {
      if (!it->second->named && rng_.Chance(0.5)) {
        it = folder.claims.erase(it);
      } else {
        ++it;
      }
    }
  }
}

int64_t FakeDisk::bytes_used() const {
  int64_t used = 0;
  for (const auto& [path, folder] : folders_) {
    for (const auto& [key, file] : folder.claims) used += file->committed;
  }
  return used;
}

Result<std::string> FakeDisk::Peek(const std::string& dir, const std::string& name) const {
  const auto folder = folders_.find(dir);
  if (folder != folders_.end()) {
    const auto it = folder->second.names.find(name);
    if (it != folder->second.names.end()) {
      return it->second->physical.substr(0, static_cast<size_t>(it->second->committed));
    }
  }
  return NotFoundError(dir + "/" + name);
}

std::vector<std::string> FakeDisk::PeekNames(const std::string& dir) const {
  std::vector<std::string> names;
  const auto folder = folders_.find(dir);
  if (folder == folders_.end()) return names;
  for (const auto& [name, file] : folder->second.names) names.push_back(name);
  return names;
}

// ---------------------------------------------------------------------------------------------
// Handles.

class FakeAppendFile final : public AppendFile {
 public:
  FakeAppendFile(FakeDisk* disk, std::shared_ptr<FakeStore::Client> client,
                 std::shared_ptr<FakeDisk::File> file, uint64_t epoch, int64_t committed,
                 uint64_t generation)
      : state_(std::make_shared<State>(State{disk, disk->alive_, std::move(client), std::move(file),
                                             epoch, committed, generation})) {}
  ~FakeAppendFile() override {
    state_->closed = true;
    if (state_->outstanding == 0) return;
    // The callback runs now rather than when the append lands.
    const auto it = state_->client->cancels.find(state_->outstanding);
    if (it == state_->client->cancels.end()) return;
    Task cancel = std::move(it->second);
    state_->client->cancels.erase(it);
    if (state_->client->loop != nullptr) state_->client->loop->Post(std::move(cancel));
  }

  void AppendAt(int64_t expected_offset, std::string bytes,
                Callback<void(AppendResult)> done) override {
    State& s = *state_;
    TAILCAST_CHECK(s.outstanding == 0, "one append at a time");
    if (s.client->loop == nullptr) return;
    if (!s.dead && (!*s.disk_alive || s.disk->generation_ != s.generation)) {
      s.dead = true;
      s.last = {AppendOutcome::kUnknown, s.committed,
                UnavailableError(s.file->name + ": the disk lost power")};
    }
    if (s.dead || expected_offset != s.committed) {
      AppendResult result = s.last;
      if (!s.dead) {
        result = {AppendOutcome::kWrongOffset, s.committed,
                  FailedPreconditionError(s.file->name + ": append at " +
                                          std::to_string(expected_offset) + ", committed are " +
                                          std::to_string(s.committed))};
      }
      s.client->loop->Post([done = std::move(done), result = std::move(result)]() mutable {
        done(std::move(result));
      });
      return;
    }

    FakeDisk& disk = *s.disk;
    auto append = std::make_shared<FakeDisk::InFlight>();
    append->file = s.file;
    append->epoch = s.epoch;
    append->offset = expected_offset;
    append->bytes = std::move(bytes);
    std::erase_if(disk.in_flight_, [](const auto& weak) {
      const auto other = weak.lock();
      return other == nullptr || other->done;
    });
    disk.in_flight_.push_back(append);
    if (disk.bug_ == FakeDiskBug::kShowsUnflushed && s.file->epoch == s.epoch) {
      s.file->physical.resize(static_cast<size_t>(s.file->committed));
      s.file->physical.append(append->bytes);
      s.file->unflushed_end = static_cast<int64_t>(s.file->physical.size());
    }

    auto callback = std::make_shared<Callback<void(AppendResult)>>(std::move(done));
    const auto finish = [state = state_, callback](AppendResult result) {
      state->outstanding = 0;
      if (result.outcome == AppendOutcome::kApplied) state->committed = result.committed_length;
      if (result.outcome == AppendOutcome::kFenced || result.outcome == AppendOutcome::kUnknown) {
        state->dead = true;
        state->last = result;
      }
      (*callback)(std::move(result));
    };
    const uint64_t id = s.client->Add([finish, append, committed = s.committed] {
      append->reported = true;
      finish({AppendOutcome::kUnknown, committed, CancelledError("the handle was closed")});
    });
    s.outstanding = id;

    const FakeDiskOptions& o = disk.options_;
    const Duration request = o.request.Draw(disk.rng_);
    const Duration answer = o.answer.Draw(disk.rng_);
    const auto report = [state = state_, finish, append, id](AppendResult result, Duration delay) {
      if (state->client->loop == nullptr) return;
      state->client->loop->After(delay, [state, finish, append, id, result]() mutable {
        if (!state->client->Take(id)) return;
        if (result.outcome == AppendOutcome::kUnknown) append->reported = true;
        finish(std::move(result));
      });
    };
    const bool answer_lost = disk.rng_.Chance(o.append_unknown_rate);
    const bool io_error = disk.rng_.Chance(o.append_io_error_rate);
    if (answer_lost || io_error) {
      ++disk.counters_.injected_errors;
      report({AppendOutcome::kUnknown, s.committed,
              answer_lost ? DeadlineExceededError(s.file->name + ": no answer to an append")
                          : UnavailableError(s.file->name + ": Input/output error")},
             answer_lost ? o.answer_timeout : request + answer);
      const uint64_t fate = disk.rng_.Below(3);
      if (fate == 0) {
        ++disk.counters_.appends_lost;
        append->done = true;
        return;
      }
      const Duration landing =
          fate == 1
              ? request
              : request +
                    Duration::Micros(static_cast<int64_t>(disk.rng_.Below(
                        static_cast<uint64_t>(std::max<int64_t>(o.late_landing_max.micros(), 1)))));
      disk.AtDisk(landing, [d = &disk, append] { d->Land(*append); });
      return;
    }
    disk.AtDisk(request, [d = &disk, append, report, answer, committed = s.committed] {
      d->Land(*append);  // nothing if a power loss has decided already
      const bool applied = append->outcome == AppendOutcome::kApplied;
      report({append->outcome,
              applied ? append->offset + static_cast<int64_t>(append->bytes.size()) : committed,
              append->error},
             answer);
    });
  }

  int64_t committed_length() const override { return state_->committed; }
  uint64_t epoch() const override { return state_->epoch; }
  const std::string& name() const override { return state_->file->name; }

 private:
  struct State {
    FakeDisk* disk;
    std::shared_ptr<bool> disk_alive;
    std::shared_ptr<FakeStore::Client> client;
    std::shared_ptr<FakeDisk::File> file;
    uint64_t epoch;
    int64_t committed;
    uint64_t generation;
    bool closed = false;
    bool dead = false;
    AppendResult last;
    uint64_t outstanding = 0;
  };
  const std::shared_ptr<State> state_;
};

class FakeReadFile final : public ReadFile {
 public:
  FakeReadFile(FakeStore* store, std::shared_ptr<FakeDisk::File> file, uint64_t generation)
      : disk_(store->disk_),
        client_(store->client_),
        file_(std::move(file)),
        generation_(generation) {}
  ~FakeReadFile() override {
    for (const uint64_t id : *outstanding_) {
      const auto it = client_->cancels.find(id);
      if (it == client_->cancels.end()) continue;
      Task cancel = std::move(it->second);
      client_->cancels.erase(it);
      if (client_->loop != nullptr) client_->loop->Post(std::move(cancel));
    }
  }

  void Size(Callback<void(Result<FileSize>)> done) override {
    Request<FileSize>(std::move(done), [file = file_, shown = shown_](FakeDisk& disk) {
      FileSize size{file->visible(), file->epoch};
      const int64_t lag_max = disk.options_.size_lag_max.micros();
      if (lag_max > 0) {
        const MonotonicTime then =
            disk.loop_->Now() - Duration::Micros(disk.rng_.Between(0, lag_max));
        // The newest length that is old enough; the oldest we remember if none is.
        for (auto it = file->history.rbegin(); it != file->history.rend(); ++it) {
          size = it->size;
          if (it->when <= then) break;
        }
        if (size.committed_length < file->committed) ++disk.counters_.stale_sizes;
      }
      shown->committed_length = std::max(shown->committed_length, size.committed_length);
      shown->epoch = std::max(shown->epoch, size.epoch);
      return Result<FileSize>(*shown);
    });
  }

  void Read(int64_t offset, int64_t length, Callback<void(Result<std::string>)> done) override {
    Request<std::string>(std::move(done), [file = file_, offset, length](FakeDisk& disk) {
      if (offset < 0 || length < 0) {
        return Result<std::string>(InvalidArgumentError(file->name + ": read of " +
                                                        std::to_string(length) + " bytes at " +
                                                        std::to_string(offset)));
      }
      if (offset >= file->visible()) return Result<std::string>(std::string());
      std::string bytes =
          file->physical.substr(static_cast<size_t>(offset),
                                static_cast<size_t>(std::min(length, file->visible() - offset)));
      if (bytes.size() > 1 && disk.rng_.Chance(disk.options_.short_read_rate)) {
        ++disk.counters_.short_reads;
        bytes.resize(1 + disk.rng_.Below(bytes.size() - 1));
      }
      return Result<std::string>(std::move(bytes));
    });
  }

 private:
  template <typename T, typename Look>
  void Request(Callback<void(Result<T>)> done, Look look) {
    if (client_->loop == nullptr) return;
    auto callback = std::make_shared<Callback<void(Result<T>)>>(std::move(done));
    const uint64_t id =
        client_->Add([callback] { (*callback)(CancelledError("the handle was closed")); });
    outstanding_->insert(id);
    disk_->AtDisk(disk_->options_.request.Draw(disk_->rng_),
                  [disk = disk_, client = client_, outstanding = outstanding_, file = file_, id,
                   callback, look = std::move(look), generation = generation_] {
                    if (client->loop == nullptr) return;
                    Result<T> result = UnavailableError(file->name + ": the disk lost power");
                    if (disk->generation_ == generation) {
                      if (disk->rng_.Chance(disk->options_.read_error_rate)) {
                        ++disk->counters_.injected_errors;
                        result = UnavailableError(file->name + ": Input/output error");
                      } else {
                        result = look(*disk);
                      }
                    }
                    client->loop->After(
                        disk->options_.answer.Draw(disk->rng_),
                        [client, outstanding, id, callback, result = std::move(result)]() mutable {
                          if (!client->Take(id)) return;
                          outstanding->erase(id);
                          (*callback)(std::move(result));
                        });
                  });
  }

  FakeDisk* const disk_;
  const std::shared_ptr<FakeStore::Client> client_;
  const std::shared_ptr<FakeDisk::File> file_;
  const uint64_t generation_;
  const std::shared_ptr<FileSize> shown_ = std::make_shared<FileSize>();
  const std::shared_ptr<std::set<uint64_t>> outstanding_ = std::make_shared<std::set<uint64_t>>();
};

// ---------------------------------------------------------------------------------------------
// The store.

FakeStore::FakeStore(FakeDisk* disk, EventLoop* loop)
    : disk_(disk), client_(std::make_shared<Client>()) {
  client_->loop = loop;
}

FakeStore::~FakeStore() {
  EventLoop* const loop = client_->loop;
  client_->loop = nullptr;
  std::map<uint64_t, Task> cancels = std::move(client_->cancels);
  client_->cancels.clear();
  for (auto& [id, cancel] : cancels) loop->Post(std::move(cancel));
}

// A request that changes or looks at folders. `apply(disk)` runs when it lands.
template <typename T>
void FakeStore::Request(std::function<Result<T>(bool)> apply, Callback<void(Result<T>)> done) {
  if (client_->loop == nullptr) return;
  auto callback = std::make_shared<Callback<void(Result<T>)>>(std::move(done));
  const uint64_t id =
      client_->Add([callback] { (*callback)(CancelledError("the store was closed")); });
  FakeDisk* disk = disk_;
  const bool fails = disk->rng_.Chance(disk->options_.open_error_rate);
  const bool undone = fails && disk->rng_.Chance(0.5);
  disk->AtDisk(disk->options_.request.Draw(disk->rng_), [disk, client = client_, id, callback,
                                                         apply = std::move(apply), fails, undone,
                                                         generation = disk->generation_] {
    Result<T> result = UnavailableError("the disk lost power");
    if (disk->generation_ == generation) {
      if (!undone) result = apply(client->loop != nullptr);
      if (fails) {
        ++disk->counters_.injected_errors;
        result = UnavailableError("Input/output error");
      }
    }
    if (client->loop == nullptr) return;
    auto answer = std::make_shared<Result<T>>(std::move(result));
    client->loop->After(disk->options_.answer.Draw(disk->rng_), [client, id, callback, answer] {
      if (client->Take(id)) (*callback)(std::move(*answer));
    });
  });
}

void FakeStore::CreateExclusive(const std::string& dir, const std::string& name,
                                const std::string& key,
                                Callback<void(Result<std::unique_ptr<AppendFile>>)> done) {
  using Opened = Result<std::unique_ptr<AppendFile>>;
  Status bad = CheckFolder(dir);
  if (bad.ok()) bad = CheckFileName("file name", name);
  if (bad.ok()) bad = CheckFileName("key", key);
  if (!bad.ok()) {
    client_->loop->Post([done = std::move(done), bad]() mutable { done(bad); });
    return;
  }
  // Two landings, as in a driver that first claims the key and then names the file. In between the
  // process may die: whoever finds the claim next completes the creation.
  FakeDisk* disk = disk_;
  auto claimed = std::make_shared<std::shared_ptr<FakeDisk::File>>();
  Callback<void(Opened)> second = [this, disk, client = client_, dir, claimed,
                                   done = std::move(done)](Opened first) mutable {
    if (!first.ok() || *claimed == nullptr) {
      done(std::move(first));
      return;
    }
    // Not reached after the store was closed: the first callback is then Cancelled.
    Request<std::unique_ptr<AppendFile>>(
        [disk, client, dir, claimed](bool) -> Opened {
          FakeDisk::File& file = **claimed;
          if (file.deleted) return AbortedError(file.name + ": was deleted meanwhile");
          // A power loss between the two halves may have taken the claim, and with it the right to
          // the name.
          const auto& claims = disk->folders_[dir].claims;
          const auto claim = claims.find(file.key);
          if (claim == claims.end() || claim->second != *claimed) {
            return UnavailableError(file.name + ": its creation was lost with the disk's power");
          }
          file.named = true;
          disk->folders_[dir].names[file.name] = *claimed;
          return std::unique_ptr<AppendFile>(
              std::make_unique<FakeAppendFile>(disk, client, *claimed, 1, 0, disk->generation_));
        },
        std::move(done));
  };
  Request<std::unique_ptr<AppendFile>>(
      [disk, dir, name, key, claimed](bool) -> Opened {
        for (size_t slash = dir.find('/'); slash != std::string::npos;
             slash = dir.find('/', slash + 1)) {
          disk->folders_[dir.substr(0, slash)];
        }
        FakeDisk::Folder& folder = disk->folders_[dir];
        if (const auto it = folder.claims.find(key); it != folder.claims.end()) {
          FakeDisk::File& winner = *it->second;
          if (!winner.named) {
            ++disk->counters_.creations_helped;
            winner.named = true;
            folder.names[winner.name] = it->second;
          }
          return AlreadyExistsError(winner.name);
        }
        if (folder.names.contains(name)) {
          return FailedPreconditionError(dir + "/" + name + ": exists under another key");
        }
        auto file = std::make_shared<FakeDisk::File>();
        file->dir = dir;
        file->name = name;
        file->key = key;
        file->Remember(disk->loop_->Now());
        folder.claims[key] = file;
        *claimed = file;
        return std::unique_ptr<AppendFile>();
      },
      std::move(second));
}

void FakeStore::OpenFencing(const std::string& dir, const std::string& name,
                            Callback<void(Result<std::unique_ptr<AppendFile>>)> done) {
  using Opened = Result<std::unique_ptr<AppendFile>>;
  FakeDisk* disk = disk_;
  Request<std::unique_ptr<AppendFile>>(
      [disk, client = client_, dir, name](bool) -> Opened {
        const auto folder = disk->folders_.find(dir);
        if (folder == disk->folders_.end() || !folder->second.names.contains(name)) {
          return NotFoundError(dir + "/" + name);
        }
        const std::shared_ptr<FakeDisk::File>& file = folder->second.names[name];
        ++file->epoch;
        file->unflushed_end = 0;
        file->Remember(disk->loop_->Now());
        return std::unique_ptr<AppendFile>(std::make_unique<FakeAppendFile>(
            disk, client, file, file->epoch, file->committed, disk->generation_));
      },
      std::move(done));
}

void FakeStore::OpenRead(const std::string& dir, const std::string& name,
                         Callback<void(Result<std::unique_ptr<ReadFile>>)> done) {
  using Opened = Result<std::unique_ptr<ReadFile>>;
  FakeDisk* disk = disk_;
  Request<std::unique_ptr<ReadFile>>(
      [this, disk, dir, name](bool store_lives) -> Opened {
        if (!store_lives) return CancelledError("the store was closed");
        const auto folder = disk->folders_.find(dir);
        if (folder == disk->folders_.end() || !folder->second.names.contains(name)) {
          return NotFoundError(dir + "/" + name);
        }
        return std::unique_ptr<ReadFile>(
            std::make_unique<FakeReadFile>(this, folder->second.names[name], disk->generation_));
      },
      std::move(done));
}

void FakeStore::List(const std::string& dir, Callback<void(Result<std::vector<DirEntry>>)> done) {
  Request<std::vector<DirEntry>>(
      [disk = disk_, dir](bool) -> Result<std::vector<DirEntry>> {
        std::vector<DirEntry> entries;
        for (const std::string& name : disk->PeekNames(dir)) entries.push_back({name});
        return entries;
      },
      std::move(done));
}

void FakeStore::ListDirs(const std::string& dir,
                         Callback<void(Result<std::vector<std::string>>)> done) {
  Request<std::vector<std::string>>(
      [disk = disk_, dir](bool) -> Result<std::vector<std::string>> {
        std::vector<std::string> names;
        const std::string prefix = dir.empty() ? "" : dir + "/";
        for (auto it = disk->folders_.lower_bound(prefix);
             it != disk->folders_.end() && it->first.starts_with(prefix); ++it) {
          const std::string rest = it->first.substr(prefix.size());
          if (!rest.empty() && rest.find('/') == std::string::npos) names.push_back(rest);
        }
        return names;
      },
      std::move(done));
}

void FakeStore::Delete(const std::string& dir, const std::string& name,
                       Callback<void(Status)> done) {
  Request<bool>(
      [disk = disk_, dir, name](bool) -> Result<bool> {
        const auto folder = disk->folders_.find(dir);
        if (folder == disk->folders_.end() || !folder->second.names.contains(name)) {
          return NotFoundError(dir + "/" + name);
        }
        const std::shared_ptr<FakeDisk::File> file = folder->second.names[name];
        file->deleted = true;
        ++file->epoch;
        folder->second.names.erase(name);
        folder->second.claims.erase(file->key);
        return true;
      },
      [done = std::move(done)](Result<bool> result) mutable { done(result.status()); });
}

}  // namespace tailcast::storage
