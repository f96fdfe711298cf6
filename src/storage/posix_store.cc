#include "tailcast/storage/posix_store.h"

#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/storage/blocking_pool.h"
#include "tailcast/storage/posix_file.h"
#include "tailcast/storage/store_names.h"

namespace tailcast::storage {
namespace {

struct Metrics {
  explicit Metrics(MetricRegistry& registry)
      : applied(Outcome(registry, "applied")),
        fenced(Outcome(registry, "fenced")),
        wrong_offset(Outcome(registry, "wrong_offset")),
        unknown(Outcome(registry, "unknown")),
        append_bytes(registry.GetCounter("tailcast_storage_append_bytes_total",
                                         "Bytes of applied appends to the primary layer.")),
        append_micros(registry.GetCounter("tailcast_storage_append_microseconds_total",
                                          "Time that appends spent in system calls.")),
        takeovers(registry.GetCounter("tailcast_storage_takeovers_total",
                                      "Files opened for append by fencing earlier writers.")),
        reads(registry.GetCounter("tailcast_storage_reads_total", "Reads of the primary layer.")),
        read_bytes(registry.GetCounter("tailcast_storage_read_bytes_total",
                                       "Bytes read from the primary layer.")),
        read_errors(registry.GetCounter("tailcast_storage_read_errors_total",
                                        "Reads of the primary layer that failed.")),
        reads_refused(registry.GetCounter("tailcast_storage_reads_refused_total",
                                          "Reads refused because too many were waiting.")),
        slow_sizes(registry.GetCounter("tailcast_storage_recovered_sizes_total",
                                       "Sizes computed from durable slots after a restart.")) {}
  static Counter& Outcome(MetricRegistry& registry, const char* outcome) {
    return registry.GetCounter("tailcast_storage_appends_total",
                               "Appends to the primary layer by outcome.", {{"outcome", outcome}});
  }
  Counter& Of(AppendOutcome outcome) {
    switch (outcome) {
      case AppendOutcome::kApplied:
        return applied;
      case AppendOutcome::kFenced:
        return fenced;
      case AppendOutcome::kWrongOffset:
        return wrong_offset;
      case AppendOutcome::kUnknown:
        break;
    }
    return unknown;
  }
  Counter& applied;
  Counter& fenced;
  Counter& wrong_offset;
  Counter& unknown;
  Counter& append_bytes;
  Counter& append_micros;
  Counter& takeovers;
  Counter& reads;
  Counter& read_bytes;
  Counter& read_errors;
  Counter& reads_refused;
  Counter& slow_sizes;
};

}  // namespace

// What handles need of their store. It outlives the store as long as a handle does; the pools end
// with the store.
struct PosixStore::Core {
  Core(EventLoop* l, std::unique_ptr<FileOps> o, const PosixStoreOptions& opts)
      : loop(l),
        options(opts),
        ops(std::move(o)),
        metrics(opts.metrics != nullptr ? *opts.metrics : ProcessMetrics()),
        writes(std::make_unique<BlockingPool>("storage-write", opts.write_threads_max)),
        reads(std::make_unique<BlockingPool>("storage-read", opts.read_threads_max)) {
    context.ops = ops.get();
    context.durability = opts.durability;
    context.lengths = opts.steps;
  }

  // Runs `work` on a pool thread and `done(result)` on the loop. After the store was closed, `done`
  // gets `cancelled`.
  template <typename T>
  void Run(std::unique_ptr<BlockingPool>& pool, T cancelled, UniqueFunction<T()> work,
           Callback<void(T)> done) {
    if (pool == nullptr) {
      loop->Post([done = std::move(done), cancelled = std::move(cancelled)]() mutable {
        done(std::move(cancelled));
      });
      return;
    }
    pool->Submit([this, work = std::move(work), done = std::move(done),
                  cancelled = std::move(cancelled)]() mutable {
      T result = closing ? std::move(cancelled) : work();
      work = nullptr;
      loop->Post([done = std::move(done), result = std::move(result)]() mutable {
        done(std::move(result));
      });
    });
  }

  EventLoop* const loop;
  const PosixStoreOptions options;
  const std::unique_ptr<FileOps> ops;
  posix::Context context;
  Metrics metrics;
  std::atomic<bool> closing{false};
  std::unique_ptr<BlockingPool> writes;  // null after the store was closed
  std::unique_ptr<BlockingPool> reads;
};

namespace {

Status ClosedError(const std::string& what) {
  return CancelledError(what + ": the handle was closed");
}

class PosixAppendFile final : public AppendFile {
 public:
  PosixAppendFile(std::shared_ptr<PosixStore::Core> core, std::unique_ptr<posix::Appender> appender)
      : core_(std::move(core)),
        name_(appender->name()),
        epoch_(appender->epoch()),
        state_(std::make_shared<State>()) {
    state_->committed = appender->committed_length();
    state_->appender = std::move(appender);
  }
  ~PosixAppendFile() override { state_->closed = true; }

  void AppendAt(int64_t expected_offset, std::string bytes,
                Callback<void(AppendResult)> done) override {
    TAILCAST_CHECK(!state_->outstanding, "one append at a time");
    if (state_->dead) return Answer(state_->last, std::move(done));
    if (expected_offset != state_->committed) {
      return Answer(
          {AppendOutcome::kWrongOffset, state_->committed,
           FailedPreconditionError(name_ + ": append at " + std::to_string(expected_offset) +
                                   ", committed are " + std::to_string(state_->committed))},
          std::move(done));
    }
    state_->outstanding = true;
    core_->Run<AppendResult>(
        core_->writes, {AppendOutcome::kUnknown, state_->committed, ClosedError(name_)},
        [core = core_, state = state_, bytes = std::move(bytes)] {
          const MonotonicTime start = ReadMonotonicClock();
          AppendResult result = state->appender->Append(bytes);
          core->metrics.append_micros.Add((ReadMonotonicClock() - start).micros());
          if (result.outcome == AppendOutcome::kApplied) {
            core->metrics.append_bytes.Add(static_cast<int64_t>(bytes.size()));
          }
          return result;
        },
        [core = core_, state = state_, name = name_,
         done = std::move(done)](AppendResult result) mutable {
          state->outstanding = false;
          if (state->closed) {
            result = {AppendOutcome::kUnknown, state->committed, ClosedError(name)};
          }
          core->metrics.Of(result.outcome).Add();
          if (result.outcome == AppendOutcome::kApplied) {
            state->committed = result.committed_length;
          } else {
            state->dead = true;
            state->last = result;
          }
          done(std::move(result));
        });
  }
  int64_t committed_length() const override { return state_->committed; }
  uint64_t epoch() const override { return epoch_; }
  const std::string& name() const override { return name_; }

 private:
  struct State {
    std::unique_ptr<posix::Appender> appender;  // used by one task at a time
    int64_t committed = 0;
    bool outstanding = false;
    bool dead = false;
    bool closed = false;
    AppendResult last;
  };
  void Answer(AppendResult result, Callback<void(AppendResult)> done) {
    core_->metrics.Of(result.outcome).Add();
    core_->loop->Post([done = std::move(done), result = std::move(result)]() mutable {
      done(std::move(result));
    });
  }

  const std::shared_ptr<PosixStore::Core> core_;
  const std::string name_;
  const uint64_t epoch_;
  const std::shared_ptr<State> state_;
};

class PosixReadFile final : public ReadFile {
 public:
  PosixReadFile(std::shared_ptr<PosixStore::Core> core, std::string name,
                std::unique_ptr<posix::Reader> reader)
      : core_(std::move(core)), name_(std::move(name)), reader_(std::move(reader)) {}
  ~PosixReadFile() override { *closed_ = true; }

  void Size(Callback<void(Result<FileSize>)> done) override {
    FileSize size;
    if (reader_->FastSize(size)) {
      core_->loop->Post([done = std::move(done), closed = closed_, name = name_, size]() mutable {
        if (*closed) {
          done(ClosedError(name));
        } else {
          done(size);
        }
      });
      return;
    }
    core_->metrics.slow_sizes.Add();
    core_->Run<Result<FileSize>>(
        core_->reads, ClosedError(name_), [reader = reader_] { return reader->Size(); },
        Guard<FileSize>(std::move(done)));
  }

  void Read(int64_t offset, int64_t length, Callback<void(Result<std::string>)> done) override {
    core_->metrics.reads.Add();
    if (core_->reads != nullptr && core_->reads->queued() >= core_->options.queued_reads_max) {
      core_->metrics.reads_refused.Add();
      core_->loop->Post([done = std::move(done), name = name_]() mutable {
        done(ResourceExhaustedError("read " + name + ": too many reads are waiting; slow down"));
      });
      return;
    }
    core_->Run<Result<std::string>>(
        core_->reads, ClosedError(name_),
        [core = core_, reader = reader_, offset, length] {
          Result<std::string> bytes = reader->Read(offset, length);
          if (bytes.ok()) {
            core->metrics.read_bytes.Add(static_cast<int64_t>(bytes->size()));
          } else {
            core->metrics.read_errors.Add();
          }
          return bytes;
        },
        Guard<std::string>(std::move(done)));
  }

 private:
  template <typename T>
  Callback<void(Result<T>)> Guard(Callback<void(Result<T>)> done) {
    return [done = std::move(done), closed = closed_, name = name_](Result<T> result) mutable {
      done(*closed ? Result<T>(ClosedError(name)) : std::move(result));
    };
  }

  const std::shared_ptr<PosixStore::Core> core_;
  const std::string name_;
  const std::shared_ptr<posix::Reader> reader_;
  const std::shared_ptr<bool> closed_ = std::make_shared<bool>(false);
};

}  // namespace

Result<std::unique_ptr<PosixStore>> PosixStore::Open(EventLoop* loop, const std::string& root,
                                                     PosixStoreOptions options) {
  if (mkdir(root.c_str(), 0755) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, "make storage folder " + root);
  }
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<FileOps> ops, OpenFileOps(root));
  return std::make_unique<PosixStore>(loop, std::move(ops), options);
}

PosixStore::PosixStore(EventLoop* loop, std::unique_ptr<FileOps> ops, PosixStoreOptions options)
    : core_(std::make_shared<Core>(loop, std::move(ops), options)) {}

PosixStore::~PosixStore() {
  core_->closing = true;
  core_->writes.reset();
  core_->reads.reset();
}

void PosixStore::CreateExclusive(const std::string& dir, const std::string& name,
                                 const std::string& key,
                                 Callback<void(Result<std::unique_ptr<AppendFile>>)> done) {
  using Blocking = Result<std::unique_ptr<posix::Appender>>;
  core_->Run<Blocking>(
      core_->writes, CancelledError("create " + name + ": the store was closed"),
      [core = core_, dir, name, key]() -> Blocking {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        TAILCAST_RETURN_IF_ERROR(CheckFileName("file name", name));
        TAILCAST_RETURN_IF_ERROR(CheckFileName("key", key));
        return posix::CreateExclusive(core->context, dir, name, key);
      },
      [core = core_, done = std::move(done)](Blocking file) mutable {
        if (!file.ok()) return done(file.status());
        done(
            std::unique_ptr<AppendFile>(std::make_unique<PosixAppendFile>(core, *std::move(file))));
      });
}

void PosixStore::OpenFencing(const std::string& dir, const std::string& name,
                             Callback<void(Result<std::unique_ptr<AppendFile>>)> done) {
  using Blocking = Result<std::unique_ptr<posix::Appender>>;
  core_->Run<Blocking>(
      core_->writes, CancelledError("open " + name + ": the store was closed"),
      [core = core_, dir, name]() -> Blocking {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        TAILCAST_RETURN_IF_ERROR(CheckFileName("file name", name));
        return posix::OpenFencing(core->context, dir, name);
      },
      [core = core_, done = std::move(done)](Blocking file) mutable {
        if (!file.ok()) return done(file.status());
        core->metrics.takeovers.Add();
        done(
            std::unique_ptr<AppendFile>(std::make_unique<PosixAppendFile>(core, *std::move(file))));
      });
}

void PosixStore::OpenRead(const std::string& dir, const std::string& name,
                          Callback<void(Result<std::unique_ptr<ReadFile>>)> done) {
  using Blocking = Result<std::unique_ptr<posix::Reader>>;
  core_->Run<Blocking>(
      core_->reads, CancelledError("open " + name + ": the store was closed"),
      [core = core_, dir, name]() -> Blocking {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        TAILCAST_RETURN_IF_ERROR(CheckFileName("file name", name));
        return posix::OpenRead(core->context, dir, name);
      },
      [core = core_, name, done = std::move(done)](Blocking file) mutable {
        if (!file.ok()) return done(file.status());
        done(std::unique_ptr<ReadFile>(
            std::make_unique<PosixReadFile>(core, name, *std::move(file))));
      });
}

void PosixStore::List(const std::string& dir, Callback<void(Result<std::vector<DirEntry>>)> done) {
  using Entries = Result<std::vector<DirEntry>>;
  core_->Run<Entries>(
      core_->reads, CancelledError("list " + dir + ": the store was closed"),
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
      core_->reads, CancelledError("list " + dir + ": the store was closed"),
      [core = core_, dir]() -> Names {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        return posix::ListFolders(core->context, dir);
      },
      std::move(done));
}

void PosixStore::Delete(const std::string& dir, const std::string& name,
                        Callback<void(Status)> done) {
  core_->Run<Status>(
      core_->writes, CancelledError("delete " + name + ": the store was closed"),
      [core = core_, dir, name]() -> Status {
        TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
        TAILCAST_RETURN_IF_ERROR(CheckFileName("file name", name));
        return posix::Delete(core->context, dir, name);
      },
      std::move(done));
}

}  // namespace tailcast::storage
