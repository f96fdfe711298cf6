#include "tailcast/storage/ceph_objects.h"

#if TAILCAST_CEPH

#include <rados/librados.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/base/scope.h"
#include "tailcast/storage/loop_gate.h"
#include "tailcast/storage/slow_calls.h"
#include "tailcast/storage/unawaited_threads.h"

namespace tailcast::storage {
namespace {

const Logger kLog("storage");
const std::string kSilence = "the Ceph cluster did not answer in time";

std::string ErrorText(int error) { return std::strerror(error < 0 ? -error : error); }

// Of a request that librados has answered with `r`.
void Classify(int r, const std::string& object, ObjectReply& reply) {
  switch (-r) {
    case 0:
      reply.outcome = ObjectOutcome::kDone;
      return;
    case ENOENT:
      reply.outcome = ObjectOutcome::kAbsent;
      return;
    case EEXIST:
      reply.outcome = ObjectOutcome::kExists;
      return;
    case ECANCELED:
      reply.outcome = ObjectOutcome::kRefused;
      return;
    case ENOSPC:
    case EDQUOT:
      reply.outcome = ObjectOutcome::kFailed;
      reply.error = ResourceExhaustedError(
          "the pool is full: give the cluster more space, or raise the pool's quota");
      return;
    case EPERM:
    case EACCES:
      reply.outcome = ObjectOutcome::kFailed;
      reply.error = PermissionDeniedError(
          "the cephx key does not allow it; docs/ops/storage.md has what it must allow");
      return;
    case ESHUTDOWN:  // EBLOCKLISTED
      reply.outcome = ObjectOutcome::kFailed;
      reply.error = PermissionDeniedError(
          "the cluster has this process on its blocklist (`ceph osd blocklist ls`); start it "
          "again");
      return;
    case EOPNOTSUPP:
      reply.outcome = ObjectOutcome::kFailed;
      reply.error = FailedPreconditionError(
          "the pool cannot hold keys: it is erasure-coded; use a replicated one");
      return;
    case EINVAL:
    case EFBIG:
    case E2BIG:
    case ENAMETOOLONG:
      reply.outcome = ObjectOutcome::kFailed;
      reply.error = InvalidArgumentError("object " + object + ": " + ErrorText(r));
      return;
    case ETIMEDOUT:
      reply.outcome = ObjectOutcome::kUnknown;
      reply.error = DeadlineExceededError(kSilence);
      return;
    default:
      reply.outcome = ObjectOutcome::kUnknown;
      reply.error = UnavailableError("the Ceph cluster answers: " + ErrorText(r));
  }
}

const std::string& NameOf(const ObjectRequest& request) {
  const auto* change = std::get_if<ObjectChange>(&request);
  return change != nullptr ? change->object : std::get<ObjectLook>(request).object;
}

using Answer = UniqueFunction<void(ObjectReply)>;

// One connection and what is outstanding on it.
class Connection {
 public:
  Connection(rados_t cluster, rados_ioctx_t io) : cluster_(cluster), io_(io) {}
  // Requests under way are given up; their answers were called when it returns.
  ~Connection() {
    {
      std::unique_lock lock(mutex_);
      for (rados_completion_t completion : outstanding_) rados_aio_cancel(io_, completion);
      idle_.wait(lock, [this] { return calls_ == 0; });
    }
    rados_ioctx_destroy(io_);
    rados_shutdown(cluster_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool idle() {
    const std::lock_guard lock(mutex_);
    return calls_ == 0;
  }

  // `answer` is called on a thread of librados.
  void Send(ObjectRequest request, Answer answer) {
    auto* call = new Call{this, std::move(request), std::move(answer)};
    rados_aio_create_completion2(call, &Connection::OnComplete, &call->completion);
    {
      const std::lock_guard lock(mutex_);
      ++calls_;
      outstanding_.insert(call->completion);
    }
    const int r = std::holds_alternative<ObjectChange>(call->request)
                      ? SendChange(std::get<ObjectChange>(call->request), *call)
                      : SendLook(std::get<ObjectLook>(call->request), *call);
    if (r < 0) Finish(call, r);  // not sent
  }

 private:
  struct Call {
    Connection* connection;
    ObjectRequest request;
    Answer answer;
    rados_completion_t completion = nullptr;
    rados_write_op_t change = nullptr;
    rados_read_op_t look = nullptr;
    // Where librados puts what is looked at.
    ObjectReply reply;
    size_t bytes_read = 0;
    rados_xattrs_iter_t attributes = nullptr;
    rados_omap_iter_t values = nullptr;
    rados_omap_iter_t names = nullptr;
    unsigned char more = 0;
    int results[4] = {};
  };

  int SendChange(const ObjectChange& change, Call& call) {
    using Create = ObjectChange::Create;
    rados_write_op_t op = call.change = rados_create_write_op();
    switch (change.create) {
      case Create::kNo:
        rados_write_op_assert_exists(op);
        break;
      case Create::kExclusively:
        rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, nullptr);
        break;
      case Create::kIfAbsent:
        rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, nullptr);
        break;
    }
    for (const ObjectChange::Guard& guard : change.attribute_guards) {
      // The comparison's left side is the given value.
      const uint8_t test = guard.test == ObjectChange::Guard::Test::kEquals
                               ? LIBRADOS_CMPXATTR_OP_EQ
                               : LIBRADOS_CMPXATTR_OP_GT;
      rados_write_op_cmpxattr(op, guard.name.c_str(), test, guard.value.data(), guard.value.size());
    }
    for (const ObjectChange::Guard& guard : change.key_guards) {
      rados_write_op_omap_cmp(op, guard.name.c_str(), LIBRADOS_CMPXATTR_OP_EQ, guard.value.data(),
                              guard.value.size(), nullptr);
    }
    if (change.remove) rados_write_op_remove(op);
    if (!change.append.empty()) {
      rados_write_op_append(op, change.append.data(), change.append.size());
    }
    for (const auto& [name, value] : change.set_attributes) {
      rados_write_op_setxattr(op, name.c_str(), value.data(), value.size());
    }
    if (!change.set_keys.empty()) {
      std::vector<const char*> keys, values;
      std::vector<size_t> sizes;
      for (const auto& [key, value] : change.set_keys) {
        keys.push_back(key.c_str());
        values.push_back(value.data());
        sizes.push_back(value.size());
      }
      rados_write_op_omap_set(op, keys.data(), values.data(), sizes.data(), keys.size());
    }
    if (!change.remove_keys.empty()) {
      std::vector<const char*> keys;
      for (const std::string& key : change.remove_keys) keys.push_back(key.c_str());
      rados_write_op_omap_rm_keys(op, keys.data(), keys.size());
    }
    return rados_aio_write_op_operate(op, io_, call.completion, change.object.c_str(), nullptr, 0);
  }

  int SendLook(const ObjectLook& look, Call& call) {
    rados_read_op_t op = call.look = rados_create_read_op();
    rados_read_op_assert_exists(op);
    if (look.attributes) rados_read_op_getxattrs(op, &call.attributes, &call.results[0]);
    if (look.length > 0) {
      call.reply.bytes.resize(static_cast<size_t>(look.length));
      rados_read_op_read(op, static_cast<uint64_t>(look.offset), call.reply.bytes.size(),
                         call.reply.bytes.data(), &call.bytes_read, &call.results[1]);
    }
    if (!look.keys.empty()) {
      std::vector<const char*> keys;
      std::vector<size_t> sizes;
      for (const std::string& key : look.keys) {
        keys.push_back(key.data());
        sizes.push_back(key.size());
      }
      rados_read_op_omap_get_vals_by_keys2(op, keys.data(), keys.size(), sizes.data(), &call.values,
                                           &call.results[2]);
    }
    if (look.names_max > 0) {
      rados_read_op_omap_get_keys2(op, look.names_after.c_str(), look.names_max, &call.names,
                                   &call.more, &call.results[3]);
    }
    return rados_aio_read_op_operate(op, io_, call.completion, look.object.c_str(), 0);
  }

  static void OnComplete(rados_completion_t completion, void* arg) {
    auto* call = static_cast<Call*>(arg);
    call->connection->Finish(call, rados_aio_get_return_value(completion));
  }

  void Finish(Call* call, int r) {
    // A write may be answered with a positive number.
    for (const int result : call->results) {
      if (r >= 0 && result < 0) r = result;
    }
    Classify(r > 0 ? 0 : r, NameOf(call->request), call->reply);
    TakeLooks(*call, r >= 0);
    if (call->change != nullptr) rados_release_write_op(call->change);
    if (call->look != nullptr) rados_release_read_op(call->look);
    call->answer(std::move(call->reply));
    {
      const std::lock_guard lock(mutex_);
      outstanding_.erase(call->completion);
    }
    rados_aio_release(call->completion);
    delete call;
    const std::lock_guard lock(mutex_);
    if (--calls_ == 0) idle_.notify_all();
  }

  // `answered`: by an OSD. What librados ends by itself (the pool is gone, the deadline has passed)
  // leaves its iterators over keys unset: a step on one would be a step from nowhere.
  static void TakeLooks(Call& call, bool answered) {
    call.reply.bytes.resize(answered ? call.bytes_read : 0);
    if (call.attributes != nullptr) {
      const char* name = nullptr;
      const char* value = nullptr;
      size_t size = 0;
      while (answered && rados_getxattrs_next(call.attributes, &name, &value, &size) == 0 &&
             name != nullptr) {
        call.reply.attributes.emplace(name, std::string(value, size));
      }
      rados_getxattrs_end(call.attributes);
    }
    for (rados_omap_iter_t iterator : {call.values, call.names}) {
      if (iterator == nullptr) continue;
      char* key = nullptr;
      char* value = nullptr;
      size_t key_size = 0, value_size = 0;
      while (answered &&
             rados_omap_get_next2(iterator, &key, &value, &key_size, &value_size) == 0 &&
             key != nullptr) {
        call.reply.keys.emplace(std::string(key, key_size),
                                value != nullptr ? std::string(value, value_size) : "");
      }
      rados_omap_get_end(iterator);
    }
    call.reply.more = answered && call.more != 0;
  }

  const rados_t cluster_;
  const rados_ioctx_t io_;
  std::mutex mutex_;
  std::condition_variable idle_;
  size_t calls_ = 0;                          // guarded by mutex_
  std::set<rados_completion_t> outstanding_;  // guarded by mutex_
};

// What went wrong with connecting.
Status ConnectError(int r, const CephOptions& options) {
  const std::string conf = options.conf.empty() ? "/etc/ceph/ceph.conf" : options.conf;
  const std::string user = "client." + options.user;
  switch (-r) {
    case ENOENT:
      return NotFoundError("no cephx key for " + user + " where " + conf +
                           " looks for it (`keyring`)");
    case EPERM:
    case EACCES:
      return PermissionDeniedError("the cluster of " + conf + " refuses the cephx key of " + user +
                                   ": it is not the one that the cluster has; `ceph auth get " +
                                   user + "` shows that one");
    case ETIMEDOUT:
      return UnavailableError("no monitor of " + conf + " answers; look at `mon host` there");
    default:
      return UnavailableError("connect to the cluster of " + conf + " as " + user + ": " +
                              ErrorText(r));
  }
}

// To close one may take as long as librados likes, so it is done on a thread of its own: a late
// one may come to its end anywhere, also with the loop that was to get it.
struct CloseAside {
  void operator()(Connection* connection) const {
    UnawaitedThreads::Start("ceph-close", [connection] { delete connection; });
  }
};
using OpenConnection = std::unique_ptr<Connection, CloseAside>;

// Blocks, longer than it should if librados does.
Result<OpenConnection> Open(const CephOptions& options) {
  rados_t cluster = nullptr;
  const std::string user = "client." + options.user;
  if (const int r = rados_create2(&cluster, "ceph", user.c_str(), 0); r < 0) {
    return UnavailableError("librados: " + ErrorText(r));
  }
  if (rados_conf_read_file(cluster, options.conf.empty() ? nullptr : options.conf.c_str()) < 0) {
    rados_shutdown(cluster);
    return NotFoundError(
        options.conf.empty()
            ? std::string("no ceph.conf in /etc/ceph; name one as ceph:/path/ceph.conf?pool=...")
            : "cannot read " + options.conf + " as a ceph.conf");
  }
  const auto seconds = [](Duration d) {
    return std::to_string(std::max<int64_t>(1, d.millis() / 1000));
  };
  // Requests are given up by us; librados forgets them a little later.
  const std::string forgotten = seconds(options.deadline + Duration::Seconds(1));
  rados_conf_set(cluster, "rados_osd_op_timeout", forgotten.c_str());
  rados_conf_set(cluster, "rados_mon_op_timeout", forgotten.c_str());
  // OSDs are silent about a pool that is gone: then librados asks the monitors so soon, not after
  // ten seconds.
  rados_conf_set(cluster, "objecter_tick_interval", "1");
  rados_conf_set(cluster, "objecter_timeout", "2");
  rados_conf_set(cluster, "client_mount_timeout", seconds(options.connect_deadline).c_str());
  for (const char* quiet : {"log_to_stderr", "err_to_stderr"}) {
    rados_conf_set(cluster, quiet, "false");
  }
  if (const int r = rados_connect(cluster); r < 0) {
    rados_shutdown(cluster);
    return ConnectError(r, options);
  }
  rados_ioctx_t io = nullptr;
  if (const int r = rados_ioctx_create(cluster, options.pool.c_str(), &io); r < 0) {
    rados_shutdown(cluster);
    if (r == -ENOENT) {
      return NotFoundError("the cluster has no pool '" + options.pool +
                           "'; `ceph osd pool create " + options.pool + "` makes one");
    }
    return ConnectError(r, options);
  }
  rados_ioctx_set_namespace(io, options.name_space.c_str());
  rados_set_pool_full_try(io);  // a full pool refuses; without it requests wait until there is room
  return OpenConnection(new Connection(cluster, io));
}

class LibradosObjects final : public CephObjects {
 public:
  LibradosObjects(EventLoop* loop, CephOptions options, OpenConnection connection)
      : options_(std::move(options)),
        gate_(std::make_shared<LoopGate>(loop)),
        slow_(loop, "pool " + options_.pool,
              {.slow_after = std::min(SlowRequestsCore::Options().slow_after,
                                      Duration::Micros(options_.deadline.micros() / 2))},
              [this] { Look(); }),
        connection_(std::move(connection)) {}
  // What is under way is given up. librados may take longer than anybody wants to wait.
  ~LibradosObjects() override {
    gate_->Close();
    replaced_.push_back(std::move(connection_));
    Within<bool>(kCloseWait, "ceph-close", [connections = std::move(replaced_)]() mutable {
      for (OpenConnection& connection : connections) delete connection.release();
      return true;
    });
  }

  void Send(ObjectRequest request, MonotonicTime deadline,
            Callback<void(ObjectReply)> done) override {
    const uint64_t number = ++last_;
    const bool change = std::holds_alternative<ObjectChange>(request);
    waiting_.emplace(number, std::move(done));
    slow_.Begin(number, deadline, (change ? "a change of " : "a look at ") + NameOf(request),
                [this, number](const std::string& cause) { Answer(number, Unanswered(cause)); });
    Callback<void(ObjectReply)> answered =
        scope_.Bind([this, number](ObjectReply reply) { OnReply(number, std::move(reply)); });
    connection_->Send(std::move(request),
                      [gate = gate_, answered = std::move(answered)](ObjectReply reply) mutable {
                        gate->Post(std::move(answered).With(std::move(reply)));
                      });
  }

  ObjectReply SendAndWait(ObjectRequest request, Duration deadline) override {
    auto answered = std::make_shared<std::promise<ObjectReply>>();
    auto reply = answered->get_future();
    connection_->Send(std::move(request),
                      [answered](ObjectReply r) { answered->set_value(std::move(r)); });
    if (reply.wait_for(std::chrono::microseconds(deadline.micros())) == std::future_status::ready) {
      return reply.get();
    }
    return Unanswered("");
  }

 private:
  static ObjectReply Unanswered(const std::string& cause) {
    ObjectReply unknown;
    unknown.error = DeadlineExceededError(kSilence + (cause.empty() ? cause : ": " + cause));
    return unknown;
  }

  void OnReply(uint64_t number, ObjectReply reply) {
    if (reply.outcome == ObjectOutcome::kUnknown && IsDeadlineExceeded(reply.error)) {
      slow_.OnSilence(number);
      reply = Unanswered(slow_.cause());
    } else {
      slow_.OnAnswered(number);
    }
    Answer(number, std::move(reply));  // `this` may be gone
  }

  // For why the cluster does not answer: by a new connection, one at a time.
  void Look() {
    if (std::exchange(looking_, true)) return;
    Callback<void(Result<OpenConnection>)> found = scope_.Bind([this](Result<OpenConnection> made) {
      looking_ = false;
      OnFound(std::move(made));
    });
    UnawaitedThreads::Start("ceph-look",
                            [gate = gate_, options = options_, found = std::move(found)]() mutable {
                              gate->Post(std::move(found).With(Open(options)));
                            });
  }
  void OnFound(Result<OpenConnection> made) {
    if (slow_.OnCause(made.ok() ? std::string() : made.status().message())) {
      kLog.Warn("pool ", options_.pool, ": a new connection is used, the old one is silent");
      replaced_.push_back(std::exchange(connection_, *std::move(made)));
    }
    const auto used = std::stable_partition(replaced_.begin(), replaced_.end(),
                                            [](const auto& old) { return !old->idle(); });
    replaced_.erase(used, replaced_.end());
  }

  // A late answer finds nobody.
  void Answer(uint64_t number, ObjectReply reply) {
    const auto waiting = waiting_.extract(number);
    if (!waiting.empty()) waiting.mapped()(std::move(reply));
  }

  static constexpr Duration kCloseWait = Duration::Millis(500);

  const CephOptions options_;
  const std::shared_ptr<LoopGate> gate_;
  SlowCalls slow_;
  std::map<uint64_t, Callback<void(ObjectReply)>> waiting_;
  uint64_t last_ = 0;
  bool looking_ = false;
  std::vector<OpenConnection> replaced_;  // what is under way there may be answered
  OpenConnection connection_;
  Scope scope_;
};

}  // namespace

Result<std::unique_ptr<CephObjects>> CephObjects::Connect(EventLoop* loop,
                                                          const CephOptions& options) {
  // librados tries for several times as long as it was told; then its thread is left to itself.
  std::optional<Result<OpenConnection>> opened = Within<Result<OpenConnection>>(
      options.connect_deadline, "ceph-connect", [options] { return Open(options); },
      "ceph " + options.conf + " " + options.user + " " + options.pool);
  if (!opened.has_value()) return ConnectError(-ETIMEDOUT, options);
  TAILCAST_ASSIGN_OR_RETURN(OpenConnection open, *std::move(opened));
  return std::unique_ptr<CephObjects>(
      std::make_unique<LibradosObjects>(loop, options, std::move(open)));
}

}  // namespace tailcast::storage

#else

namespace tailcast::storage {

Result<std::unique_ptr<CephObjects>> CephObjects::Connect(EventLoop*, const CephOptions&) {
  return UnimplementedError(
      "this program was built without librados (-DTAILCAST_CEPH=OFF), so it has no ceph: storage");
}

}  // namespace tailcast::storage

#endif
