#include "tailcast/scheduler/reader_links.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/base/strong.h"

namespace tailcast::scheduler {
namespace {

const Logger kLog("scheduler");
constexpr size_t kStartMax = 1000;  // operations in a call

}  // namespace

void ReaderLinks::Update(const v1::CellView& view) {
  std::vector<WorkerInfo> infos;
  std::set<std::string> names;
  for (const v1::ProcessInfo& process : view.processes()) {
    if (process.role() != v1::ROLE_READER) continue;
    const ProcessIncarnation incarnation{process.incarnation()};
    infos.push_back({process.name(), process.rpc_address(), incarnation, process.leaving()});
    names.insert(process.name());
    std::unique_ptr<Link>& link = links_[process.name()];
    if (link != nullptr && link->incarnation == incarnation &&
        link->address == process.rpc_address()) {
      continue;
    }
    link = std::make_unique<Link>(loop_, connector_, process);
    List(*link);
    Watch(*link);
  }
  std::erase_if(links_, [&](const auto& entry) { return !names.contains(entry.first); });
  if (!links_.empty() && !tick_timer_.armed()) Tick();
  driver_.core().OnReaders(driver_.now(), infos);
  driver_.DoWorkSoon();
}

void ReaderLinks::Tick() {
  clock_.At(loop_.Now());
  if (!links_.empty()) tick_timer_.After(kTick, scope_.Bind([this] { Tick(); }));
}

// --- reports ---

void ReaderLinks::List(Link& link) {
  v1::ListOperationsRequest request;
  request.set_scheduler_incarnation(Raw(options_.scheduler_incarnation));
  request.set_known_version(std::exchange(link.ask_all, false) ? 0 : link.version);
  request.set_wait_ms(options_.list_wait.millis());
  link.stalls = Stalls();
  link.client->Call(
      "/tailcast.v1.Reader/ListOperations", request.SerializeAsString(),
      options_.list_wait + options_.call_timeout,
      link.asking.Bind([this, &link](const Result<std::string>& bytes) { OnList(link, bytes); }));
}

void ReaderLinks::OnList(Link& link, const Result<std::string>& bytes) {
  if (!bytes.ok()) return OnListFailed(link, bytes.status());
  const auto reply = rpc::Parse<v1::ListOperationsReply>(*bytes);
  if (!reply.ok()) return OnListFailed(link, reply.status());
  if (ProcessIncarnation{reply->reader_incarnation()} != link.incarnation) {
    return OnListFailed(link, UnavailableError("another process answers at " + link.address));
  }
  SchedulerCore& core = driver_.core();
  if (link.failures > 0 || link.silent || !link.listed) core.OnReaderFound(link.name);
  link.failures = 0;
  link.listed = true;
  link.version = reply->version();
  link.silent = false;
  for (const v1::OperationReport& report : reply->reports()) {
    core.OnReport(driver_.now(), link.name, report, driver_.effects());
  }
  if (reply->complete()) {
    std::set<stream::OperationId> known;
    for (const v1::OperationReport& report : reply->reports()) {
      known.insert(stream::OperationIdOf(report.operation()));
    }
    core.OnReportsComplete(driver_.now(), link.name, known);
  }
  List(link);
  driver_.DoWork();
}

void ReaderLinks::OnListFailed(Link& link, const Status& why) {
  if (link.stalls != Stalls()) {
    link.ask_all = true;  // what it answered may be lost with the call
    return List(link);
  }
  if (link.failures++ == 0) {
    kLog.Warn("reader ", link.name, " is lost: ", why.ToString());
    driver_.core().OnReaderLost(driver_.now(), link.name);
    driver_.DoWork();
  }
  link.ask_all = true;
  link.retry.After(Duration::Millis(std::min(50 * link.failures, 500)),
                   link.scope.Bind([this, &link] { List(link); }));
}

void ReaderLinks::Watch(Link& link) {
  link.beats = std::make_unique<rpc::BeatWatch>(
      loop_, *link.client, "/tailcast.v1.Reader/Beats", rpc::BeatWatchOptions(),
      rpc::BeatWatch::Hooks{[this, &link] { OnHeard(link); },
                            [this, &link](const Status& why) { OnSilent(link, why); }});
}

void ReaderLinks::OnSilent(Link& link, const Status& why) {
  link.ask_all = link.silent = true;
  if (link.failures > 0) return;
  kLog.Warn("reader ", link.name, " is lost: ", why.message());
  driver_.core().OnReaderLost(driver_.now(), link.name);
  driver_.DoWork();
}

// It was lost and is there: until it has said what it runs, nothing is given to it.
void ReaderLinks::OnHeard(Link& link) {
  if (!link.silent || link.failures > 0) return;
  link.asking.Restart();
  List(link);
}

// --- orders ---

void ReaderLinks::Stop(const std::string& reader, const std::vector<stream::OperationId>& ids) {
  const auto link = links_.find(reader);
  if (link == links_.end()) return;
  v1::StopOperationsRequest request;
  request.set_scheduler_incarnation(Raw(options_.scheduler_incarnation));
  for (const stream::OperationId& id : ids) {
    stream::SetOperationId(id, request.add_operations());
  }
  // If it is lost, the next report shows the operation again.
  link->second->client->Call("/tailcast.v1.Reader/StopOperations", request.SerializeAsString(),
                             options_.call_timeout,
                             link->second->scope.Bind([](const Result<std::string>&) {}));
}

void ReaderLinks::Start(const std::string& reader,
                        const std::vector<stream::Operation>& operations) {
  const auto link = links_.find(reader);
  if (link == links_.end()) return;
  for (size_t at = 0; at < operations.size(); at += kStartMax) {
    const auto begin = operations.begin() + static_cast<ptrdiff_t>(at);
    const size_t count = std::min(operations.size() - at, kStartMax);
    StartSome(*link->second, {begin, begin + static_cast<ptrdiff_t>(count)});
  }
}

void ReaderLinks::StartSome(Link& link, std::vector<stream::Operation> operations) {
  v1::StartOperationsRequest request;
  request.set_scheduler_incarnation(Raw(options_.scheduler_incarnation));
  for (const stream::Operation& operation : operations) {
    stream::ToProto(operation, request.add_operations());
  }
  link.client->Call(
      "/tailcast.v1.Reader/StartOperations", request.SerializeAsString(), options_.call_timeout,
      link.scope.Bind([this, &link, operations = std::move(operations),
                       stalls = Stalls()](const Result<std::string>& reply) mutable {
        if (reply.ok()) {
          driver_.core().OnStarted(link.name, operations);
        } else if (stalls != Stalls()) {
          std::erase_if(operations, [this](const stream::Operation& operation) {
            return !driver_.core().IsCurrent(operation);  // it has gone to another one meanwhile
          });
          if (!operations.empty()) StartSome(link, std::move(operations));
          return;
        } else {
          kLog.Warn("reader ", link.name, " did not start operations: ", reply.status().ToString());
          driver_.core().OnReaderLost(driver_.now(), link.name);
          // Whether it knows them or not, its next complete report tells.
          link.ask_all = true;
          ++link.failures;
          if (!link.retry.armed()) {
            link.asking.Restart();
            List(link);
          }
        }
        driver_.DoWork();
      }));
}

}  // namespace tailcast::scheduler
