// Executes StartSearchCore over a cell's ports: lists, asks, reads and waits as it says.
//
// Threads: the loop's.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/consumer/agent_options.h"
#include "tailcast/consumer/counters.h"
#include "tailcast/consumer/file_place.h"
#include "tailcast/consumer/start_search_core.h"
#include "tailcast/stream/ports.h"
#include "tailcast/stream/range_reader.h"

namespace tailcast::consumer {

class StartSearch {
 public:
  // `options`, `counters` and `timer` (which nobody else sets meanwhile) outlive the search. `done`
  // gets the place, or as an error why there is none (ConsumerAgent::status); it may run inside
  // Begin, and inside a callback of a port: retire the search.
  StartSearch(const stream::CellPorts& ports, const stream::ShardId& shard, const StartPoint& start,
              const AgentOptions& options, Counters& counters, Timer& timer,
              UniqueFunction<void(Result<FilePlace>)> done);
  StartSearch(const StartSearch&) = delete;
  StartSearch& operator=(const StartSearch&) = delete;

  void Begin();
  // The start point was not here yet when last looked for.
  bool waiting() const { return waiting_; }
  // Why the last look found out nothing; Ok if it did.
  const Status& trouble() const { return trouble_; }
  // Files are here, but one before them, where the start point may lie, was not.
  bool hole() const { return waiting_ && hole_; }
  const std::optional<stream::Position>& first_available() const { return core_.first_available(); }
  std::optional<stream::Position> begins() const { return core_.begins(); }
  int64_t newest_heartbeat_us() const { return core_.newest_heartbeat_us(); }
  Scope& scope() { return scope_; }

 private:
  void Do(StartSearchCore::Step step);
  void List();
  void ReadMetadata(int64_t seq);
  void AskIndexLength(const StartSearchCore::AskIndexLength& ask);
  void ReadRecord(const StartSearchCore::ReadRecord& read);
  // `known`: it is not here; else that is not known.
  void Wait(bool known);
  void Trouble(const Status& why);
  stream::RangeReader& ReaderOf(const stream::Stem& stem, int64_t chunk_size);

  const stream::CellPorts ports_;
  const stream::ShardId shard_;
  const AgentOptions& options_;
  Counters& counters_;
  Timer& timer_;
  UniqueFunction<void(Result<FilePlace>)> done_;
  StartSearchCore core_;
  bool waiting_ = false;
  bool hole_ = false;
  Status trouble_;
  bool troubled_ = false;  // in this look
  stream::Stem reader_stem_;
  std::unique_ptr<stream::RangeReader> reader_;  // of the index of reader_stem_
  Scope scope_;
};

}  // namespace tailcast::consumer
