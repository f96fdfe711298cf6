#include "tailcast/reader/reader_agent.h"

#include <algorithm>

#include "tailcast/base/log.h"
#include "tailcast/reader/operation.h"

namespace tailcast::reader {
namespace {
const Logger kLog("reader");
constexpr int kStartMax = 1000;

MetricLabels Cause(const char* cause) { return {{"cause", cause}}; }
}  // namespace

ReaderAgent::Counters::Counters(MetricRegistry& m)
    : started(m.GetCounter("tailcast_reader_operations_started_total", "Operations started.")),
      done(m.GetCounter("tailcast_reader_operations_ended_total", "Operations ended, by cause.",
                        Cause("done"))),
      writer_lost(m.GetCounter("tailcast_reader_operations_ended_total",
                               "Operations ended, by cause.", Cause("writer_lost"))),
      superseded(m.GetCounter("tailcast_reader_operations_ended_total",
                              "Operations ended, by cause.", Cause("superseded"))),
      source_errors(m.GetCounter("tailcast_reader_source_errors_total",
                                 "Sizes of primary files that could not be read.")),
      refused(m.GetCounter("tailcast_reader_operations_ended_total", "Operations ended, by cause.",
                           Cause("refused"))),
      data_loss(m.GetCounter("tailcast_reader_operations_ended_total",
                             "Operations ended, by cause.", Cause("data_loss"))),
      stopped(m.GetCounter("tailcast_reader_operations_ended_total", "Operations ended, by cause.",
                           Cause("stopped"))),
      polls(m.GetCounter("tailcast_reader_polls_total", "Bulk reads of lengths.")),
      poll_errors(m.GetCounter("tailcast_reader_poll_errors_total",
                               "Bulk reads of lengths that the metadata cache did not answer.")),
      primary_polls(
          m.GetCounter("tailcast_reader_primary_polls_total", "Sizes asked of the primary layer.")),
      notifications(
          m.GetCounter("tailcast_reader_notifications_total", "Notifications by doorbells.")),
      unwatched(m.GetCounter("tailcast_reader_unwatched_total",
                             "Doorbells that nobody could watch; polled instead.")),
      stalls(m.GetCounter("tailcast_reader_stalls_total", "Writers given up for their silence.")),
      jumps(m.GetCounter("tailcast_reader_jumps_total",
                         "Jumps that cache operations far behind asked their writers for.")),
      short_reads(m.GetCounter("tailcast_reader_short_reads_total",
                               "Reads that ended before the published length.")),
      sent_bytes(m.GetCounter("tailcast_reader_sent_bytes_total", "Payload sent to writers.")),
      cache_bytes(m.GetCounter("tailcast_reader_read_bytes_total", "Bytes read, by origin.",
                               {{"origin", "cache"}})),
      primary_bytes(m.GetCounter("tailcast_reader_read_bytes_total", "Bytes read, by origin.",
                                 {{"origin", "primary"}})),
      rejected_input(m.GetCounter("tailcast_reader_rejected_input_total",
                                  "Messages of writers and schedulers that were wrong.")),
      running(m.GetGauge("tailcast_reader_operations", "Operations that run now.")) {}

ReaderAgent::ReaderAgent(const stream::CellPorts& ports, rpc::Connector& connector,
                         MetricRegistry& metrics, ReaderOptions options)
    : ports_(ports), connector_(connector), options_(std::move(options)), counters_(metrics) {
  TAILCAST_CHECK(options_.incarnation != 0);
}

ReaderAgent::~ReaderAgent() {
  *alive_ = false;
  ports_.loop->Cancel(poll_timer_);
  if (waiting_) ports_.loop->Cancel(waiting_->timer);
  for (auto& [key, group] : groups_) {
    if (group.watch != 0) ports_.metadata_cache->CancelWatch(group.watch);
  }
  for (auto& [number, op] : operations_) op->Detach();
}

void ReaderAgent::Attach(rpc::Server& server) {
  const auto handle = [&](const char* method,
                          void (ReaderAgent::*f)(const std::string&, rpc::Responder)) {
    server.Handle(std::string("/tailcast.v1.Reader/") + method,
                  [this, alive = alive_, f](const std::string& request, rpc::Responder respond) {
                    if (*alive) (this->*f)(request, std::move(respond));
                  });
  };
  handle("StartOperations", &ReaderAgent::OnStart);
  handle("StopOperations", &ReaderAgent::OnStop);
  handle("ListOperations", &ReaderAgent::OnList);
}

Status ReaderAgent::CheckScheduler(uint64_t incarnation) {
  if (incarnation == 0) return InvalidArgumentError("scheduler_incarnation is 0");
  if (incarnation < scheduler_incarnation_) {
    return FailedPreconditionError("scheduler " + std::to_string(incarnation) +
                                   " was replaced by scheduler " +
                                   std::to_string(scheduler_incarnation_));
  }
  scheduler_incarnation_ = incarnation;
  return OkStatus();
}

void ReaderAgent::OnStart(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::StartOperationsRequest>(bytes);
  Status status =
      request.ok() ? CheckScheduler(request->scheduler_incarnation()) : request.status();
  std::vector<stream::Operation> operations;
  if (status.ok() && request->operations_size() > kStartMax) {
    status = InvalidArgumentError("operations has " + std::to_string(request->operations_size()) +
                                  " elements; at most " + std::to_string(kStartMax));
  }
  if (status.ok()) {
    for (const v1::Operation& in : request->operations()) {
      auto operation = stream::FromProto(in);
      if (operation.ok() && operation->source_cell != options_.cell) {
        operation = InvalidArgumentError("operation.source_cell is '" + operation->source_cell +
                                         "', but this reader is of cell '" + options_.cell + "'");
      }
      if (operation.ok() && operation->writer_address.empty()) {
        operation = InvalidArgumentError("operation.writer_address is empty");
      }
      if (!operation.ok()) {
        status = operation.status();
        break;
      }
      operations.push_back(std::move(*operation));
    }
  }
  if (!status.ok()) {
    counters_.rejected_input.Add();
    return respond(status);
  }
  for (stream::Operation& operation : operations) StartOne(std::move(operation));
  v1::StartOperationsReply reply;
  reply.set_reader_incarnation(options_.incarnation);
  respond(reply.SerializeAsString());
}

void ReaderAgent::StartOne(stream::Operation operation) {
  if (const auto it = by_target_.find(operation.target); it != by_target_.end()) {
    const auto op = operations_.at(it->second);
    if (op->operation().id == operation.id) {
      if (operation.sealed()) op->OnSeal(*operation.seal[0], *operation.seal[1]);
      return;
    }
    if (op->operation().id > operation.id) return;  // late: a newer one runs
    op->Stop(v1::CAUSE_STOPPED, "a newer operation of the same scheduler replaces it");
  }
  const uint64_t number = next_number_++;
  const stream::OperationTarget target = operation.target;
  const auto op = std::make_shared<ReaderOperation>(*this, number, std::move(operation));
  operations_[number] = op;
  by_target_[target] = number;
  ++running_;
  counters_.running.Set(running_);
  counters_.started.Add();
  AddToGroup(number, op->group());
  Changed(number, true);
  op->Start();
  if (running_ > options_.operations_max) {
    op->Stop(v1::CAUSE_REFUSED, "reader " + options_.name + " runs " +
                                    std::to_string(options_.operations_max) +
                                    " operations, its limit");
    return;
  }
  // Look at the lengths at once: a new file often has bytes already.
  if (!doorbell_posted_) {
    doorbell_posted_ = true;
    ports_.loop->Post([this, alive = alive_] {
      if (!*alive) return;
      doorbell_posted_ = false;
      Poll(false);
    });
  }
}

void ReaderAgent::OnStop(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::StopOperationsRequest>(bytes);
  const Status status =
      request.ok() ? CheckScheduler(request->scheduler_incarnation()) : request.status();
  if (!status.ok()) {
    counters_.rejected_input.Add();
    return respond(status);
  }
  std::set<stream::OperationId> ids;
  for (const auto& id : request->operations()) ids.insert({id.term(), id.nonce()});
  std::vector<std::shared_ptr<ReaderOperation>> stop;
  for (const auto& [target, number] : by_target_) {
    const auto& op = operations_.at(number);
    if (ids.contains(op->operation().id)) stop.push_back(op);
  }
  for (const auto& op : stop) op->Stop(v1::CAUSE_STOPPED, "stopped by the scheduler");
  respond(v1::StopOperationsReply().SerializeAsString());
}

void ReaderAgent::OnList(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::ListOperationsRequest>(bytes);
  const Status status =
      request.ok() ? CheckScheduler(request->scheduler_incarnation()) : request.status();
  if (!status.ok()) {
    counters_.rejected_input.Add();
    return respond(status);
  }
  if (waiting_) {
    ports_.loop->Cancel(waiting_->timer);
    AnswerList();
  }
  const uint64_t known = request->known_version();
  // Ended operations that the scheduler knows to have ended are forgotten.
  if (known != 0 && known <= version_) {
    for (auto it = operations_.begin(); it != operations_.end();) {
      if (!it->second->running() && it->second->version <= known) {
        it->second->Detach();
        it = operations_.erase(it);
      } else {
        ++it;
      }
    }
  }
  waiting_ = std::make_unique<WaitingList>();
  waiting_->known_version = known;
  waiting_->respond = std::move(respond);
  bool news = known == 0 || known > version_;
  for (const auto& [number, op] : operations_) {
    news = news || (op->version > known && (!op->running() || known == 0));
  }
  if (news) return AnswerList();
  const Duration wait =
      std::min(Duration::Millis(std::max<int64_t>(0, request->wait_ms())), options_.list_wait_max);
  waiting_->timer = ports_.loop->After(wait, [this] { AnswerList(); });
}

void ReaderAgent::AnswerList() {
  const auto waiting = std::move(waiting_);
  ports_.loop->Cancel(waiting->timer);
  const uint64_t known = waiting->known_version > version_ ? 0 : waiting->known_version;
  v1::ListOperationsReply reply;
  reply.set_reader_incarnation(options_.incarnation);
  reply.set_version(version_);
  reply.set_complete(known == 0);
  reply.set_active(running_);
  reply.set_sent_bytes(counters_.sent_bytes.value());
  for (const auto& [number, op] : operations_) {
    if (op->version > known) op->Report(reply.add_reports());
  }
  waiting->respond(reply.SerializeAsString());
}

void ReaderAgent::Changed(uint64_t number, bool now) {
  const auto it = operations_.find(number);
  if (it == operations_.end()) return;
  it->second->version = ++version_;
  if (!now) return;
  // Nobody may ever ask: forget the oldest ended ones.
  if (static_cast<int64_t>(operations_.size()) - running_ > options_.ended_max) {
    for (auto old = operations_.begin(); old != operations_.end(); ++old) {
      if (old->second->running() || old->first == number) continue;
      old->second->Detach();
      operations_.erase(old);
      break;
    }
  }
  if (!waiting_) return;
  // One answer for everything that changes in this turn.
  ports_.loop->Cancel(waiting_->timer);
  waiting_->timer = ports_.loop->After(Duration::Micros(0), [this] { AnswerList(); });
}

std::shared_ptr<rpc::Client> ReaderAgent::ClientFor(const std::string& address,
                                                    const std::string& via) {
  std::erase_if(clients_, [](const auto& entry) { return entry.second.expired(); });
  auto& weak = clients_[{address, via}];
  if (auto client = weak.lock()) return client;
  std::shared_ptr<rpc::Client> client = connector_.MakeClient(address, via);
  weak = client;
  return client;
}

void ReaderAgent::AddToGroup(uint64_t number, cache::Key key) {
  Group& group = groups_[key];
  group.operations.insert(number);
  group.dirty = true;
  ArmPoll();
}

void ReaderAgent::RemoveFromGroup(uint64_t number, cache::Key key) {
  const auto it = groups_.find(key);
  if (it == groups_.end()) return;
  it->second.operations.erase(number);
  if (!it->second.operations.empty()) return;
  if (it->second.watch != 0) ports_.metadata_cache->CancelWatch(it->second.watch);
  groups_.erase(it);
}

// No operations, no timer: an idle reader costs nothing.
void ReaderAgent::ArmPoll() {
  if (poll_timer_ != 0 || groups_.empty()) return;
  poll_timer_ = ports_.loop->After(options_.poll_interval, [this] {
    poll_timer_ = 0;
    Tick();
  });
}

void ReaderAgent::Tick() {
  const MonotonicTime now = ports_.loop->Now();
  std::vector<std::shared_ptr<ReaderOperation>> running;
  for (const auto& [target, number] : by_target_) running.push_back(operations_.at(number));
  for (const auto& op : running) op->Tick(now);
  Poll(!options_.doorbells || now - last_full_poll_ >= options_.doorbell_timeout);
  ArmPoll();
}

void ReaderAgent::Poll(bool all) {
  if (polling_) return;
  std::vector<cache::Key> keys;
  std::vector<cache::Client::ValueRead> reads;
  for (auto& [key, group] : groups_) {
    if (!all && !group.dirty && group.watchable) continue;
    group.dirty = false;
    keys.push_back(key);
    reads.push_back({key, cache::MergeRule::kMaxLanes});
  }
  if (reads.empty()) return;
  if (all) last_full_poll_ = ports_.loop->Now();
  polling_ = true;
  counters_.polls.Add();
  ports_.metadata_cache->ReadValues(
      std::move(reads), options_.cache_timeout,
      [this, alive = alive_, keys](Result<std::vector<std::optional<std::string>>> values) {
        if (!*alive) return;
        polling_ = false;
        OnPolled(keys, values);
        // What doorbells said meanwhile.
        for (const auto& [key, group] : groups_) {
          if (group.dirty) {
            Poll(false);
            break;
          }
        }
      });
}

void ReaderAgent::OnPolled(const std::vector<cache::Key>& keys,
                           const Result<std::vector<std::optional<std::string>>>& values) {
  if (!values.ok()) counters_.poll_errors.Add();
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto it = groups_.find(keys[i]);
    if (it == groups_.end()) continue;
    if (values.ok() && (*values)[i]) {
      const std::string& value = *(*values)[i];
      const std::set<uint64_t> numbers = it->second.operations;
      for (uint64_t number : numbers) {
        const auto found = operations_.find(number);
        if (found == operations_.end()) continue;
        const auto op = found->second;
        op->OnMetadata(stream::DecodePairMetadata(op->seq(), value),
                       (op->seq() + 1) % stream::kPairsPerGroup == 0
                           ? stream::PairMetadata()
                           : stream::DecodePairMetadata(op->seq() + 1, value));
      }
    }
    if (options_.doorbells && values.ok()) Watch(keys[i]);
  }
}

void ReaderAgent::Watch(cache::Key key) {
  const auto it = groups_.find(key);
  if (it == groups_.end() || it->second.watch != 0) return;
  it->second.watch = ports_.metadata_cache->WatchValue(
      key, options_.doorbell_timeout, [this, alive = alive_, key](bool watched) {
        if (!*alive) return;
        const auto found = groups_.find(key);
        if (found == groups_.end()) return;
        found->second.watch = 0;
        found->second.watchable = watched;
        if (!watched) {
          counters_.unwatched.Add();
          return;  // the next tick polls it, and tries to watch again
        }
        counters_.notifications.Add();
        found->second.dirty = true;
        Poll(false);
      });
}

}  // namespace tailcast::reader
