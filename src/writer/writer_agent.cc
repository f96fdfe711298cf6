#include "tailcast/writer/writer_agent.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/writer/cell_link.h"
#include "tailcast/writer/counters.h"
#include "tailcast/writer/operation_driver.h"

namespace tailcast::writer {
namespace {
const Logger kLog("writer");
constexpr size_t kUnopenedMax = 1000;
}  // namespace

struct WriterAgent::Shared {
  Shared(const stream::CellPorts& ports, cell::CellClient& cell, MetricRegistry& metrics,
         const WriterOptions& options)
      : counters(metrics),
        link(*ports.loop, *ports.store, cell, options.notice_retry, counters.notify_failed),
        primary_buffers(options.primary_buffer_bytes, counters.buffered_primary),
        cache_buffers(options.cache_buffer_bytes, counters.buffered_cache),
        driver{ports, link, options, counters, primary_buffers, cache_buffers} {}

  Counters counters;
  CellLink link;
  BufferShare primary_buffers;
  BufferShare cache_buffers;
  const DriverPorts driver;
};

// One Copy stream: waits for `open`, runs the operation, and lingers until what was queued on the
// stream has left.
struct WriterAgent::Session {
  Session(EventLoop& loop, std::unique_ptr<rpc::Stream> s) : stream(std::move(s)), timer(loop) {}
  Scope& scope() { return callbacks; }

  std::unique_ptr<rpc::Stream> stream;
  std::unique_ptr<OperationDriver> driver;  // from `open` on
  Timer timer;                              // for `open`; of an ended operation, for its stream
  Scope callbacks;
};

WriterAgent::WriterAgent(const stream::CellPorts& ports, cell::CellClient& cell,
                         MetricRegistry& metrics, WriterOptions options)
    : ports_(ports),
      cell_(cell),
      options_(std::move(options)),
      shared_(std::make_unique<Shared>(ports_, cell, metrics, options_)),
      beats_(*ports_.loop),
      lock_timer_(*ports_.loop) {
  // Locks are looked at all the time, and written again when they are missing.
  ports_.metadata_cache->WatchEpoch(scope_.Bind([this] {
    for (const auto& [id, session] : sessions_) {
      if (session->driver != nullptr) session->driver->OnNewEpoch();
    }
  }));
}

WriterAgent::~WriterAgent() = default;

void WriterAgent::Attach(rpc::Server& server) {
  beats_.Attach(server, "/tailcast.v1.Writer/Beats");
  server.HandleStream(
      "/tailcast.v1.Writer/Copy",
      scope_.Bind([this](std::unique_ptr<rpc::Stream> stream) { OnStream(std::move(stream)); }));
}

// --- sessions

void WriterAgent::OnStream(std::unique_ptr<rpc::Stream> stream) {
  if (operations() >= options_.operations_max || unopened_ >= kUnopenedMax) {
    stream->SetCallbacks(
        {scope_.Bind([](const std::string&) {}), nullptr, scope_.Bind([](const Status&) {})});
    stream->Close(ResourceExhaustedError("writer " + options_.name + " runs " +
                                         std::to_string(operations()) + " operations, its limit"));
    return;
  }
  const uint64_t id = next_id_++;
  Session& session = *(sessions_[id] = std::make_unique<Session>(*ports_.loop, std::move(stream)));
  ++unopened_;
  const Scope& scope = session.callbacks;
  session.timer.After(options_.open_timeout, scope.Bind([this, id] {
    Refuse(id, DeadlineExceededError("no `open` message within the time limit"));
  }));
  rpc::Stream::Callbacks callbacks;
  callbacks.on_message = scope.Bind([this, id, &session](const std::string& message) {
    if (session.driver != nullptr) {
      session.driver->OnMessage(message);
    } else {
      OnOpen(id, message);
    }
  });
  callbacks.on_closed = scope.Bind([this, id](const Status& status) { OnClosed(id, status); });
  session.stream->SetCallbacks(std::move(callbacks));
}

void WriterAgent::OnOpen(uint64_t id, const std::string& message) {
  auto operation = Admit(message);
  if (!operation.ok()) {
    shared_->counters.rejected_input.Add();
    kLog.Warn("refused an operation: ", operation.status().ToString());
    return Refuse(id, operation.status());
  }
  Session& session = *sessions_.at(id);
  session.timer.Cancel();
  --unopened_;
  session.driver = std::make_unique<OperationDriver>(
      shared_->driver, *session.stream, std::move(*operation), [this, id] { OnEnded(id); });
  shared_->counters.running.Set(++running_);
  ArmLocks(session.driver->next_lock_read());
  session.driver->Start();
}

Result<stream::Operation> WriterAgent::Admit(const std::string& message) const {
  auto request = rpc::Parse<v1::CopyRequest>(message);
  if (!request.ok()) return request.status();
  if (request->kind_case() != v1::CopyRequest::kOpen) {
    return InvalidArgumentError("the first message of a stream must be `open`");
  }
  auto operation = stream::FromProto(request->open().operation());
  if (!operation.ok()) return operation;
  if (operation->target.cell != options_.cell) {
    return FailedPreconditionError("operation.target_cell is '" + operation->target.cell +
                                   "', but this writer is of cell '" + options_.cell + "'");
  }
  if (Status status = CheckStream(operation->target); !status.ok()) return status;
  return operation;
}

Status WriterAgent::CheckStream(const stream::OperationTarget& target) const {
  if (!cell_.has_view()) return OkStatus();
  const auto& shard = target.file.shard;
  const auto config = cell_.FindStream(shard.stream.name);
  if (!config.ok()) {
    // It is on its way: the schedulers pass it on along the tree.
    return UnavailableError("cell " + options_.cell + " does not know stream '" +
                            shard.stream.name + "' yet");
  }
  if (stream::IdOf(*config) != shard.stream) {
    return UnavailableError("cell " + options_.cell + " knows another incarnation of stream '" +
                            shard.stream.name + "'");
  }
  if (shard.shard >= config->shards()) {
    return InvalidArgumentError("operation.shard is " + std::to_string(shard.shard) +
                                ", but the stream has " + std::to_string(config->shards()));
  }
  return OkStatus();
}

void WriterAgent::OnClosed(uint64_t id, const Status& status) {
  const Session& session = *sessions_.at(id);
  if (session.driver == nullptr) return Refuse(id, CancelledError("closed before `open`"));
  if (session.driver->gone()) return Remove(id);
  // One that has ended already lingers, to write its lock's release.
  session.driver->OnStreamClosed(status);
}

void WriterAgent::Refuse(uint64_t id, Status status) {
  sessions_.at(id)->stream->Close(std::move(status));
  --unopened_;
  Remove(id);
}

void WriterAgent::OnEnded(uint64_t id) {
  shared_->counters.running.Set(--running_);
  Session& session = *sessions_.at(id);
  session.timer.After(options_.linger, session.callbacks.Bind([this, id] { Remove(id); }));
}

// May run inside of one of the stream's callbacks.
void WriterAgent::Remove(uint64_t id) {
  sessions_.at(id)->driver.reset();
  Retire(*ports_.loop, std::move(sessions_.at(id)));
  sessions_.erase(id);
}

// --- locks

void WriterAgent::ArmLocks(MonotonicTime when) {
  if (reading_locks_ || (lock_timer_.armed() && when >= lock_timer_.when())) return;
  lock_timer_.At(when, scope_.Bind([this] { ReadLocks(); }));
}

void WriterAgent::ArmNextLocks() {
  MonotonicTime next = MonotonicTime::Max();
  for (const auto& [id, session] : sessions_) {
    if (session->driver != nullptr && !session->driver->ended()) {
      next = std::min(next, session->driver->next_lock_read());
    }
  }
  if (next < MonotonicTime::Max()) ArmLocks(next);
}

// One bulk read for all operations whose lock is due.
void WriterAgent::ReadLocks() {
  std::vector<cache::Client::ValueRead> reads;
  std::vector<uint64_t> due;
  // Those that are due soon join, so that operations fall into step.
  const MonotonicTime until = ports_.loop->Now() + Duration::Millis(2);
  for (const auto& [id, session] : sessions_) {
    const OperationDriver* driver = session->driver.get();
    if (driver == nullptr || driver->ended() || driver->next_lock_read() > until) continue;
    reads.push_back({driver->lock_key(), cache::MergeRule::kMaxBytes});
    due.push_back(id);
  }
  if (reads.empty()) return ArmNextLocks();
  reading_locks_ = true;
  ports_.metadata_cache->ReadValues(
      std::move(reads), options_.cache_timeout,
      scope_.Bind([this, due](const Result<cache::Values>& values) {
        reading_locks_ = false;
        for (size_t i = 0; i < due.size(); ++i) {
          const auto it = sessions_.find(due[i]);
          if (it == sessions_.end()) continue;
          OperationDriver& driver = *it->second->driver;
          if (!values.ok()) {
            driver.OnLockUnavailable();
          } else {
            const auto& value = (*values)[i];
            driver.OnLockRead(value.has_value() ? stream::DecodeLock(*value) : std::nullopt);
          }
        }
        ArmNextLocks();
      }));
}

}  // namespace tailcast::writer
