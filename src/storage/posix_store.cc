#include "tailcast/storage/posix_store.h"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/log.h"
#include "tailcast/base/scope.h"
#include "tailcast/storage/blocking_pool.h"
#include "tailcast/storage/file_faults.h"
#include "tailcast/storage/loop_gate.h"
#include "tailcast/storage/outstanding_calls.h"
#include "tailcast/storage/posix_file.h"
#include "tailcast/storage/posix_reserve.h"
#include "tailcast/storage/slow_calls.h"
#include "tailcast/storage/store_metrics.h"
#include "tailcast/storage/store_names.h"
#include "tailcast/storage/unawaited_threads.h"

namespace tailcast::storage {
namespace {

const Logger kLog("storage");

// Where in the kernel these threads of this process wait, for people.
std::string WhereTheyWait(const std::vector<pid_t>& threads) {
  std::set<std::string> places;
  for (const pid_t thread : threads) {
    std::string place;
    std::ifstream("/proc/self/task/" + std::to_string(thread) + "/wchan") >> place;
    if (!place.empty() && place != "0") places.insert(std::move(place));
  }
  std::string all;
  for (const std::string& place : places) all += (all.empty() ? "" : ", ") + place;
  return all;
}

}  // namespace

// What handles need of their store. It outlives the store as long as a handle does, or a call that
// hung when the store was closed.
struct PosixStore::Core {
  Core(EventLoop* l, std::unique_ptr<FileOps> o, const PosixStoreOptions& opts)
      : loop(l),
        options(opts),
        ops(std::move(o)),
        reserve(ops.get()),
        reserving(posix::UseReserve(ops.get(), &reserve)),
        registry(opts.metrics != nullptr ? *opts.metrics : ProcessMetrics()),
        metrics(registry),
        slow_sizes(registry.GetCounter(
            "tailcast_storage_recovered_sizes_total",
            "Sizes that were not at hand in memory, or were computed from slots.")),
        given_up(registry.GetCounter(
            "tailcast_storage_given_up_total",
            "Calls of the posix driver that the kernel did not answer by their deadline.")),
        gate(std::make_shared<LoopGate>(l)),
        open(std::make_unique<Open>(this)) {
    context.ops = makes_reserve() ? reserving.get() : ops.get();
    context.durability = opts.durability;
    context.lengths = opts.steps.get();
    if (!makes_reserve()) context.reserve = &reserve;
  }

  bool makes_reserve() const { return options.use == StoreUse::kRecords; }
  // On a pool's thread, when something may have been removed, whose room is there once it is
  // closed.
  Status Removed(Status status) {
    if (makes_reserve()) reserve.MakeWhole();
    return status;
  }

  // What ends with the store.
  struct Open {
    explicit Open(Core* core)
        : slow(core->loop, core->options.name, {.slow_after = core->options.slow_after},
               [core] { core->Look(); }),
          writes("storage-write", core->options.write_threads_max),
          reads("storage-read", core->options.read_threads_max) {}
    SlowCalls slow;
    BlockingPool writes;
    BlockingPool reads;
    OutstandingCalls calls;
    Scope scope;
  };
  using Pool = BlockingPool Open::*;

  // Runs `work` on a pool's thread and `done(its result)` on the loop; `done(failed(why))` if it
  // has none by the deadline, or when the store is closed. `what`: for people.
  template <typename T>
  void Run(Pool pool, std::string what, std::function<T(Status)> failed, UniqueFunction<T()> work,
           Callback<void(T)> done) {
    T closed = failed(CancelledError(what + ": the store was closed"));
    if (open == nullptr) {
      loop->Post(std::move(done).With(std::move(closed)));
      return;
    }
    const CallId<T> call = open->calls.Add(std::move(done), std::move(closed));
    open->slow.Begin(
        call.number, loop->Now() + options.deadline, what,
        [this, pool, call, what, failed](const std::string& cause) {
          given_up.Add();
          (open.get()->*pool).Drop(call.number);
          open->calls.Answer(
              call, failed(DeadlineExceededError(what + ": no answer in time" +
                                                 (cause.empty() ? std::string() : ": " + cause))));
        });
    Callback<void(T)> answered = open->scope.Bind([this, call](T result) {
      open->slow.OnAnswered(call.number);
      open->calls.Answer(call, std::move(result));
    });
    (open.get()->*pool)
        .Submit(call.number,
                [gate = gate, work = std::move(work), answered = std::move(answered)]() mutable {
                  T result = work();
                  work = nullptr;
                  gate->Post(std::move(answered).With(std::move(result)));
                });
  }
  // As above; `failed` is the status itself.
  template <typename T>
  void Run(Pool pool, std::string what, UniqueFunction<T()> work, Callback<void(T)> done) {
    Run<T>(
        pool, std::move(what), [](Status why) { return T(std::move(why)); }, std::move(work),
        std::move(done));
  }

  // For why nothing answers.
  void Look() {
    std::vector<pid_t> threads = open->writes.busy();
    for (const pid_t thread : open->reads.busy()) threads.push_back(thread);
    const std::string where = WhereTheyWait(threads);
    open->slow.OnCause(
        "the disk or mount hangs, or is very slow" +
        (where.empty() ? std::string() : "; threads wait in the kernel at " + where) +
        "; the kernel's log (dmesg) may say more");
  }

  void Close() {
    gate->Close();
    open->calls.CloseAll(*loop);
    open->writes.Close();
    open->reads.Close();
    const MonotonicTime until = ReadMonotonicClock() + options.close_wait;
    const size_t left = open->writes.End(until) + open->reads.End(until);
    if (left > 0) {
      kLog.Warn(options.name, ": closed while ", left, left == 1 ? " call hangs" : " calls hang",
                ", which may be done later");
    }
    open = nullptr;
  }

  EventLoop* const loop;
  const PosixStoreOptions options;
  const std::unique_ptr<FileOps> ops;
  posix::Reserve reserve;
  const std::unique_ptr<FileOps> reserving;
  posix::Context context;
  MetricRegistry& registry;
  StoreMetrics metrics;
  Counter& slow_sizes;
  Counter& given_up;
  const std::shared_ptr<LoopGate> gate;
  std::unique_ptr<Open> open;  // null after the store was closed
};

namespace {

using Core = PosixStore::Core;

// A handle that is closed answers its outstanding calls at once. Their system calls go on, and what
// comes of them is dropped with the handle's scope.
class PosixAppendFile final : public AppendFile {
 public:
  PosixAppendFile(std::shared_ptr<Core> core, std::unique_ptr<posix::Appender> appender)
      : core_(std::move(core)),
        name_(appender->name()),
        epoch_(appender->epoch()),
        appender_(std::move(appender)),
        committed_(appender_->committed_length()) {}
  ~PosixAppendFile() override {
    if (outstanding_.number != 0) core_->metrics.unknown.Add();
    calls_.CloseAll(*core_->loop);
  }

  void AppendAt(int64_t expected_offset, std::string bytes,
                Callback<void(AppendResult)> done) override {
    TAILCAST_CHECK(outstanding_.number == 0, "one append at a time");
    if (dead_) return AnswerNow(last_, std::move(done));
    if (expected_offset != committed_) {
      return AnswerNow(WrongOffset(name_, expected_offset, committed_), std::move(done));
    }
    const int64_t committed = committed_;
    outstanding_ = calls_.Add<AppendResult>(
        std::move(done), {AppendOutcome::kUnknown, committed, ClosedError(name_)});
    core_->Run<AppendResult>(
        &Core::Open::writes, "append to " + name_,
        [committed](Status why) {
          return AppendResult{AppendOutcome::kUnknown, committed, std::move(why)};
        },
        [core = core_, appender = appender_, bytes = std::move(bytes)] {
          const MonotonicTime start = ReadMonotonicClock();
          AppendResult result = appender->Append(bytes);
          core->metrics.append_micros.Add((ReadMonotonicClock() - start).micros());
          if (result.outcome == AppendOutcome::kApplied) {
            core->metrics.append_bytes.Add(static_cast<int64_t>(bytes.size()));
          }
          return result;
        },
        scope_.Bind([this](AppendResult result) { OnAppended(std::move(result)); }));
  }
  int64_t committed_length() const override { return committed_; }
  Epoch epoch() const override { return epoch_; }
  const std::string& name() const override { return name_; }

 private:
  void AnswerNow(AppendResult result, Callback<void(AppendResult)> done) {
    core_->metrics.Of(result.outcome).Add();
    core_->loop->Post(std::move(done).With(std::move(result)));
  }
  void OnAppended(AppendResult result) {
    core_->metrics.Of(result.outcome).Add();
    if (result.outcome == AppendOutcome::kApplied) {
      committed_ = result.committed_length;
    } else {
      dead_ = true;
      last_ = result;
    }
    calls_.Answer(std::exchange(outstanding_, {}), std::move(result));
  }

  const std::shared_ptr<Core> core_;
  const std::string name_;
  const Epoch epoch_;
  const std::shared_ptr<posix::Appender> appender_;  // used on the pool's threads, one at a time
  int64_t committed_;
  bool dead_ = false;
  AppendResult last_;  // when dead
  CallId<AppendResult> outstanding_;
  OutstandingCalls calls_;
  Scope scope_;
};

class PosixReadFile final : public ReadFile {
 public:
  PosixReadFile(std::shared_ptr<Core> core, std::string name, std::unique_ptr<posix::Reader> reader)
      : core_(std::move(core)), name_(std::move(name)), reader_(std::move(reader)) {}
  ~PosixReadFile() override { calls_.CloseAll(*core_->loop); }

  void Size(Callback<void(Result<FileSize>)> done) override {
    Callback<void(Result<FileSize>)> sized = Answered(std::move(done));
    FileSize size;
    if (reader_->FastSize(size)) {
      core_->loop->Post(std::move(sized).With(Result<FileSize>(size)));
      return;
    }
    core_->slow_sizes.Add();
    core_->Run<Result<FileSize>>(
        &Core::Open::reads, "size of " + name_, [reader = reader_] { return reader->Size(); },
        std::move(sized));
  }

  void CheckedSize(Callback<void(Result<FileSize>)> done) override {
    core_->Run<Result<FileSize>>(
        &Core::Open::reads, "check " + name_, [reader = reader_] { return reader->CheckedSize(); },
        Answered(std::move(done)));
  }

  void Read(int64_t offset, int64_t length, Callback<void(Result<std::string>)> done) override {
    core_->metrics.reads.Add();
    if (core_->open != nullptr && core_->open->reads.queued() >= core_->options.queued_reads_max) {
      core_->metrics.reads_refused.Add();
      core_->loop->Post(std::move(done).With(Result<std::string>(
          ResourceExhaustedError("read " + name_ + ": too many reads are waiting; slow down"))));
      return;
    }
    core_->Run<Result<std::string>>(
        &Core::Open::reads, "read " + name_,
        [core = core_, reader = reader_, offset, length] {
          Result<std::string> bytes = reader->Read(offset, length);
          if (bytes.ok()) {
            core->metrics.read_bytes.Add(static_cast<int64_t>(bytes->size()));
          } else {
            core->metrics.read_errors.Add();
          }
          return bytes;
        },
        Answered(std::move(done)));
  }

 private:
  // For the result of a call: calls back, if the handle was not closed meanwhile.
  template <typename T>
  Callback<void(Result<T>)> Answered(Callback<void(Result<T>)> done) {
    const auto call = calls_.Add<Result<T>>(std::move(done), ClosedError(name_));
    return scope_.Bind([this, call](Result<T> result) { calls_.Answer(call, std::move(result)); });
  }

  const std::shared_ptr<Core> core_;
  const std::string name_;
  const std::shared_ptr<posix::Reader> reader_;
  OutstandingCalls calls_;
  Scope scope_;
};

}  // namespace

Result<std::unique_ptr<PosixStore>> PosixStore::Open(EventLoop* loop, const std::string& root,
                                                     PosixStoreOptions options) {
  FileOpsOptions file_ops;
  file_ops.durable = options.durability == posix::Durability::kDurable;
  using Opened = Result<std::unique_ptr<FileOps>>;
  std::optional<Opened> opened = Within<Opened>(
      options.open_wait, "storage-open",
      [root, file_ops, use = options.use]() -> Opened {
        if (mkdir(root.c_str(), 0755) != 0 && errno != EEXIST) {
          return ErrnoStatus(errno, "make storage folder " + root);
        }
        TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<FileOps> ops, OpenFileOps(root, file_ops));
        if (use == StoreUse::kRecords) posix::Reserve(ops.get()).MakeWhole();
        return WithFileFaultsOfEnvironment(std::move(ops), root);
      },
      "folder " + root);
  if (!opened.has_value()) {
    return UnavailableError("storage folder " + root +
                            ": the kernel does not answer; its disk or mount hangs");
  }
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<FileOps> ops, *std::move(opened));
  options.name = "storage folder " + root;
  return std::make_unique<PosixStore>(loop, std::move(ops), options);
}

PosixStore::PosixStore(EventLoop* loop, std::unique_ptr<FileOps> ops, PosixStoreOptions options)
    : core_(std::make_shared<Core>(loop, std::move(ops), options)) {}

PosixStore::~PosixStore() { core_->Close(); }

// Handles are made on the pool's thread and handed to the loop with their callback.
void PosixStore::CreateExclusive(const std::string& dir, const std::string& name,
                                 const std::string& key,
                                 Callback<void(Result<std::unique_ptr<AppendFile>>)> done) {
  using Opened = Result<std::unique_ptr<AppendFile>>;
  core_->Run<Opened>(
      &Core::Open::writes, "create " + name,
      [core = core_, dir, name, key]() -> Opened {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        TAILCAST_RETURN_IF_ERROR(CheckFileName("file name", name));
        TAILCAST_RETURN_IF_ERROR(CheckFileName("key", key));
        TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<posix::Appender> appender,
                                  posix::CreateExclusive(core->context, dir, name, key));
        return std::unique_ptr<AppendFile>(
            std::make_unique<PosixAppendFile>(core, std::move(appender)));
      },
      std::move(done));
}

void PosixStore::OpenFencing(const std::string& dir, const std::string& name,
                             Callback<void(Result<std::unique_ptr<AppendFile>>)> done) {
  using Opened = Result<std::unique_ptr<AppendFile>>;
  core_->Run<Opened>(
      &Core::Open::writes, "open " + name,
      [core = core_, dir, name]() -> Opened {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        TAILCAST_RETURN_IF_ERROR(CheckFileName("file name", name));
        TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<posix::Appender> appender,
                                  posix::OpenFencing(core->context, dir, name));
        core->metrics.takeovers.Add();
        return std::unique_ptr<AppendFile>(
            std::make_unique<PosixAppendFile>(core, std::move(appender)));
      },
      std::move(done));
}

void PosixStore::OpenRead(const std::string& dir, const std::string& name,
                          Callback<void(Result<std::unique_ptr<ReadFile>>)> done) {
  using Opened = Result<std::unique_ptr<ReadFile>>;
  core_->Run<Opened>(
      &Core::Open::reads, "open " + name,
      [core = core_, dir, name]() -> Opened {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        TAILCAST_RETURN_IF_ERROR(CheckFileName("file name", name));
        TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<posix::Reader> reader,
                                  posix::OpenRead(core->context, dir, name));
        return std::unique_ptr<ReadFile>(
            std::make_unique<PosixReadFile>(core, name, std::move(reader)));
      },
      std::move(done));
}

void PosixStore::List(const std::string& dir, Callback<void(Result<std::vector<DirEntry>>)> done) {
  using Entries = Result<std::vector<DirEntry>>;
  core_->Run<Entries>(
      &Core::Open::reads, "list " + dir,
      [core = core_, dir]() -> Entries {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        TAILCAST_ASSIGN_OR_RETURN(std::vector<std::string> names, posix::List(core->context, dir));
        std::vector<DirEntry> entries;
        for (std::string& name : names) entries.push_back({std::move(name)});
        return entries;
      },
      std::move(done));
}

void PosixStore::ListDirs(const std::string& dir,
                          Callback<void(Result<std::vector<std::string>>)> done) {
  using Names = Result<std::vector<std::string>>;
  core_->Run<Names>(
      &Core::Open::reads, "list " + dir,
      [core = core_, dir]() -> Names {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        return posix::ListFolders(core->context, dir);
      },
      std::move(done));
}

void PosixStore::Delete(const std::string& dir, const std::string& name,
                        Callback<void(Status)> done) {
  core_->Run<Status>(
      &Core::Open::writes, "delete " + name,
      [core = core_, dir, name]() -> Status {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        TAILCAST_RETURN_IF_ERROR(CheckFileName("file name", name));
        return core->Removed(posix::Delete(core->context, dir, name));
      },
      std::move(done));
}

void PosixStore::Identify(const std::string& dir, const std::string& name,
                          Callback<void(Result<std::string>)> done) {
  using Id = Result<std::string>;
  core_->Run<Id>(
      &Core::Open::reads, "identify " + name,
      [core = core_, dir, name]() -> Id {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        TAILCAST_RETURN_IF_ERROR(CheckFileName("file name", name));
        return posix::Identify(core->context, dir, name);
      },
      std::move(done));
}

void PosixStore::DeleteExactly(const std::string& dir, const std::string& name,
                               const std::string& id, Callback<void(Status)> done) {
  core_->Run<Status>(
      &Core::Open::writes, "delete " + name,
      [core = core_, dir, name, id]() -> Status {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        TAILCAST_RETURN_IF_ERROR(CheckFileName("file name", name));
        return core->Removed(posix::DeleteExactly(core->context, dir, name, id));
      },
      std::move(done));
}

void PosixStore::Quarantine(const std::string& dir, const std::string& name,
                            Callback<void(Status)> done) {
  core_->Run<Status>(
      &Core::Open::writes, "set aside " + name,
      // Who hears of no end by the deadline tries again, and then makes the file anew.
      [core = core_, dir, name, until = core_->loop->Now() + core_->options.deadline]() -> Status {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        TAILCAST_RETURN_IF_ERROR(CheckFileName("file name", name));
        TAILCAST_RETURN_IF_ERROR(posix::Quarantine(
            core->context, dir, name, [until] { return ReadMonotonicClock() < until; }));
        core->metrics.quarantined.Add();
        return OkStatus();
      },
      std::move(done));
}

void PosixStore::Room(Callback<void(Result<StoreRoom>)> done) {
  core_->Run<Result<StoreRoom>>(
      &Core::Open::writes, "look at the room",
      [core = core_] {
        if (core->makes_reserve()) core->reserve.MakeWhole();
        return core->reserve.Room();
      },
      std::move(done));
}

}  // namespace tailcast::storage
