// The scheduler's calls to the readers of its cell: a long poll to each that brings its operations
// (heartbeat and report in one), and orders to start and stop operations. Everything that comes
// back is an input of the core. A reader is lost when its call breaks or is not answered in time,
// unless this process stood still meanwhile (running_clock.h).
//
//   StartOperations, StopOperations ---> | reader | <--- ListOperations, again and again
//                                                   ---> beats (rpc/beats.h)
//
// Threads: everything on one loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/running_clock.h"
#include "tailcast/base/scope.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/rpc/beats.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/scheduler/core_driver.h"
#include "tailcast/stream/term.h"

namespace tailcast::scheduler {

struct ReaderLinksOptions {
  stream::SchedulerIncarnation scheduler_incarnation = stream::SchedulerIncarnation::kNone;
  Duration list_wait = Duration::Millis(2500);   // of the long poll
  Duration call_timeout = Duration::Seconds(1);  // beyond waits; a reader that is slower is lost
};

class ReaderLinks {
 public:
  // All outlive it.
  ReaderLinks(EventLoop& loop, rpc::Connector& connector, CoreDriver& driver,
              ReaderLinksOptions options)
      : loop_(loop), connector_(connector), driver_(driver), options_(options) {}
  ReaderLinks(const ReaderLinks&) = delete;
  ReaderLinks& operator=(const ReaderLinks&) = delete;

  // The readers of the view are those that there are.
  void Update(const v1::CellView& view);
  // Unknown readers are passed over: whoever lost them knows.
  void Stop(const std::string& reader, const std::vector<stream::OperationId>& ids);
  void Start(const std::string& reader, const std::vector<stream::Operation>& operations);
  // Drops all links and what is under way on them.
  void End() {
    scope_.End();
    links_.clear();
  }

 private:
  static constexpr Duration kTick = Duration::Millis(250);
  // To one process; another one under its name gets a link of its own.
  struct Link {
    Link(EventLoop& loop, rpc::Connector& connector, const v1::ProcessInfo& process)
        : name(process.name()),
          address(process.rpc_address()),
          incarnation(ProcessIncarnation{process.incarnation()}),
          client(connector.MakeClient(address, "")),
          retry(loop) {}
    const std::string name;
    const std::string address;
    const ProcessIncarnation incarnation;
    const std::unique_ptr<rpc::Client> client;
    uint64_t version = 0;  // of the last report
    int failures = 0;      // in a row
    bool listed = false;
    int64_t stalls = 0;  // of ours, when it was asked
    // The next list is to be complete: what it said may be lost, or was not enough.
    bool ask_all = true;
    bool silent = false;  // its beats stopped since it was asked
    std::unique_ptr<rpc::BeatWatch> beats;
    Timer retry;
    Scope asking;  // of the list that is under way
    Scope scope;
  };

  void List(Link& link);
  void OnList(Link& link, const Result<std::string>& bytes);
  void OnListFailed(Link& link, const Status& why);
  void Watch(Link& link);
  void OnSilent(Link& link, const Status& why);
  void OnHeard(Link& link);
  // Keeps clock_ running.
  void Tick();
  // Ours, until now. What fails over one is not the other's fault, and tried again.
  int64_t Stalls() {
    clock_.At(loop_.Now());
    return clock_.stalls();
  }
  void StartSome(Link& link, std::vector<stream::Operation> operations);

  EventLoop& loop_;
  rpc::Connector& connector_;
  CoreDriver& driver_;
  const ReaderLinksOptions options_;
  RunningClock clock_{kTick};
  Timer tick_timer_{loop_};
  std::map<std::string, std::unique_ptr<Link>> links_;
  Scope scope_;
};

}  // namespace tailcast::scheduler
