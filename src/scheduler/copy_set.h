// What is to be copied: the streams of the cell, the files of their shards and the edges that begin
// here, and the operations that follow from them (paper §2.3; spec Reroute).
//
//   files  x  edges  x  layers  =  operations    held until a question to the target is answered,
//                                                or until the change of the edge has got so far;
//                                                else wanted at once
//
// Files found by a listing are cold, except the newest of the shard: they are copied only to the
// primary layer, and only after the target said what it lacks. A file is forgotten when all of its
// operations are over (file_memory.h).
//
// A core: no clock, no I/O, one thread; deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/scheduler/effects.h"
#include "tailcast/scheduler/file_memory.h"
#include "tailcast/scheduler/operation_table.h"
#include "tailcast/scheduler/shard_files.h"
#include "tailcast/scheduler/stream_edges.h"
#include "tailcast/stream/operation.h"
#include "tailcast/stream/term.h"

namespace tailcast::scheduler {

struct CopySetOptions {
  std::string cell;  // this one
  EdgeOptions edge;
  int64_t files_per_shard_max = 100000;
};

class CopySet {
 public:
  using Row = OperationTable::Row;

  // `operations` outlives it.
  CopySet(CopySetOptions options, OperationTable& operations)
      : options_(std::move(options)),
        operations_(operations),
        memory_(operations, options_.files_per_shard_max) {}
  CopySet(const CopySet&) = delete;
  CopySet& operator=(const CopySet&) = delete;

  // --- inputs; as SchedulerCore's ---
  void OnStream(MonotonicTime now, const v1::StreamConfig& config, Effects& out);
  void OnStreamRemoved(const stream::StreamId& stream, Effects& out);
  void OnSettled(MonotonicTime now, const stream::StreamId& stream, const std::string& cell,
                 stream::TreeVersion settled_version, Effects& out);
  bool OnNotice(MonotonicTime now, const stream::FileId& file,
                const std::optional<int64_t> (&seal)[stream::kParts], Effects& out);
  void OnListing(MonotonicTime now, const stream::ShardId& shard, int64_t floor,
                 const std::vector<stream::Stem>& stems, Effects& out);
  void OnProgress(MonotonicTime now, const stream::ShardId& shard, const std::string& cell,
                  int64_t floor, const std::vector<PairLengths>& there,
                  const std::vector<PairLengths>& here, int64_t covered_to);
  void OnProgressFailed(MonotonicTime now, const stream::ShardId& shard, const std::string& cell);
  bool OnLacking(MonotonicTime now, const stream::ShardId& shard, const std::string& cell,
                 int64_t seq, v1::LackingFile::Kind kind, Effects& out);

  // --- operations ---
  // A reader runs an operation that the table does not know. end(): nobody wants it.
  Row AddReported(MonotonicTime now, const stream::OperationTarget& target, Effects& out);
  // Both ends have the whole file; these are its lengths.
  void OnCopied(Row row, int64_t data_length, int64_t index_length);
  // The operation lost its file to one of this tree version. True if that is the edge which
  // replaces ours: we are done with this layer of the shard, and the row may be gone.
  bool OnTakenOver(Row row, stream::TreeVersion tree_version);
  // As the reader is told of it.
  stream::Operation Describe(Row row) const;
  // In its terms.
  stream::TreeVersion TermVersion(const stream::OperationTarget& target) const;
  // The final length of its data; 0: it is not known.
  int64_t SealedBytes(const stream::OperationTarget& target) const;
  // What it will cost who copies it, as far as is known of its shard, else of its stream.
  OperationLoad::Expected ExpectedLoad(const stream::OperationTarget& target) const;
  // It is of a file that grows, or that was closed since it is known: not of those that a listing
  // showed, which are copied as fast as it goes.
  bool IsHot(const stream::OperationTarget& target) const;
  // The shard's newest file was copied at this rate, bytes per second.
  void NoteRate(const stream::OperationTarget& target, int64_t rate);
  EdgeChange::LastWorkers& last_workers(const stream::OperationTarget& target) {
    return EdgeOf(target).last_workers(target.file.shard.shard, target.layer);
  }

  // --- questions to the targets ---
  // Asks what may be asked now.
  void AskDue(MonotonicTime now, Effects& out);
  // When there is something to ask without an input; Max() if never.
  MonotonicTime NextQuestion() const;
  // As SchedulerCore's.
  int64_t AskFrom(const stream::ShardId& shard, const std::string& cell) const;

  // Steps that were taken and not told yet.
  std::vector<StepTaken> TakeSteps() { return std::exchange(steps_, {}); }
  std::set<std::string> Targets() const;
  std::set<std::string> TargetsOf(const stream::StreamId& stream) const;
  // kNone: the stream is not known.
  stream::TreeVersion TreeVersion(const stream::StreamId& stream) const;
  // nullptr: nothing is copied to the cell.
  const EdgeChange* FindEdge(const stream::StreamId& id, const std::string& cell) const;
  // Files under whose number the target has another one.
  int64_t data_loss() const { return data_loss_; }
  // Which files are kept in mind, and what that costs: only a listing and a change of the tree look
  // at all files of a shard.
  const FileMemory& memory() const { return memory_; }

 private:
  struct Stream {
    StreamEdges edges;
    std::vector<ShardFiles> shards;    // by number
    std::map<int32_t, int64_t> rates;  // by shard, bytes per second; as last known
  };

  Stream* FindStream(const stream::StreamId& id);
  // nullptr: no such stream or shard.
  ShardFiles* FindShard(const stream::ShardId& id);
  EdgeChange& EdgeOf(const stream::OperationTarget& target);

  void CarryOut(MonotonicTime now, Stream& stream, const EdgeEvents& events, Effects& out);
  void BeginEdge(MonotonicTime now, Stream& stream, const std::string& cell, Effects& out);
  void DropOperations(const stream::StreamId& stream, const std::string* cell, Effects& out);
  void DropOperations(const stream::FileId& file, Effects& out);
  void Release(MonotonicTime now, const stream::ShardId& id, const std::string& cell,
               stream::Layer layer);
  void AddFile(MonotonicTime now, const stream::ShardId& id, const stream::Stem& stem, bool listed,
               Effects& out);
  void AddOperations(MonotonicTime now, const stream::ShardId& id, Stream& stream,
                     const ShardFiles::File& file, Effects& out);
  void UpdateSeal(const stream::FileId& file, Effects& out);

  bool MustAsk(const Stream& stream, const stream::ShardId& id, const std::string& cell,
               const EdgeChange& edge) const;
  bool OldEdgeIsFenced(const stream::ShardId& id, const ShardFiles& shard,
                       const std::string& cell) const;
  void Ask(MonotonicTime now, const ShardFiles& shard, const stream::ShardId& id,
           const std::string& cell, EdgeChange& edge, Effects& out);
  template <typename Set, typename Function>
  static void ForEachQuestion(Set& set, Function function);
  void ApplyProgress(MonotonicTime now, Row row, const ShardFiles& shard,
                     const ShardFiles::File& file, const EdgeChange& edge, const PairLengths* there,
                     const PairLengths* here);

  const CopySetOptions options_;
  OperationTable& operations_;
  FileMemory memory_;
  std::map<stream::StreamId, Stream> streams_;
  std::set<stream::StreamId> changing_;  // streams with an edge that waits or joins
  std::vector<StepTaken> steps_;
  int64_t data_loss_ = 0;
};

}  // namespace tailcast::scheduler
