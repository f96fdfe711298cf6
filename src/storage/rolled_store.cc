#include "tailcast/storage/rolled_store.h"

#include <array>
#include <optional>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/storage/outstanding_calls.h"
#include "tailcast/storage/rolled_append_core.h"
#include "tailcast/storage/rolled_names_core.h"
#include "tailcast/storage/rolled_quarantine_core.h"
#include "tailcast/storage/rolled_read_core.h"
#include "tailcast/storage/rolled_takeover_core.h"
#include "tailcast/storage/store_metrics.h"
#include "tailcast/storage/store_names.h"

namespace tailcast::storage {

// What handles need of their store. It outlives the store as long as a handle does; the objects go
// with the store.
struct RolledStore::Client : std::enable_shared_from_this<RolledStore::Client> {
  Client(EventLoop* l, std::unique_ptr<ObjectStore> o, const RolledStoreOptions& opts)
      : loop(l),
        options(opts),
        objects(std::move(o)),
        rng(opts.seed),
        metrics(opts.metrics != nullptr ? *opts.metrics : ProcessMetrics()) {}

  EventLoop* const loop;
  const RolledStoreOptions options;
  std::unique_ptr<ObjectStore> objects;  // null after the store was closed
  MonotonicTime Deadline() const { return loop->Now() + options.deadline; }  // of a call

  Rng rng;
  StoreMetrics metrics;
  size_t reads_outstanding = 0;
  OutstandingCalls calls;  // of the store
  Scope scope;             // ends with the store
};

namespace {

using Client = RolledStore::Client;
using rolled::AppendCore;
using rolled::Next;

template <typename Core>
using StepOf = decltype(std::declval<Core&>().OnReply(std::declval<const ObjectReply&>()));

// Sends what the core asks for, tells it the replies, and calls `done` with its result. Drops it
// when `scope` ends. Not to be called when the store is closed; the first step is a request.
// After the deadline nothing is sent any more: the core is told that what it asks has no answer.
template <typename Core>
class Run {
 public:
  using Outcome = typename Core::Outcome;
  using Done = UniqueFunction<void(Outcome)>;
  static constexpr bool kSendsTwo = requires(Core & core, const ObjectReply& reply) {
    core.OnReplies(reply, reply);
  };

  static void Begin(Client* client, const Scope* scope, MonotonicTime deadline,
                    std::shared_ptr<Core> core, StepOf<Core> first, Done done) {
    auto run = std::make_shared<Run>(client, scope, deadline, std::move(core), std::move(done));
    run->Take(run, std::move(first));
  }
  Run(Client* client, const Scope* scope, MonotonicTime deadline, std::shared_ptr<Core> core,
      Done done)
      : client_(client),
        scope_(scope),
        deadline_(deadline),
        core_(std::move(core)),
        done_(std::move(done)) {}

 private:
  void Take(const std::shared_ptr<Run>& self, StepOf<Core> step) {
    if (client_->loop->Now() >= deadline_) {
      ObjectReply none;
      none.error = DeadlineExceededError("the store's deadline has passed");
      while (!std::holds_alternative<Outcome>(step)) {
        if constexpr (kSendsTwo) {
          if (std::holds_alternative<rolled::Two>(step)) {
            step = core_->OnReplies(none, none);
            continue;
          }
        }
        step = core_->OnReply(none);
      }
    }
    if (auto* outcome = std::get_if<Outcome>(&step)) {
      done_(std::move(*outcome));
      return;
    }
    if (client_->objects == nullptr) return;  // closed: its calls were answered
    if constexpr (kSendsTwo) {
      if (auto* two = std::get_if<rolled::Two>(&step)) return SendTwo(self, std::move(*two));
    }
    Send(std::get<ObjectRequest>(std::move(step)),
         [self](ObjectReply reply) { self->Take(self, self->core_->OnReply(reply)); });
  }
  void SendTwo(const std::shared_ptr<Run>& self, rolled::Two two) {
    const auto replies = std::make_shared<std::array<std::optional<ObjectReply>, 2>>();
    size_t number = 0;
    for (ObjectRequest* request : {&two.first, &two.second}) {
      Send(std::move(*request), [self, replies, number](ObjectReply reply) {
        (*replies)[number] = std::move(reply);
        const auto& [first, second] = *replies;
        if (first && second) self->Take(self, self->core_->OnReplies(*first, *second));
      });
      ++number;
    }
  }
  template <typename OnReply>
  void Send(ObjectRequest request, OnReply on_reply) {
    client_->objects->Send(std::move(request), deadline_, scope_->Bind(std::move(on_reply)));
  }

  Client* const client_;
  const Scope* const scope_;
  const MonotonicTime deadline_;
  const std::shared_ptr<Core> core_;
  Done done_;
};

// Runs a core for the store; `finish` turns its outcome into the T that `done` gets.
template <typename Core, typename T>
void RunForStore(Client* client, const std::string& what, Status bad, Callback<void(T)> done,
                 std::shared_ptr<Core> core, UniqueFunction<T(typename Core::Outcome)> finish) {
  if (!bad.ok()) {
    client->loop->Post(std::move(done).With(T(std::move(bad))));
    return;
  }
  const auto call =
      client->calls.Add<T>(std::move(done), T(CancelledError(what + ": the store was closed")));
  StepOf<Core> first = core->Begin();
  Run<Core>::Begin(
      client, &client->scope, client->Deadline(), std::move(core), std::move(first),
      [client, call, finish = std::move(finish)](typename Core::Outcome outcome) mutable {
        client->calls.Answer(call, finish(std::move(outcome)));
      });
}

Status CheckNames(const std::string& dir, const std::string* name, const std::string* key) {
  TAILCAST_RETURN_IF_ERROR(CheckFolder(dir));
  if (name != nullptr) TAILCAST_RETURN_IF_ERROR(CheckFileName("file name", *name));
  if (key != nullptr) TAILCAST_RETURN_IF_ERROR(CheckFileName("key", *key));
  return OkStatus();
}

class RolledAppendFile final : public AppendFile {
 public:
  RolledAppendFile(std::shared_ptr<Client> client, std::string dir, std::string name,
                   rolled::Ownership owned)
      : client_(std::move(client)),
        dir_(std::move(dir)),
        name_(std::move(name)),
        core_(std::make_shared<AppendCore>(name_, std::move(owned))),
        committed_(core_->committed_length()) {}
  ~RolledAppendFile() override {
    if (outstanding_.number != 0) client_->metrics.unknown.Add();
    calls_.CloseAll(*client_->loop);
  }

  void AppendAt(int64_t expected_offset, std::string bytes,
                Callback<void(AppendResult)> done) override {
    TAILCAST_CHECK(outstanding_.number == 0, "one append at a time");
    if (client_->objects == nullptr && !dead_) {
      dead_ = true;
      last_ = {AppendOutcome::kUnknown, committed_,
               CancelledError(name_ + ": the store was closed")};
    }
    if (dead_) return AnswerNow(last_, std::move(done));
    if (expected_offset != committed_) {
      return AnswerNow(WrongOffset(name_, expected_offset, committed_), std::move(done));
    }
    outstanding_ = calls_.Add<AppendResult>(
        std::move(done), {AppendOutcome::kUnknown, committed_, ClosedError(name_)});
    begun_ = client_->loop->Now();
    stamp_ = client_->options.steps != nullptr ? client_->options.steps->Stamp() : 0;
    Next<AppendResult> first = core_->Append(std::move(bytes));
    Run<AppendCore>::Begin(client_.get(), &scope_, client_->Deadline(), core_, std::move(first),
                           [this](AppendResult result) { OnAppended(std::move(result)); });
  }
  int64_t committed_length() const override { return committed_; }
  Epoch epoch() const override { return core_->epoch(); }
  const std::string& name() const override { return name_; }

 private:
  void AnswerNow(AppendResult result, Callback<void(AppendResult)> done) {
    client_->metrics.Of(result.outcome).Add();
    client_->loop->Post(std::move(done).With(std::move(result)));
  }
  void OnAppended(AppendResult result) {
    StoreMetrics& metrics = client_->metrics;
    metrics.Of(result.outcome).Add();
    metrics.append_micros.Add((client_->loop->Now() - begun_).micros());
    if (result.outcome == AppendOutcome::kApplied) {
      metrics.append_bytes.Add(result.committed_length - committed_);
      // spec DuelingWriters: PrimaryAppend.
      if (StepLog* steps = client_->options.steps.get(); steps != nullptr) {
        steps->WriteAt(stamp_, "PrimaryAppend",
                       {{"dir", std::string_view(dir_)},
                        {"name", std::string_view(name_)},
                        {"len", result.committed_length}});
      }
    } else {
      dead_ = true;
      last_ = result;
    }
    committed_ = result.committed_length;
    calls_.Answer(std::exchange(outstanding_, {}), std::move(result));
  }

  const std::shared_ptr<Client> client_;
  const std::string dir_;
  const std::string name_;
  const std::shared_ptr<AppendCore> core_;
  int64_t committed_;
  MonotonicTime begun_;
  int64_t stamp_ = 0;
  bool dead_ = false;
  AppendResult last_;  // when dead
  CallId<AppendResult> outstanding_;
  OutstandingCalls calls_;
  Scope scope_;
};

// What becomes of the right to append that CreateCore or TakeoverCore got.
auto OpenedForAppend(Client* client, const std::string& dir, const std::string& name) {
  return
      [client, dir, name](Result<rolled::Ownership> owned) -> Result<std::unique_ptr<AppendFile>> {
        if (!owned.ok()) return owned.status();
        if (owned->manifest.epoch > Epoch::kFirst) client->metrics.takeovers.Add();
        return std::unique_ptr<AppendFile>(std::make_unique<RolledAppendFile>(
            client->shared_from_this(), dir, name, *std::move(owned)));
      };
}

class RolledReadFile final : public ReadFile {
 public:
  RolledReadFile(std::shared_ptr<Client> client, std::string name,
                 std::shared_ptr<rolled::KnownFile> file)
      : client_(std::move(client)), name_(std::move(name)), file_(std::move(file)) {}
  ~RolledReadFile() override {
    client_->reads_outstanding -= reads_;
    calls_.CloseAll(*client_->loop);
  }

  void Size(Callback<void(Result<FileSize>)> done) override {
    Look(std::make_shared<rolled::SizeCore>(name_, file_), std::move(done));
  }

  void CheckedSize(Callback<void(Result<FileSize>)> done) override {
    Look(std::make_shared<rolled::CheckCore>(name_, file_), std::move(done));
  }

  void Read(int64_t offset, int64_t length, Callback<void(Result<std::string>)> done) override {
    client_->metrics.reads.Add();
    Status bad;
    if (offset < 0 || length < 0) {
      bad = InvalidArgumentError(name_ + ": read of " + std::to_string(length) + " bytes at " +
                                 std::to_string(offset));
    } else if (client_->reads_outstanding >= client_->options.reads_max) {
      client_->metrics.reads_refused.Add();
      bad = ResourceExhaustedError("read " + name_ + ": too many reads are waiting; slow down");
    }
    if (!bad.ok()) {
      client_->loop->Post(std::move(done).With(Result<std::string>(std::move(bad))));
      return;
    }
    Look(std::make_shared<rolled::ReadCore>(name_, file_, offset, length), std::move(done));
  }

 private:
  template <typename Core>
  void Look(std::shared_ptr<Core> core, Callback<void(typename Core::Outcome)> done) {
    using Outcome = typename Core::Outcome;
    if (client_->objects == nullptr) {
      client_->loop->Post(std::move(done).With(Outcome(ClosedError(name_))));
      return;
    }
    const auto call = calls_.Add<Outcome>(std::move(done), Outcome(ClosedError(name_)));
    ++reads_;
    ++client_->reads_outstanding;
    Next<Outcome> first = core->Begin();
    Run<Core>::Begin(client_.get(), &scope_, client_->Deadline(), std::move(core), std::move(first),
                     [this, call](Outcome outcome) {
                       --reads_;
                       --client_->reads_outstanding;
                       Count(outcome);
                       calls_.Answer(call, std::move(outcome));
                     });
  }
  void Count(const Result<FileSize>&) {}
  void Count(const Result<std::string>& bytes) {
    if (bytes.ok()) {
      client_->metrics.read_bytes.Add(static_cast<int64_t>(bytes->size()));
    } else {
      client_->metrics.read_errors.Add();
    }
  }

  const std::shared_ptr<Client> client_;
  const std::string name_;
  const std::shared_ptr<rolled::KnownFile> file_;
  size_t reads_ = 0;  // outstanding, sizes too
  OutstandingCalls calls_;
  Scope scope_;
};

}  // namespace

RolledStore::RolledStore(EventLoop* loop, std::unique_ptr<ObjectStore> objects,
                         RolledStoreOptions options)
    : client_(std::make_shared<Client>(loop, std::move(objects), options)) {
  TAILCAST_CHECK(
      options.roll_bytes >= rolled::kRollBytesMin && options.roll_bytes <= rolled::kRollBytesMax,
      "roll_bytes");
}

RolledStore::~RolledStore() {
  client_->scope.End();
  client_->objects.reset();
  client_->calls.CloseAll(*client_->loop);
}

void RolledStore::Format(Callback<void(Status)> done) {
  RunForStore<rolled::FormatCore, Status>(client_.get(), "format", OkStatus(), std::move(done),
                                          std::make_shared<rolled::FormatCore>(),
                                          [](Status status) { return status; });
}

void RolledStore::CreateExclusive(const std::string& dir, const std::string& name,
                                  const std::string& key,
                                  Callback<void(Result<std::unique_ptr<AppendFile>>)> done) {
  using Opened = Result<std::unique_ptr<AppendFile>>;
  RunForStore<rolled::CreateCore, Opened>(
      client_.get(), "create " + name, CheckNames(dir, &name, &key), std::move(done),
      std::make_shared<rolled::CreateCore>(dir, name, key, client_->options.roll_bytes,
                                           &client_->rng),
      OpenedForAppend(client_.get(), dir, name));
}

void RolledStore::OpenFencing(const std::string& dir, const std::string& name,
                              Callback<void(Result<std::unique_ptr<AppendFile>>)> done) {
  using Opened = Result<std::unique_ptr<AppendFile>>;
  RunForStore<rolled::TakeoverCore, Opened>(
      client_.get(), "open " + name, CheckNames(dir, &name, nullptr), std::move(done),
      std::make_shared<rolled::TakeoverCore>(dir, name), OpenedForAppend(client_.get(), dir, name));
}

void RolledStore::OpenRead(const std::string& dir, const std::string& name,
                           Callback<void(Result<std::unique_ptr<ReadFile>>)> done) {
  using Opened = Result<std::unique_ptr<ReadFile>>;
  RunForStore<rolled::FindCore, Opened>(
      client_.get(), "open " + name, CheckNames(dir, &name, nullptr), std::move(done),
      std::make_shared<rolled::FindCore>(dir, name),
      [client = client_.get(), name](Result<std::shared_ptr<rolled::KnownFile>> file) -> Opened {
        if (!file.ok()) return file.status();
        return std::unique_ptr<ReadFile>(
            std::make_unique<RolledReadFile>(client->shared_from_this(), name, *std::move(file)));
      });
}

void RolledStore::List(const std::string& dir, Callback<void(Result<std::vector<DirEntry>>)> done) {
  using Entries = Result<std::vector<DirEntry>>;
  RunForStore<rolled::ListCore, Entries>(
      client_.get(), "list " + dir, CheckNames(dir, nullptr, nullptr), std::move(done),
      std::make_shared<rolled::ListCore>(dir, rolled::ListCore::Kind::kFiles),
      [](Result<std::vector<std::string>> names) -> Entries {
        if (!names.ok()) return names.status();
        std::vector<DirEntry> entries;
        entries.reserve(names->size());
        for (std::string& name : *names) entries.push_back({std::move(name)});
        return entries;
      });
}

void RolledStore::ListDirs(const std::string& dir,
                           Callback<void(Result<std::vector<std::string>>)> done) {
  using Names = Result<std::vector<std::string>>;
  RunForStore<rolled::ListCore, Names>(
      client_.get(), "list " + dir, CheckNames(dir, nullptr, nullptr), std::move(done),
      std::make_shared<rolled::ListCore>(dir, rolled::ListCore::Kind::kFolders),
      [](Names names) { return names; });
}

void RolledStore::Delete(const std::string& dir, const std::string& name,
                         Callback<void(Status)> done) {
  RunForStore<rolled::DeleteCore, Status>(
      client_.get(), "delete " + name, CheckNames(dir, &name, nullptr), std::move(done),
      std::make_shared<rolled::DeleteCore>(dir, name), [](Status status) { return status; });
}

void RolledStore::Identify(const std::string& dir, const std::string& name,
                           Callback<void(Result<std::string>)> done) {
  using Id = Result<std::string>;
  RunForStore<rolled::IdentifyCore, Id>(
      client_.get(), "identify " + name, CheckNames(dir, &name, nullptr), std::move(done),
      std::make_shared<rolled::IdentifyCore>(dir, name), [](Id id) { return id; });
}

void RolledStore::DeleteExactly(const std::string& dir, const std::string& name,
                                const std::string& id, Callback<void(Status)> done) {
  RunForStore<rolled::DeleteCore, Status>(
      client_.get(), "delete " + name, CheckNames(dir, &name, nullptr), std::move(done),
      std::make_shared<rolled::DeleteCore>(dir, name, id), [](Status status) { return status; });
}

void RolledStore::Quarantine(const std::string& dir, const std::string& name,
                             Callback<void(Status)> done) {
  RunForStore<rolled::QuarantineCore, Status>(
      client_.get(), "set aside " + name, CheckNames(dir, &name, nullptr), std::move(done),
      std::make_shared<rolled::QuarantineCore>(dir, name), [client = client_.get()](Status status) {
        if (status.ok()) client->metrics.quarantined.Add();
        return status;
      });
}

// A pool's quota and the cluster's full ratios are Ceph's own.
void RolledStore::Room(Callback<void(Result<StoreRoom>)> done) {
  client_->loop->Post(std::move(done).With(
      Result<StoreRoom>(UnimplementedError("how full a pool is, Ceph tells"))));
}

}  // namespace tailcast::storage
