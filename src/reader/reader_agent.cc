#include "tailcast/reader/reader_agent.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/strong.h"
#include "tailcast/reader/counters.h"
#include "tailcast/reader/length_poller.h"
#include "tailcast/reader/operation_driver.h"
#include "tailcast/reader/operation_table.h"
#include "tailcast/reader/writer_links.h"

namespace tailcast::reader {
namespace {
constexpr int kStartMax = 1000;

// Whether the request can be read and is of the newest scheduler.
template <typename Request>
Status CheckScheduler(OperationTable& table, const Result<Request>& request) {
  if (!request.ok()) return request.status();
  return table.CheckScheduler(stream::SchedulerIncarnation{request->scheduler_incarnation()});
}

}  // namespace

struct ReaderAgent::WaitingList {
  explicit WaitingList(EventLoop& loop) : timer(loop) {}

  uint64_t known_version = 0;
  MonotonicTime asked_at;
  MonotonicTime answer_by = MonotonicTime::Max();
  rpc::Responder respond;
  Timer timer;
};

ReaderAgent::ReaderAgent(const stream::CellPorts& ports, rpc::Connector& connector,
                         MetricRegistry& metrics, ReaderOptions options)
    : ports_(ports),
      options_(std::move(options)),
      counters_(std::make_unique<Counters>(metrics)),
      table_(std::make_unique<OperationTable>(options_.ended_max)),
      beats_(*ports_.loop) {
  TAILCAST_CHECK(options_.incarnation != ProcessIncarnation::kNone);
  writers_ = std::make_unique<WriterLinks>(*ports_.loop, connector, counters_->silent_writers,
                                           [this](uint64_t number, const Status& why) {
                                             drivers_.at(number)->Stop(v1::CAUSE_WRITER_LOST,
                                                                       why.message());
                                           });
  LengthPoller::Hooks hooks;
  hooks.on_tick = [this](MonotonicTime now) {
    for (const uint64_t number : table_->Running()) drivers_.at(number)->OnTick(now);
  };
  hooks.on_value = [this](uint64_t number, const std::string& value) {
    if (const auto it = drivers_.find(number); it != drivers_.end()) it->second->OnValue(value);
  };
  poller_ = std::make_unique<LengthPoller>(ports_, options_, *counters_, std::move(hooks));
  ShowRunning();
}

ReaderAgent::~ReaderAgent() = default;

void ReaderAgent::Attach(rpc::Server& server) {
  const auto handle = [&](const char* method,
                          void (ReaderAgent::*f)(const std::string&, rpc::Responder)) {
    server.Handle(std::string("/tailcast.v1.Reader/") + method,
                  scope_.Bind([this, f](const std::string& request, rpc::Responder respond) {
                    (this->*f)(request, std::move(respond));
                  }));
  };
  handle("StartOperations", &ReaderAgent::OnStart);
  handle("StopOperations", &ReaderAgent::OnStop);
  handle("ListOperations", &ReaderAgent::OnList);
  beats_.Attach(server, "/tailcast.v1.Reader/Beats");
}

// --- calls of the scheduler

void ReaderAgent::OnStart(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::StartOperationsRequest>(bytes);
  Status status = CheckScheduler(*table_, request);
  if (status.ok() && request->operations_size() > kStartMax) {
    status = InvalidArgumentError("operations has " + std::to_string(request->operations_size()) +
                                  " elements; at most " + std::to_string(kStartMax));
  }
  std::vector<stream::Operation> operations;
  for (int i = 0; status.ok() && i < request->operations_size(); ++i) {
    auto operation = CheckOperation(request->operations(i));
    status = operation.status();
    if (status.ok()) operations.push_back(std::move(*operation));
  }
  if (!status.ok()) {
    counters_->rejected_input.Add();
    return respond(status);
  }
  for (stream::Operation& operation : operations) StartOne(std::move(operation));
  v1::StartOperationsReply reply;
  reply.set_reader_incarnation(Raw(options_.incarnation));
  respond(reply.SerializeAsString());
}

Result<stream::Operation> ReaderAgent::CheckOperation(const v1::Operation& in) const {
  auto operation = stream::FromProto(in);
  if (!operation.ok()) return operation;
  if (operation->source_cell != options_.cell) {
    return InvalidArgumentError("operation.source_cell is '" + operation->source_cell +
                                "', but this reader is of cell '" + options_.cell + "'");
  }
  if (operation->writer_address.empty()) {
    return InvalidArgumentError("operation.writer_address is empty");
  }
  return operation;
}

void ReaderAgent::StartOne(stream::Operation operation) {
  using Verdict = OperationTable::Verdict;
  const auto [verdict, running] = table_->Judge(operation);
  switch (verdict) {
    case Verdict::kLate:
      return;
    case Verdict::kKnown:
      if (operation.sealed()) {
        drivers_.at(running)->OnSeal(*operation.seal[0], *operation.seal[1]);
      }
      return;
    case Verdict::kReplace:
      drivers_.at(running)->Stop(v1::CAUSE_STOPPED,
                                 "a newer operation of the same scheduler replaces it");
      break;
    case Verdict::kStart:
      break;
  }
  const uint64_t number = table_->Add(operation);
  auto client = writers_->Add(number, operation.writer_address, operation.writer_via);
  OperationDriver::Hooks hooks;
  hooks.on_changed = [this, number] { OnProgress(number); };
  hooks.on_opened = [this, number] {
    table_->OnOpened(number);
    AnswerListSoon();
  };
  hooks.on_ended = [this, number] { OnEnded(number); };
  OperationDriver& driver = *(
      drivers_[number] = std::make_unique<OperationDriver>(
          ports_, options_, *counters_, std::move(client), std::move(operation), std::move(hooks)));
  ShowRunning();
  counters_->started.Add();
  poller_->Add(number, driver.group());
  AnswerListSoon();
  const int64_t running_now = table_->running();
  driver.Start();
  if (const Status writer = writers_->Check(number); !writer.ok()) {
    driver.Stop(v1::CAUSE_WRITER_LOST, writer.message());
  } else if (running_now > options_.operations_max) {
    driver.Stop(v1::CAUSE_READER_FULL, "reader " + options_.name + " runs " +
                                           std::to_string(options_.operations_max) +
                                           " operations, its limit");
  }
}

void ReaderAgent::ShowRunning() {
  counters_->running.Set(table_->running());
  beats_.SetIdle(table_->running() == 0);
}

void ReaderAgent::OnEnded(uint64_t number) {
  auto node = drivers_.extract(number);
  OperationDriver& driver = *node.mapped();
  v1::OperationReport report;
  driver.Report(&report);
  poller_->Remove(number, driver.group());
  writers_->Remove(number);
  Retire(*ports_.loop, std::move(node.mapped()));
  table_->OnEnded(number, std::move(report));
  ShowRunning();
  AnswerListSoon();
}

void ReaderAgent::OnStop(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::StopOperationsRequest>(bytes);
  const Status status = CheckScheduler(*table_, request);
  if (!status.ok()) {
    counters_->rejected_input.Add();
    return respond(status);
  }
  std::set<stream::OperationId> ids;
  for (const auto& id : request->operations()) ids.insert(stream::OperationIdOf(id));
  for (const uint64_t number : table_->RunningOf(ids)) {
    drivers_.at(number)->Stop(v1::CAUSE_STOPPED, "stopped by the scheduler");
  }
  respond(v1::StopOperationsReply().SerializeAsString());
}

void ReaderAgent::OnList(const std::string& bytes, rpc::Responder respond) {
  auto request = rpc::Parse<v1::ListOperationsRequest>(bytes);
  const Status status = CheckScheduler(*table_, request);
  if (!status.ok()) {
    counters_->rejected_input.Add();
    return respond(status);
  }
  if (waiting_) AnswerList();
  const uint64_t known = request->known_version();
  table_->Acknowledge(known);
  waiting_ = std::make_unique<WaitingList>(*ports_.loop);
  waiting_->known_version = known;
  waiting_->respond = std::move(respond);
  if (table_->HasNews(known)) return AnswerList();
  Duration wait =
      std::min(Duration::Millis(std::max<int64_t>(0, request->wait_ms())), options_.list_wait_max);
  if (table_->version() > known) wait = std::min(wait, options_.list_progress_interval);
  waiting_->asked_at = ports_.loop->Now();
  AnswerListBy(waiting_->asked_at + wait);
}

void ReaderAgent::AnswerListBy(MonotonicTime when) {
  if (!waiting_ || when >= waiting_->answer_by) return;
  waiting_->answer_by = when;
  waiting_->timer.After(std::max(Duration(), when - ports_.loop->Now()),
                        scope_.Bind([this] { AnswerList(); }));
}

void ReaderAgent::OnProgress(uint64_t number) {
  table_->OnChanged(number);
  if (waiting_) AnswerListBy(waiting_->asked_at + options_.list_progress_interval);
}

void ReaderAgent::AnswerList() {
  const auto waiting = std::move(waiting_);
  const uint64_t known = waiting->known_version;
  v1::ListOperationsReply reply;
  reply.set_reader_incarnation(Raw(options_.incarnation));
  reply.set_version(table_->version());
  reply.set_complete(table_->MustTellAll(known));
  reply.set_active(table_->running());
  reply.set_sent_bytes(counters_->sent_bytes.value());
  for (const auto& [number, entry] : table_->ChangedSince(known)) {
    if (entry->last_report) {
      *reply.add_reports() = *entry->last_report;
    } else {
      drivers_.at(number)->Report(reply.add_reports());
    }
  }
  waiting->respond(reply.SerializeAsString());
}

}  // namespace tailcast::reader
