#include "tailcast/writer/writer_agent.h"

#include <algorithm>

#include "tailcast/base/log.h"
#include "tailcast/stream/shard_listing.h"
#include "tailcast/writer/operation.h"

namespace tailcast::writer {
namespace {
const Logger kLog("writer");
constexpr size_t kIncomingMax = 1000;
}  // namespace

using stream::Layer;

WriterAgent::Counters::Counters(MetricRegistry& m)
    : started_primary(m.GetCounter("tailcast_writer_operations_started_total",
                                   "Operations whose stream was opened.", {{"layer", "primary"}})),
      started_cache(m.GetCounter("tailcast_writer_operations_started_total",
                                 "Operations whose stream was opened.", {{"layer", "cache"}})),
      done(m.GetCounter("tailcast_writer_operations_done_total",
                        "Operations that copied a file up to its seal.")),
      rejected_input(m.GetCounter("tailcast_writer_rejected_input_total",
                                  "Messages of readers that were wrong.")),
      fenced(m.GetCounter("tailcast_writer_superseded_total",
                          "Operations that gave way, by how they noticed.", {{"cause", "fence"}})),
      poisoned(m.GetCounter("tailcast_writer_superseded_total",
                            "Operations that gave way, by how they noticed.", {{"cause", "lock"}})),
      seized(m.GetCounter("tailcast_writer_locks_seized_total",
                          "Locks taken from owners that did not release them.")),
      lock_unavailable(m.GetCounter("tailcast_writer_lock_unavailable_total",
                                    "Looks at locks that the metadata cache did not answer.")),
      append_unknown(m.GetCounter("tailcast_writer_append_failed_total",
                                  "Appends with an unknown outcome; the operation ended.")),
      cache_write_failed(m.GetCounter("tailcast_writer_cache_write_failed_total",
                                      "Bulk chunk writes without a quorum; tried again.")),
      cache_mismatch(m.GetCounter("tailcast_writer_cache_mismatch_total",
                                  "Chunk values that contradicted the cache's (DataLoss).")),
      publish_failed(m.GetCounter("tailcast_writer_publish_failed_total",
                                  "Writes of lengths without a quorum; tried again.")),
      publish_given_up(m.GetCounter("tailcast_writer_publish_given_up_total",
                                    "Operations that ended without having published their seal.")),
      notify_failed(
          m.GetCounter("tailcast_writer_notify_failed_total",
                       "Notices of files that the scheduler did not answer; tried again.")),
      below_floor(m.GetCounter("tailcast_writer_below_floor_total",
                               "Operations on files below the retention floor; refused.")),
      takeovers(m.GetCounter("tailcast_writer_takeovers_total",
                             "Primary files opened by fencing an earlier writer.")),
      reader_lost(
          m.GetCounter("tailcast_writer_reader_lost_total", "Streams that ended before the seal.")),
      jumps(m.GetCounter("tailcast_writer_jumps_total",
                         "Cache operations that jumped to where this cell's primary layer stood.")),
      bytes_primary(
          m.GetCounter("tailcast_writer_bytes_total", "Bytes written.", {{"layer", "primary"}})),
      bytes_cache(
          m.GetCounter("tailcast_writer_bytes_total", "Bytes written.", {{"layer", "cache"}})),
      running(m.GetGauge("tailcast_writer_operations", "Operations that run now.")) {}

struct WriterAgent::Incoming {
  std::unique_ptr<rpc::Stream> stream;
  TimerId timer = 0;
};

WriterAgent::WriterAgent(const stream::CellPorts& ports, cell::CellClient& cell,
                         MetricRegistry& metrics, WriterOptions options)
    : ports_(ports), cell_(cell), options_(std::move(options)), counters_(metrics) {}

WriterAgent::~WriterAgent() {
  *alive_ = false;
  for (auto& [id, op] : operations_) op->Detach();
  for (auto& [id, incoming] : incoming_) ports_.loop->Cancel(incoming->timer);
  ports_.loop->Cancel(lock_timer_);
  ports_.loop->Cancel(notify_timer_);
}

void WriterAgent::Attach(rpc::Server& server) {
  server.HandleStream("/tailcast.v1.Writer/Copy",
                      [this, alive = alive_](std::unique_ptr<rpc::Stream> stream) {
                        if (*alive) OnStream(std::move(stream));
                      });
}

void WriterAgent::OnStream(std::unique_ptr<rpc::Stream> stream) {
  if (operations() >= options_.operations_max || incoming_.size() >= kIncomingMax) {
    stream->SetCallbacks({[](const std::string&) {}, nullptr, [](const Status&) {}});
    stream->Close(ResourceExhaustedError("writer " + options_.name + " runs " +
                                         std::to_string(operations()) + " operations, its limit"));
    return;
  }
  const uint64_t id = next_id_++;
  auto incoming = std::make_unique<Incoming>();
  rpc::Stream::Callbacks callbacks;
  callbacks.on_message = [this, alive = alive_, id](const std::string& message) {
    if (!*alive) return;
    if (const auto it = operations_.find(id); it != operations_.end()) {
      const auto op = it->second;  // it may end meanwhile
      op->OnMessage(message);
    } else if (incoming_.contains(id)) {
      OnFirstMessage(id, message);
    }
  };
  callbacks.on_drained = [] {};
  callbacks.on_closed = [this, alive = alive_, id](const Status& status) {
    if (!*alive) return;
    if (const auto it = operations_.find(id); it != operations_.end()) {
      const auto op = it->second;
      op->OnStreamClosed(status);
    } else if (incoming_.contains(id)) {
      Refuse(id, CancelledError("closed before `open`"));
    }
  };
  incoming->timer = ports_.loop->After(options_.open_timeout, [this, id] {
    if (incoming_.contains(id)) {
      Refuse(id, DeadlineExceededError("no `open` message within the time limit"));
    }
  });
  incoming->stream = std::move(stream);
  rpc::Stream* raw = incoming->stream.get();
  incoming_[id] = std::move(incoming);
  raw->SetCallbacks(std::move(callbacks));
}

void WriterAgent::Refuse(uint64_t id, Status status) {
  const auto it = incoming_.find(id);
  ports_.loop->Cancel(it->second->timer);
  it->second->stream->Close(std::move(status));
  // Not inside one of its own callbacks.
  ports_.loop->Post([incoming = std::shared_ptr<Incoming>(std::move(it->second))] {});
  incoming_.erase(it);
}

void WriterAgent::OnFirstMessage(uint64_t id, const std::string& message) {
  const auto refuse = [&](Status status) {
    counters_.rejected_input.Add();
    kLog.Warn("refused an operation: ", status.ToString());
    Refuse(id, std::move(status));
  };
  auto request = rpc::Parse<v1::CopyRequest>(message);
  if (!request.ok()) return refuse(request.status());
  if (request->kind_case() != v1::CopyRequest::kOpen) {
    return refuse(InvalidArgumentError("the first message of a stream must be `open`"));
  }
  auto operation = stream::FromProto(request->open().operation());
  if (!operation.ok()) return refuse(operation.status());
  if (operation->target.cell != options_.cell) {
    return refuse(FailedPreconditionError("operation.target_cell is '" + operation->target.cell +
                                          "', but this writer is of cell '" + options_.cell + "'"));
  }
  if (cell_.has_view()) {
    const auto& id_wanted = operation->target.file.shard.stream;
    const auto config = cell_.FindStream(id_wanted.name);
    if (!config.ok()) {
      // It is on its way: the schedulers pass it on along the tree.
      return refuse(UnavailableError("cell " + options_.cell + " does not know stream '" +
                                     id_wanted.name + "' yet"));
    }
    if (config->incarnation() != id_wanted.incarnation) {
      return refuse(UnavailableError("cell " + options_.cell +
                                     " knows another incarnation of stream '" + id_wanted.name +
                                     "'"));
    }
    if (operation->target.file.shard.shard >= config->shards()) {
      return refuse(InvalidArgumentError(
          "operation.shard is " + std::to_string(operation->target.file.shard.shard) +
          ", but the stream has " + std::to_string(config->shards())));
    }
  }
  const auto it = incoming_.find(id);
  ports_.loop->Cancel(it->second->timer);
  std::unique_ptr<rpc::Stream> stream = std::move(it->second->stream);
  incoming_.erase(it);
  auto op = operation->target.layer == Layer::kPrimary
                ? MakePrimaryOperation(*this, id, std::move(stream), std::move(*operation))
                : MakeCacheOperation(*this, id, std::move(stream), std::move(*operation));
  operations_[id] = op;
  counters_.running.Set(operations());
  op->Start();
}

void WriterAgent::Linger(uint64_t id) {
  ++ended_;
  counters_.running.Set(operations());
  ports_.loop->After(options_.linger, [this, alive = alive_, id] {
    if (*alive) Remove(id);
  });
}

void WriterAgent::Remove(uint64_t id) {
  ports_.loop->Post([this, alive = alive_, id] {
    if (!*alive) return;
    const auto it = operations_.find(id);
    if (it == operations_.end()) return;
    if (it->second->ended()) --ended_;
    it->second->Detach();
    operations_.erase(it);
    counters_.running.Set(operations());
  });
}

void WriterAgent::ArmLocks(MonotonicTime when) {
  if (when >= lock_timer_at_ || reading_locks_) return;
  ports_.loop->Cancel(lock_timer_);
  lock_timer_at_ = when;
  lock_timer_ = ports_.loop->At(when, [this] {
    lock_timer_ = 0;
    lock_timer_at_ = MonotonicTime::Max();
    PollLocks();
  });
}

// One bulk read for all operations whose lock is due.
void WriterAgent::PollLocks() {
  std::vector<cache::Client::ValueRead> reads;
  std::vector<std::weak_ptr<WriterOperation>> due;
  // Those that are due soon join, so that operations fall into step.
  const MonotonicTime until = ports_.loop->Now() + Duration::Millis(2);
  for (const auto& [id, op] : operations_) {
    if (op->ended() || op->lock().NextRead() > until) continue;
    reads.push_back({op->LockKey(), cache::MergeRule::kMaxBytes});
    due.push_back(op);
  }
  const auto arm = [this] {
    MonotonicTime next = MonotonicTime::Max();
    for (const auto& [id, op] : operations_) {
      if (!op->ended()) next = std::min(next, op->lock().NextRead());
    }
    if (next < MonotonicTime::Max()) ArmLocks(next);
  };
  if (reads.empty()) return arm();
  reading_locks_ = true;
  ports_.metadata_cache->ReadValues(std::move(reads), options_.cache_timeout,
                                    [this, alive = alive_, due = std::move(due),
                                     arm](Result<std::vector<std::optional<std::string>>> values) {
                                      if (!*alive) return;
                                      reading_locks_ = false;
                                      for (size_t i = 0; i < due.size(); ++i) {
                                        const auto op = due[i].lock();
                                        if (!op) continue;
                                        if (!values.ok()) {
                                          op->OnLockUnavailable();
                                        } else if ((*values)[i]) {
                                          op->OnLockRead(stream::DecodeLock(*(*values)[i]));
                                        } else {
                                          op->OnLockRead(std::nullopt);
                                        }
                                      }
                                      arm();
                                    });
}

void WriterAgent::Notify(const stream::FileId& file,
                         const std::optional<int64_t> (&seal)[stream::kParts]) {
  v1::FileNotice notice;
  notice.set_stream(file.shard.stream.name);
  notice.set_incarnation(file.shard.stream.incarnation);
  notice.set_shard(file.shard.shard);
  notice.set_stem(file.stem.ToString());
  if (seal[0]) {
    notice.set_sealed(true);
    notice.set_sealed_data_length(*seal[0]);
    notice.set_sealed_index_length(*seal[1]);
  }
  v1::FileNotice& waiting = notices_[{file.shard, file.stem.seq}];
  if (!waiting.sealed()) waiting = std::move(notice);
  SendNotice();
}

void WriterAgent::SendNotice() {
  if (notifying_ || notify_timer_ != 0 || notices_.empty()) return;
  notifying_ = true;
  const auto key = notices_.begin()->first;  // in order within each shard
  const v1::FileNotice notice = std::move(notices_.begin()->second);
  notices_.erase(notices_.begin());
  cell_.NotifyFile(notice, [this, alive = alive_, key, notice](Result<v1::FileNoticeReply> reply) {
    if (!*alive) return;
    notifying_ = false;
    if (reply.ok()) {
      auto& floor = floors_[key.first];
      floor = std::max(floor, reply->floor_seq());
      SendNotice();
      return;
    }
    if (IsInvalidArgument(reply.status()) || IsNotFound(reply.status()) ||
        IsFailedPrecondition(reply.status())) {
      kLog.Warn("the scheduler refused the notice of ", notice.stream(), "/", notice.shard(), " ",
                notice.stem(), ": ", reply.status().ToString());
      SendNotice();
      return;
    }
    counters_.notify_failed.Add();
    notices_.emplace(key, notice);  // unless a newer one of the file came
    notify_timer_ = ports_.loop->After(Duration::Millis(200), [this] {
      notify_timer_ = 0;
      SendNotice();
    });
  });
}

void WriterAgent::WithFloor(const stream::ShardId& shard, Callback<void(Result<int64_t>)> then) {
  if (const auto it = floors_.find(shard); it != floors_.end()) {
    ports_.loop->Post([then = std::move(then), floor = it->second]() mutable { then(floor); });
    return;
  }
  ports_.store->List(stream::ShardDir(shard),
                     [this, alive = alive_, shard, then = std::move(then)](
                         Result<std::vector<storage::DirEntry>> entries) mutable {
                       if (!*alive) return;
                       if (!entries.ok()) return then(entries.status());
                       auto listing = stream::ShardListing::Parse(*entries);
                       if (!listing.ok()) return then(listing.status());
                       auto& floor = floors_[shard];
                       floor = std::max(floor, listing->floor());
                       then(floor);
                     });
}

}  // namespace tailcast::writer
