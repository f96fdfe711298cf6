// The life cycle of operations (paper §2.3, §3 Fault Tolerance; spec Reroute): which message files
// are copied over which edges of the copy trees, by which reader here and which writer there.
//
//   file known (notice, listing) -> for each edge and layer: wanted
//   wanted -> started on the least loaded pair -> running -> done (both ends agree on the seal)
//                 ^                                  |
//                 +---- failed: at once elsewhere, later with back-off <----+
//
// Soft state: rebuilt from listings of the shards' folders, from what readers still run (orphans
// are adopted, not restarted), and from what the neighbours say they have. Everything it starts has
// a greater term than what it replaces, so two operations on one file settle it between themselves
// (lock, fence): make before break.
//
// A change of a stream's tree is carried out as copytree::Diff lists it, each step by the scheduler
// of its `from`; the record of the change is part of the stream's configuration, durable in each
// cell, so that a scheduler that begins in the middle goes on with it:
//
//   add-edge n -> c        n's scheduler, when what the step comes after has ended. That is one
//                          wait-caught-up or nothing, and n's cell is then recorded as settled
//   wait-caught-up n -> c  shard by shard: look whether n has what c has; take the primary file
//                          over, which fences the old edge, whose cache copies run on; look again,
//                          now that only n -> c appends; then copy to the cache, too. When all
//                          shards have come so far, c is told that it is settled, and records it
//   remove-edge o -> c     o's scheduler, when it sees that c is settled. Until then the edge goes
//                          on, also with files that are opened meanwhile, but for what n -> c took
//                          over
//   remove-edge o -> gone  when all cells are settled, and the change is over
//
// Files found by a listing are cold, except the newest of the shard: they are copied only to the
// primary layer, and only after the neighbour said what it lacks.
//
// A core: no clock, no I/O, one thread; deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/time.h"
#include "tailcast/copytree/change.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/stream/operation.h"

namespace tailcast::scheduler {

struct CoreOptions {
  std::string cell;
  uint32_t incarnation = 1;  // of this scheduler, in terms
  // Throttle: operations that readers were told to start and did not confirm.
  int starting_max = 256;
  Duration retry_delay = Duration::Millis(50);  // after the second failure in a row; doubles
  Duration retry_delay_max = Duration::Seconds(5);
  Duration avoid_worker = Duration::Seconds(1);      // after a failure that is blamed on it
  Duration no_worker_delay = Duration::Millis(100);  // when there is nobody to do it
  Duration progress_interval = Duration::Millis(200);
  // A new edge takes a shard over when its source is at most so many bytes behind the target, or
  // has what the target had at most so long ago (a path may be longer than the old one).
  int64_t caught_up_bytes = 256 << 10;
  Duration caught_up_time = Duration::Seconds(1);
  // Operations more than the least loaded worker's that a successor may find.
  int affinity_slack = 8;
  // Shedding: when the most loaded reader has so many operations more than the least loaded.
  int shed_difference = 8;
  int64_t files_per_shard_max = 100000;
};

// A step of copytree::Diff that this cell has carried out.
struct StepTaken {
  stream::StreamId stream;
  uint64_t tree_version = 0;
  copytree::StepKind kind = copytree::StepKind::kAddEdge;
  std::string from, to;
};

// What is to be done, in this order: stop, start, ask, list.
struct Effects {
  std::map<std::string, std::vector<stream::OperationId>> stop;  // by reader
  std::map<std::string, std::vector<stream::Operation>> start;  // by reader; or updates of the seal
  std::set<std::pair<stream::ShardId, std::string>> progress;   // shard, cell: what does it have?
  std::set<stream::ShardId> list;                               // list the folder here
  std::vector<StepTaken> steps;  // for the log; after a wait-caught-up the target is to be told
};

struct WorkerInfo {
  std::string name;
  std::string address;
  uint64_t incarnation = 0;
};

struct PairLengths {
  stream::Stem stem;
  int64_t length[stream::kParts] = {0, 0};
};

struct CoreCounters {
  int64_t started = 0, done = 0, restarted = 0, adopted = 0, shed = 0, throttled = 0, no_worker = 0,
          superseded = 0, given_up = 0, data_loss = 0, readers_lost = 0, stale_reports = 0,
          foreign_operations = 0, refused = 0;
};

enum class Phase : uint8_t { kHeld, kWanted, kStarting, kRunning, kDone, kGivenUp };

class SchedulerCore {
 public:
  SchedulerCore(CoreOptions options, uint64_t seed);

  // --- what there is ---
  // Streams of the catalogue; a higher tree version changes the tree. Also when this cell is
  // settled and when the change is complete.
  void OnStream(MonotonicTime now, const v1::StreamConfig& config, Effects& out);
  void OnStreamRemoved(const stream::StreamId& stream, Effects& out);
  // A neighbour's record: over the path of which tree version it is fed.
  void OnSettled(MonotonicTime now, const stream::StreamId& stream, const std::string& cell,
                 uint64_t settled_version, Effects& out);
  // A producer or writer of this cell opened (or sealed) a file. Unknown streams and shards: false.
  bool OnNotice(MonotonicTime now, const stream::FileId& file,
                const std::optional<int64_t> (&seal)[stream::kParts], Effects& out);
  // Everything that the shard's folder holds, ascending; what is below `floor` was collected.
  void OnListing(MonotonicTime now, const stream::ShardId& shard, int64_t floor,
                 const std::vector<stream::Stem>& stems, Effects& out);
  // What a neighbour has of the shard, and what this cell has of the same files. Nothing is said of
  // files above `covered_to`.
  void OnProgress(MonotonicTime now, const stream::ShardId& shard, const std::string& cell,
                  int64_t floor, const std::vector<PairLengths>& there,
                  const std::vector<PairLengths>& here, int64_t covered_to);
  // From which file on to ask: the first whose operations wait for the answer, else the newest.
  int64_t AskFrom(const stream::ShardId& shard, const std::string& cell) const;
  // The first file whose operations wait for that; 0 if none does.
  int64_t LowestHeld(const stream::ShardId& shard, const std::string& cell) const;
  void OnProgressFailed(MonotonicTime now, const stream::ShardId& shard, const std::string& cell);

  // --- who there is ---
  void OnReaders(MonotonicTime now, const std::vector<WorkerInfo>& readers, Effects& out);
  void OnWriters(MonotonicTime now, const std::string& cell, const std::string& via,
                 const std::vector<WorkerInfo>& writers, Effects& out);
  // A call to it failed.
  void OnReaderLost(MonotonicTime now, const std::string& reader);
  // It answers again.
  void OnReaderFound(const std::string& reader);

  // --- what happens ---
  // The reader confirmed that it knows these operations.
  void OnStarted(const std::string& reader, const std::vector<stream::OperationId>& ids);
  void OnReport(MonotonicTime now, const std::string& reader, const v1::OperationReport& report,
                Effects& out);
  // With a complete list: what the reader does not know any more is started again.
  void OnReportsComplete(MonotonicTime now, const std::string& reader,
                         const std::set<stream::OperationId>& known);

  // Starts what may be started. Call it after each input.
  void Decide(MonotonicTime now, Effects& out);
  // Moves one operation from the most loaded reader to the least, if they differ much.
  void Shed(MonotonicTime now);
  // When Decide has something to do without an input; Max() if never.
  MonotonicTime NextDecision() const;

  // Cells that this one copies to.
  std::set<std::string> Targets() const;
  const CoreCounters& counters() const { return counters_; }

  struct OperationView {
    const stream::OperationTarget* target;
    Phase phase;
    std::string reader, writer;
    int64_t written[stream::kParts], source[stream::kParts];
    int failures;
    std::string message;
  };
  std::vector<OperationView> Operations() const;
  // Operations that are neither done nor given up.
  int64_t unfinished() const { return unfinished_; }
  // The shard is copied over this edge no more, because another edge took over.
  bool Retired(const stream::ShardId& shard, const std::string& cell, stream::Layer layer) const;
  // Copies go to the cell, over an edge that stays or one that leaves.
  bool Feeds(const stream::StreamId& stream, const std::string& cell) const;
  // The edge is in the tree, and no wait-caught-up is open for it.
  bool Made(const stream::StreamId& stream, const std::string& cell) const;

 private:
  struct Worker {
    WorkerInfo info;
    bool present = false;
    bool lost = false;  // readers: calls fail
    int load = 0;
    MonotonicTime avoid_until;
  };
  struct Target {
    std::string via;
    std::map<std::string, Worker> writers;
  };
  // An edge from this cell that is in use; what Diff's steps say of it.
  struct Edge {
    bool leaving = false;   // remove-edge
    bool joining = false;   // add-edge, and its wait-caught-up has not ended
    bool may_begin = true;  // joining: what add-edge comes after has ended
    bool newcomer = false;  // joining: nobody else feeds the target
  };
  struct StreamState {
    v1::StreamConfig config;
    std::map<std::string, Edge> edges;        // by target cell
    std::map<std::string, uint64_t> settled;  // by cell, as it says itself
    bool Settled(const std::string& cell) const {
      const auto it = settled.find(cell);
      return it != settled.end() && it->second >= config.tree_version();
    }
  };
  struct File {
    stream::Stem stem;
    std::optional<int64_t> seal[stream::kParts];
    bool listed = false;
  };
  // How far a joining edge is with a shard.
  enum class Stage : uint8_t { kBehind, kTakenOver, kCaughtUp };
  struct Look {
    MonotonicTime at;
    int64_t source = 0, target = 0;  // bytes of the shard that each has
  };
  struct ShardEdge {
    bool retired[stream::kLayers] = {false, false};  // leaving: another edge has taken over
    Stage stage = Stage::kBehind;
    std::vector<Look> looks;    // of the last caught_up_time
    int64_t asked_newest = 0;   // when the question that is out was asked ...
    bool asked_opened = false;  // ... and whether our operation had this file then
    bool asking = false;
    MonotonicTime ask_at;
    std::string reader[stream::kLayers], writer[stream::kLayers];  // of the newest file
  };
  struct Shard {
    std::map<int64_t, File> files;
    // Files that are copied everywhere and forgotten: all below done_below, and these. Files arrive
    // out of order, so a hole is not a done file.
    int64_t done_below = 1;
    std::set<int64_t> done;
    bool Done(int64_t seq) const { return seq < done_below || done.contains(seq); }
    std::map<std::string, ShardEdge> edges;
    bool listed = false;  // its folder was looked at
    int held = 0;
  };
  struct Op {
    Phase phase = Phase::kWanted;
    stream::OperationId id;
    uint32_t attempt = 0;
    std::string reader, writer;
    std::string writer_address, writer_via;
    MonotonicTime not_before;
    int failures = 0;
    bool fresh = false;
    bool opened = false;  // the writer has the file: whoever had it before is fenced
    int64_t written[stream::kParts] = {0, 0};
    int64_t source[stream::kParts] = {0, 0};
    std::string message;
  };
  using Ops = std::map<stream::OperationTarget, Op>;

  StreamState* FindStream(const stream::StreamId& id);
  void AddFile(MonotonicTime now, Shard& shard, const stream::ShardId& id, const stream::Stem& stem,
               bool listed, Effects& out);
  void EnsureOperations(MonotonicTime now, const stream::ShardId& id, Shard& shard,
                        const File& file, Effects& out);
  void SetSeal(const stream::ShardId& id, File& file, int64_t data, int64_t index, Effects& out);
  void Ask(MonotonicTime now, const stream::ShardId& id, const std::string& cell, Effects& out);
  void Hold(const stream::ShardId& id, int change);
  void SetPhase(Ops::iterator it, Phase phase, MonotonicTime not_before = {});
  void Unassign(Ops::iterator it);
  void Retry(MonotonicTime now, Ops::iterator it, Duration at_least);
  void OnEnded(MonotonicTime now, Ops::iterator it, const v1::OperationReport& report);
  void Compact(const stream::ShardId& id);
  std::map<std::string, Edge> EdgesOf(const StreamState& stream) const;
  void BeginEdge(MonotonicTime now, const stream::StreamId& id, const std::string& cell,
                 StreamState& stream, Effects& out);
  void DropEdge(const stream::StreamId& id, const std::string& cell, StreamState& stream,
                Effects& out);
  void Refresh(MonotonicTime now, const stream::StreamId& id, StreamState& stream, Effects& out);
  void EndJoining(MonotonicTime now, const stream::StreamId& id, const std::string& cell,
                  StreamState& stream);
  bool MustAsk(const stream::ShardId& id, const Shard& shard, const std::string& cell,
               const Edge& edge) const;
  bool OldEdgeIsFenced(const stream::ShardId& id, const Shard& shard,
                       const std::string& cell) const;
  void Advance(MonotonicTime now, const stream::ShardId& id, Shard& shard, const std::string& cell,
               StreamState& stream, Look look);
  void Release(MonotonicTime now, const stream::ShardId& id, Shard& shard, const std::string& cell,
               stream::Layer layer);
  void Take(const StreamState& stream, copytree::StepKind kind, const std::string& to);
  void DropOperations(const stream::StreamId& stream, const std::string* cell, Effects& out);
  Worker* Pick(MonotonicTime now, std::map<std::string, Worker>& workers,
               const std::string& preferred);
  stream::Operation Describe(const stream::OperationTarget& target, const Op& op);

  const CoreOptions options_;
  Rng rng_;
  std::map<stream::StreamId, StreamState> streams_;
  std::map<stream::ShardId, Shard> shards_;
  std::set<stream::ShardId> held_;  // shards with held operations or joining edges
  std::vector<StepTaken> taken_;
  Ops ops_;
  std::set<std::pair<MonotonicTime, stream::OperationTarget>> wanted_;
  std::map<std::string, Worker> readers_;
  std::map<std::string, Target> targets_;
  int starting_ = 0;
  int64_t unfinished_ = 0;
  CoreCounters counters_;
};

}  // namespace tailcast::scheduler
