// The decisions of a cell's scheduler (paper §2.3, §3 Fault Tolerance; spec Reroute): which message
// files are copied over which edges of the copy trees, by which reader here and which writer there.
// This class picks the workers, hears the readers' reports and decides what a failure means; the
// rest is decided by the cores that it owns:
//
//   configurations, listings,                          registered
//   notices, what targets have                         processes
//              |                                           |
//     +--------v---------------------+             +-------v-------+
//     | CopySet                      |             | WorkerTable   |
//     |   StreamEdges, EdgeChange    |             | who, how busy |
//     |   ShardFiles                 |             +-------^-------+
//     +--------+---------------------+                     | load
//              | files x edges x layers                    |
//     +--------v-------------------------------------------+-------+
//     | OperationTable: the phase of each operation                | ---> Effects
//     +--------^---------------------------------------------------+
//              |
//      reports of readers
//
// Soft state: rebuilt from listings of the shards' folders, from what readers still run (orphans
// are adopted, not restarted), and from what the neighbours say they have. Everything it starts has
// a greater term than what it replaces, so two operations on one file settle it between themselves
// (lock, fence): make before break.
//
// A core: no clock, no I/O, one thread; deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/scheduler/copy_set.h"
#include "tailcast/scheduler/effects.h"
#include "tailcast/scheduler/operation_table.h"
#include "tailcast/scheduler/shard_files.h"
#include "tailcast/scheduler/worker_table.h"
#include "tailcast/stream/operation.h"
#include "tailcast/stream/term.h"

namespace tailcast::scheduler {

struct CoreOptions {
  std::string cell;
  stream::SchedulerIncarnation incarnation{1};  // of this scheduler
  // Throttle: operations that readers were told to start and did not confirm.
  int starting_max = 256;
  Duration retry_delay = Duration::Millis(50);  // after the second failure in a row; doubles
  Duration retry_delay_max = Duration::Seconds(5);
  MonotonicTime orphans_until;                   // as OperationTableOptions
  Duration avoid_worker = Duration::Seconds(1);  // as WorkerOptions::avoid
  Duration stuck_after = Duration::Seconds(2);   // as OperationTableOptions
  SpeedOptions speed;
  Duration no_worker_delay = Duration::Millis(100);  // when there is nobody to do it
  Duration progress_interval = Duration::Millis(200);
  // As EdgeOptions.
  int64_t caught_up_bytes = 256 << 10;
  Duration caught_up_time = Duration::Seconds(1);
  BalanceOptions balance;
  int64_t files_per_shard_max = 100000;
};

struct CoreCounters {
  int64_t started = 0, done = 0, restarted = 0, adopted = 0, shed = 0, left = 0, slow = 0,
          throttled = 0, no_worker = 0, superseded = 0, given_up = 0, data_loss = 0,
          readers_lost = 0, stale_reports = 0, foreign_operations = 0, refused = 0,
          copied_again = 0, put_off = 0;
};

class SchedulerCore {
 public:
  SchedulerCore(CoreOptions options, uint64_t seed);
  SchedulerCore(const SchedulerCore&) = delete;
  SchedulerCore& operator=(const SchedulerCore&) = delete;

  // --- what there is ---
  // Streams of the catalogue; a higher tree version changes the tree. Also when this cell is
  // settled and when the change is complete.
  void OnStream(MonotonicTime now, const v1::StreamConfig& config, Effects& out) {
    copies_.OnStream(now, config, out);
  }
  void OnStreamRemoved(const stream::StreamId& stream, Effects& out) {
    copies_.OnStreamRemoved(stream, out);
  }
  // What a neighbour says of itself: over the path of which tree version it is fed.
  void OnSettled(MonotonicTime now, const stream::StreamId& stream, const std::string& cell,
                 stream::TreeVersion settled_version, Effects& out) {
    copies_.OnSettled(now, stream, cell, settled_version, out);
  }
  // A producer or writer of this cell opened (or sealed) a file. Unknown streams and shards: false.
  bool OnNotice(MonotonicTime now, const stream::FileId& file,
                const std::optional<int64_t> (&seal)[stream::kParts], Effects& out) {
    return copies_.OnNotice(now, file, seal, out);
  }
  // Everything that the shard's folder holds, ascending; what is below `floor` was collected.
  void OnListing(MonotonicTime now, const stream::ShardId& shard, int64_t floor,
                 const std::vector<stream::Stem>& stems, Effects& out) {
    copies_.OnListing(now, shard, floor, stems, out);
  }
  // What a neighbour has of the shard, and what this cell has of the same files. Nothing is said of
  // files above `covered_to`.
  void OnProgress(MonotonicTime now, const stream::ShardId& shard, const std::string& cell,
                  int64_t floor, const std::vector<PairLengths>& there,
                  const std::vector<PairLengths>& here, int64_t covered_to) {
    copies_.OnProgress(now, shard, cell, floor, there, here, covered_to);
  }
  // From which file on to ask: the first whose operations wait for the answer, else the newest.
  int64_t AskFrom(const stream::ShardId& shard, const std::string& cell) const {
    return copies_.AskFrom(shard, cell);
  }
  void OnProgressFailed(MonotonicTime now, const stream::ShardId& shard, const std::string& cell) {
    copies_.OnProgressFailed(now, shard, cell);
  }
  // A neighbour lacks a file, as it says itself. True: it was copied there, and is copied again.
  bool OnLacking(MonotonicTime now, const stream::ShardId& shard, const std::string& cell,
                 int64_t seq, v1::LackingFile::Kind kind, Effects& out);

  // --- who there is ---
  void OnReaders(MonotonicTime now, const std::vector<WorkerInfo>& readers);
  void OnWriters(MonotonicTime now, const std::string& cell, const std::string& via,
                 const std::vector<WorkerInfo>& writers);
  // A call to it failed.
  void OnReaderLost(MonotonicTime now, const std::string& reader);
  // It answers again.
  void OnReaderFound(const std::string& reader);

  // --- what happens ---
  // The reader confirmed that it knows these operations.
  void OnStarted(const std::string& reader, const std::vector<stream::Operation>& operations);
  void OnReport(MonotonicTime now, const std::string& reader, const v1::OperationReport& report,
                Effects& out);
  // With a complete list: what the reader does not know any more is started again.
  void OnReportsComplete(MonotonicTime now, const std::string& reader,
                         const std::set<stream::OperationId>& known);

  // Starts what may be started, asks what is to be asked. Call it after each input.
  void DoWork(MonotonicTime now, Effects& out);
  // When DoWork has something to do without an input; Max() if never.
  MonotonicTime NextWork() const;
  // Moves the operation that evens the loads of the readers, or of a cell's writers, best; none if
  // they are near (load_balance.h).
  void Shed(MonotonicTime now);

  // Cells that this one copies to.
  std::set<std::string> Targets() const { return copies_.Targets(); }
  std::set<std::string> TargetsOf(const stream::StreamId& stream) const {
    return copies_.TargetsOf(stream);
  }
  CoreCounters counters() const;
  // As CopySet's.
  int64_t SealedBytes(const stream::OperationTarget& target) const {
    return copies_.SealedBytes(target);
  }
  // As FileMemory::last_put_off.
  const std::optional<stream::ShardId>& last_put_off() const {
    return copies_.memory().last_put_off();
  }
  const OperationTable& operations() const { return operations_; }
  const WorkerTable& workers() const { return workers_; }
  // This very attempt is starting or running, as far as is known.
  bool IsCurrent(const stream::Operation& operation) const;
  // Operations that are neither done nor given up.
  int64_t unfinished() const { return operations_.unfinished(); }
  // The shard is copied over this edge no more, because another edge took over.
  bool Retired(const stream::ShardId& shard, const std::string& cell, stream::Layer layer) const;
  // kNone: the stream is not known.
  stream::TreeVersion TreeVersion(const stream::StreamId& stream) const {
    return copies_.TreeVersion(stream);
  }
  // Copies go to the cell, over an edge that stays or one that leaves.
  bool Feeds(const stream::StreamId& stream, const std::string& cell) const;
  // The edge is in the tree, and no wait-caught-up is open for it.
  bool Made(const stream::StreamId& stream, const std::string& cell) const;

 private:
  using Row = OperationTable::Row;

  void StartDue(MonotonicTime now, Effects& out);
  std::optional<Assignment> PickWorkers(MonotonicTime now, const stream::OperationTarget& target);
  Row BestToMove(const WorkerTable::Shedding& shedding) const;
  void MoveFromLeavers(MonotonicTime now);
  void NoteTimes(MonotonicTime now, Row row, const v1::OperationReport& report);
  void MoveFromSlow(MonotonicTime now);
  void Retry(MonotonicTime now, Row row, Duration at_least);
  void RetryAllOf(MonotonicTime now, const std::string& reader);
  bool Adopt(const std::string& reader, const stream::Operation& operation, bool running, Row row,
             Effects& out);
  void OnEnded(MonotonicTime now, Row row, const v1::OperationReport& report);
  void OnFailed(MonotonicTime now, Row row, const v1::OperationReport& report);
  void OnSuperseded(MonotonicTime now, Row row, const stream::Term& by);

  const CoreOptions options_;
  WorkerTable workers_;
  OperationTable operations_;
  CopySet copies_;
  CoreCounters counters_;
  MonotonicTime round_ends_;  // of WorkerSpeed
};

}  // namespace tailcast::scheduler
