// The upstream end of a hop (paper §2.4 Readers): runs the operations that its scheduler gives it,
// each with a stream to a writer of the next cell.
//
// One poller reads the lengths of all operations' files in bulk from the metadata cache (50 ms, or
// doorbells); the primary layer's own sizes are asked once a second, as a fallback. Deltas are read
// by stream/range_reader.h, cache first.
//
//   scheduler ──start, stop, list──► ReaderAgent ◄─► operation_table.h: what runs, what to report
//                                       ├──► writer_links.h: which writers run
//                                       ├──► length_poller.h: which lengths are read when
//                                       └──► operation_driver.h, one each ◄─► operation_core.h
//
// The agent keeps copying while its scheduler is away; it reports states, not decisions: an
// operation that ends is the scheduler's to start again.
//
// Threads: everything on the loop of the ports. Bounded: reads outstanding, bytes queued on a
// stream, operations, ended operations that wait to be reported.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/reader/reader_options.h"
#include "tailcast/rpc/beats.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/stream/operation.h"
#include "tailcast/stream/ports.h"

namespace tailcast::reader {

class LengthPoller;
class OperationDriver;
class OperationTable;
class WriterLinks;
struct Counters;

class ReaderAgent {
 public:
  // All outlive the agent.
  ReaderAgent(const stream::CellPorts& ports, rpc::Connector& connector, MetricRegistry& metrics,
              ReaderOptions options);
  ~ReaderAgent();
  ReaderAgent(const ReaderAgent&) = delete;
  ReaderAgent& operator=(const ReaderAgent&) = delete;

  // Serves tailcast.v1.Reader on `server`. Before the server starts.
  void Attach(rpc::Server& server);

  int operations() const { return static_cast<int>(drivers_.size()); }

 private:
  // A list of the scheduler that waits for news.
  struct WaitingList;

  void OnStart(const std::string& request, rpc::Responder respond);
  void OnStop(const std::string& request, rpc::Responder respond);
  void OnList(const std::string& request, rpc::Responder respond);
  Result<stream::Operation> CheckOperation(const v1::Operation& in) const;
  void StartOne(stream::Operation operation);
  void OnEnded(uint64_t number);
  void ShowRunning();
  void AnswerList();
  // At the latest then.
  void AnswerListBy(MonotonicTime when);
  // News: one answer for everything that changes in this turn.
  void AnswerListSoon() { AnswerListBy(MonotonicTime()); }
  void OnProgress(uint64_t number);

  const stream::CellPorts ports_;
  const ReaderOptions options_;
  std::unique_ptr<Counters> counters_;
  std::unique_ptr<OperationTable> table_;
  rpc::BeatServer beats_;
  std::unique_ptr<WriterLinks> writers_;
  std::map<uint64_t, std::unique_ptr<OperationDriver>> drivers_;  // running, by number
  std::unique_ptr<LengthPoller> poller_;
  std::unique_ptr<WaitingList> waiting_;
  Scope scope_;
};

}  // namespace tailcast::reader
