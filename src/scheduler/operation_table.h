// The operations that this cell's scheduler knows of, and the only place where the phase of one
// changes (paper §2.3).
//
//            Release            Start               Confirm
//    held ------------> wanted ---------> starting ---------> running
//     |                  |  ^ |               |                 |
//     |                  |  | +- Postpone     |                 |
//     |                  |  |      Retry      |   Retry, Move   |
//     |                  |  +-----------------+-----------------+
//     |                  |                    |                 |
//     +------- Finish ---)--------------------+-----------------+------> done
//     |                  |                    |                 |
//     +------- GiveUp ---+--------------------+-----------------+------> given up
//
//     done ---Reopen---> held
//
//   held      waits for what the target says it has, or for a change of the tree
//   wanted    is to be started, at `not_before` or later
//   starting  a reader was told, and did not confirm
//   running   a reader confirmed or reported it
//   done      both ends agree on the seal, or the target has or needs no more
//   given up  another edge took over, or nothing will help
//
// Adopt leads from any phase but done to running: a reader runs it already, for a scheduler before
// us, or because only we had lost that reader. What a transition does not list is our own
// bug. Workers are assigned, and counted as their load, just while an operation is starting or
// running.
//
// A core: no clock, no I/O, one thread; deterministic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/time.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/scheduler/worker_table.h"
#include "tailcast/stream/operation.h"
#include "tailcast/stream/term.h"

namespace tailcast::scheduler {

enum class Phase : uint8_t { kHeld, kWanted, kStarting, kRunning, kDone, kGivenUp };
std::string_view PhaseName(Phase phase);  // "held", ..., "given up"
bool IsOver(Phase phase);                 // done or given up
bool IsAssigned(Phase phase);             // starting or running
// The diagram above, Adopt included.
bool MayFollow(Phase from, Phase to);

struct OperationState {
  Phase phase = Phase::kHeld;
  stream::OperationId id;  // of the last attempt
  uint32_t attempt = 0;
  Assignment workers;        // while it is starting or running
  MonotonicTime not_before;  // while it is wanted
  int failures = 0;  // in a row, without getting on or opening in between: how long it waits
  // How long it may take (StuckAtFirst): those that were not made good, and since when one may be.
  int failures_left = 0;
  MonotonicTime fewer_from;
  bool fresh = false;   // nothing of it is believed to be downstream
  bool orphan = false;  // wanted, because its reader was lost: that one may still run it
  bool opened = false;  // the writer has the file: whoever had it before is fenced
  // Another attempt, that was moved and runs on until this one has opened: its reader and id.
  std::optional<std::pair<std::string, stream::OperationId>> moved;
  int64_t written[stream::kParts] = {0, 0};  // bytes, as last reported
  int64_t source[stream::kParts] = {0, 0};
  OperationLoad load;
  int64_t counted = 0;  // of it, bytes per second, in the workers' loads
  std::string message;  // why it failed last, for people
};

struct OperationTableOptions {
  stream::SchedulerIncarnation incarnation{1};  // of this scheduler
  Duration retry_delay = Duration::Millis(50);  // after the second failure in a row; doubles
  Duration retry_delay_max = Duration::Seconds(5);
  // An operation that does not get on for so long is given up and moved.
  Duration stuck_after = Duration::Seconds(2);
  // What a scheduler before us may have started, and a reader may run that we have not heard of
  // yet, is wanted no sooner.
  MonotonicTime orphans_until;
};

class OperationTable {
 public:
  using Rows = std::map<stream::OperationTarget, OperationState>;
  // A row, to be read by all and changed by the table. Good until the row is removed.
  using Row = Rows::const_iterator;

  // `workers` outlives the table and is told the load. `seed`: for nonces.
  OperationTable(OperationTableOptions options, WorkerTable& workers, uint64_t seed)
      : options_(options), workers_(workers), rng_(seed) {}

  Row Find(const stream::OperationTarget& target) const { return rows_.find(target); }
  Row begin() const { return rows_.begin(); }
  Row end() const { return rows_.end(); }
  // Those of a file, one after the other.
  Row FirstOf(const stream::FileId& file) const {
    return rows_.lower_bound({file, stream::Layer::kPrimary, ""});
  }
  // The same of a shard, and of a stream.
  Row FirstOf(const stream::ShardId& shard) const { return FirstOf(stream::FileId{shard, {}}); }
  Row FirstOf(const stream::StreamId& stream) const { return FirstOf(stream::ShardId{stream, 0}); }

  // A held one; the one that is there, and false, if there is one of that target.
  std::pair<Row, bool> Add(const stream::OperationTarget& target, bool fresh);
  // Forgets it, whatever its phase. Returns the next row.
  Row Remove(Row row);

  void Release(MonotonicTime now, Row row);
  void Postpone(MonotonicTime until, Row row);
  // The next attempt: a greater term, a nonce. False, and given up, after kAttemptMax of them.
  bool Start(Row row, stream::TreeVersion tree_version, const Assignment& workers,
             const OperationLoad::Expected& expected);
  // The reader knows it.
  void Confirm(Row row);
  void Adopt(Row row, const stream::OperationId& id, const Assignment& workers);
  // After a failure: wanted again. The first one in a row at once, if `at_least` is 0; the others
  // with back-off.
  void Retry(MonotonicTime now, Row row, Duration at_least);
  // As Retry, at once: its reader was lost. What it runs is adopted if it is back before another
  // one was told.
  void Orphan(MonotonicTime now, Row row);
  // Wanted again, though nothing failed: the attempt that runs goes on until the next has opened.
  void Move(MonotonicTime now, Row row);
  // The attempt that is superfluous since this one has opened, once.
  std::optional<std::pair<std::string, stream::OperationId>> TakeMoved(Row row);
  void Finish(Row row);
  // What is done is held again: the target has lost it.
  void Reopen(Row row);
  // An earlier operation of this scheduler on the file had this attempt: the next one is a greater.
  void SkipTo(Row row, uint32_t attempt);
  // An empty message leaves the last one.
  void GiveUp(Row row, const std::string& message);
  // Lengths, load and `opened` of a report. Who opens again or gets on is tried again at once. Only
  // getting on makes failures good, one by one and no sooner than StuckAtFirst after each other, or
  // what is a little better for a moment would begin with short times again.
  void Note(MonotonicTime now, Row row, const v1::OperationReport& report);
  void SetMessage(Row row, const std::string& message) { At(row).message = message; }
  // Takes the windows that are over into the loads. Costs the operations that moved bytes lately,
  // once in a window.
  void Weigh(MonotonicTime now);

  // The wanted one that waits longest, if it is due; else end().
  Row NextDue(MonotonicTime now) const;
  // When the next one is due; Max() if none is wanted.
  MonotonicTime NextDueAt() const;
  // Those that the reader was told of, started or not.
  std::vector<Row> AssignedTo(const std::string& reader) const;
  // As AssignedTo.
  std::vector<Row> AssignedToWriter(const std::string& cell, const std::string& writer) const;
  // A writer of the cell has a file open: it can be reached, and what waits will be copied.
  bool GetsOn(const std::string& cell) const;
  // The operation of the same shard, layer and cell on the file before; end() if it is not known.
  Row Predecessor(const stream::OperationTarget& target) const;
  Duration stuck_after() const { return options_.stuck_after; }
  // How long the next attempt has to get on for the first time: twice as long for each failure
  // before it that was not made good, up to 16 times. A layer that hangs is no worker's fault.
  Duration StuckAtFirst(Row row) const {
    return options_.stuck_after *
           (int64_t{1} << std::min(row->second.failures_left, kDoublingsMax));
  }
  // Operations that readers have not confirmed.
  int starting() const { return starting_; }
  // Operations that are neither done nor given up.
  int64_t unfinished() const { return unfinished_; }
  // The files of held operations, by shard and cell: as often as there are such operations.
  using Held = std::map<stream::ShardId, std::map<std::string, std::multiset<int64_t>>>;
  const Held& held() const { return held_; }
  // The sequence number of the first file of the shard with a held operation to the cell; 0: none.
  int64_t LowestHeld(const stream::ShardId& shard, const std::string& cell) const;

 private:
  static constexpr int kDoublingsMax = 4;

  // Erasing nothing is how a map gives an iterator for a const one.
  OperationState& At(Row row) { return rows_.erase(row, row)->second; }
  void SetPhase(Row row, Phase phase, MonotonicTime not_before = {});
  void Leave(Row row);
  void Enter(Row row);
  void Assign(Row row, const Assignment& workers);
  void Unassign(Row row);
  // After its load has changed.
  void Count(Row row);

  const OperationTableOptions options_;
  WorkerTable& workers_;
  Rng rng_;
  Rows rows_;
  std::set<std::pair<MonotonicTime, stream::OperationTarget>> wanted_;  // by not_before
  Held held_;
  struct ByTarget {
    bool operator()(Row a, Row b) const { return a->first < b->first; }
  };
  using RowSet = std::set<Row, ByTarget>;
  std::map<std::string, RowSet> by_reader_;                          // starting and running
  std::map<std::pair<std::string, std::string>, RowSet> by_writer_;  // the same, by cell and name
  RowSet moving_;                         // assigned ones whose load windows change
  std::optional<MonotonicTime> weighed_;  // windows are over until then
  int starting_ = 0;
  int64_t unfinished_ = 0;
};

}  // namespace tailcast::scheduler
