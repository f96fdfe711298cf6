// The downstream end of a hop (paper §2.4 Writers): serves one Copy stream per operation and writes
// what arrives to this cell's primary layer or data cache, then publishes the lengths.
//
// Primary operations create the pair, or take it over at its committed length by fencing it; they
// append in order, data before index. Cache operations write chunks in any order. Both hold a lock,
// publish lengths, seals and the source's heartbeat as lanes of the pair's metadata, and notify
// this cell's scheduler of the file so that the next hop starts.
//
//   Copy stream ──► WriterAgent: admits it, reads all due locks in bulk
//                      └─► OperationDriver ◄─► core of the layer (README.md)
//
// Threads: everything on the loop of the ports. Invariants: a length is published only after what
// it covers was acknowledged; a fenced operation ends and never reopens; what one operation holds
// in memory is bounded by its window, all together by a share (buffer_share.h); an unreachable
// metadata cache stops nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/rpc/beats.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/stream/operation.h"
#include "tailcast/stream/ports.h"
#include "tailcast/writer/writer_options.h"

namespace tailcast::writer {

class WriterAgent {
 public:
  // All outlive the agent.
  WriterAgent(const stream::CellPorts& ports, cell::CellClient& cell, MetricRegistry& metrics,
              WriterOptions options);
  ~WriterAgent();
  WriterAgent(const WriterAgent&) = delete;
  WriterAgent& operator=(const WriterAgent&) = delete;

  // Serves tailcast.v1.Writer on `server`. Before the server starts.
  void Attach(rpc::Server& server);

  int operations() const { return running_; }

 private:
  struct Shared;
  struct Session;

  void OnStream(std::unique_ptr<rpc::Stream> stream);
  void OnOpen(uint64_t id, const std::string& message);
  // The operation that a first message asks for, if this writer may run it.
  Result<stream::Operation> Admit(const std::string& message) const;
  Status CheckStream(const stream::OperationTarget& target) const;
  void OnClosed(uint64_t id, const Status& status);
  void Refuse(uint64_t id, Status status);
  void OnEnded(uint64_t id);
  void Remove(uint64_t id);
  void ArmLocks(MonotonicTime when);
  void ArmNextLocks();
  void ReadLocks();

  const stream::CellPorts ports_;
  cell::CellClient& cell_;
  const WriterOptions options_;
  std::unique_ptr<Shared> shared_;  // by all operations
  rpc::BeatServer beats_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;
  size_t unopened_ = 0;  // of sessions_
  int running_ = 0;      // of sessions_; the others wait for `open`, or ended and linger
  bool reading_locks_ = false;
  Timer lock_timer_;
  Scope scope_;
};

}  // namespace tailcast::writer
