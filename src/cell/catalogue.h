// The catalogue of a cell: its streams, those that were deleted, and the retention floors of their
// shards. A part of the registry: it changes the durable state, which the registry writes
// (registry_core.h); nothing is shown before that.
//
// A stream is created, re-routed and deleted in its source alone; all other cells do as they are
// told (spec Catalogue). No clock decides anything:
//
//   name free                            BeginCreate, written: the name is reserved here
//     --> every other cell is asked      AskName there, answered after a write; one that is silent,
//                                        or has or reserves the name, refuses it: AbortCreate
//     --> FinishCreate, written          the stream is there; its tree hands it on: InstallStream
//     --> DeleteStream, written          it is not; the other cells still are to be told
//     --> every other cell is told       RemoveStream there, written; OnTold here, until none is left
//
// Two cells that want a name at once ask each other after both reservations are durable, so one of
// them at least is refused; of two that wait for each other the one whose cell's name is less goes
// on. A cell that still has a deleted stream keeps its name from being given again, so no cell ever
// has to choose between two incarnations.
//
// Its parts: what a configuration may be (stream_config.h), deletions (deletions.h), cells that
// left a copy tree (departures.h), retention floors (floors.h).
//
// A core: no clock, no I/O, one thread. All input from peers is checked; errors name the field.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/cell/deletions.h"
#include "tailcast/cell/departures.h"
#include "tailcast/cell/floors.h"
#include "tailcast/cell/stream_config.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/proto/registry.pb.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/term.h"

namespace tailcast::cell {

struct CatalogueOptions {
  std::string cell;
  std::vector<std::string> known_cells;  // this one included; empty: any name is good
  std::vector<std::string> peers;        // the other cells of the deployment
  int streams_max = 10000;
  // Of the durable state, when a stream is added: 10,000 streams with trees of 60 cells each.
  // Changes of trees may take twice as much again, so a view of it stays within what a message may
  // have.
  int64_t state_bytes_max = 20 << 20;
};

// What changed from one snapshot of the durable state to the next: so that whoever acts on it does
// work for that alone. May name what is the same after all.
struct CatalogueChanges {
  std::set<std::string> streams;       // by name: that came, went, or are others
  std::set<stream::StreamId> deleted;  // entries
  bool creating = false, floors = false, departures = false;

  bool any() const {
    return !streams.empty() || !deleted.empty() || creating || floors || departures;
  }
};

class Catalogue {
 public:
  // `durable` outlives it; of it `streams`, `creating`, `deleted`, `floors` and what departures.h
  // names. `seed`: for incarnations.
  Catalogue(CatalogueOptions options, v1::RegistrySnapshot* durable, uint64_t seed);

  const std::string& cell() const { return options_.cell; }

  // Reserves the name of a stream whose source is this cell: gives it an incarnation and tree
  // version 1. `planned` is the copy tree if the request has none. To be written before any other
  // cell is asked; then one of the two below.
  //   AlreadyExists, InvalidArgument, ResourceExhausted; FailedPrecondition: this is not the
  //   source, which it names.
  Result<v1::StreamConfig> BeginCreate(const v1::StreamConfig& request,
                                       const std::vector<v1::TreeEdge>& planned, WallTime now);
  // Every other cell agrees. The stream is there once this is written.
  void FinishCreate(const stream::StreamId& stream);
  void AbortCreate(const stream::StreamId& stream);
  // Names are reserved for which neither has come yet.
  bool creating() const { return durable_->creating_size() > 0; }
  // Whether `claimant` may have the name. To be answered after a write.
  //   AlreadyExists: no. Unavailable: what stands against it goes away; ask again.
  Status AskName(const std::string& name, const std::string& claimant) const;

  // The configuration of a stream as its parent in the copy tree has it, or a re-route. Returns
  // what is known afterwards.
  //   NotFound             that incarnation was deleted, or this is its source and has no such one
  //   FailedPrecondition   another incarnation is here, of whose deletion this cell has not heard;
  //                        or, in the source, a cell of the tree drops what it had of it still
  //   Unavailable          this cell does, which the tree names: ask again
  //
  // In the stream's source a new tree begins a change: `stream.change` is filled in here (what the
  // request says is ignored), from the last tree that was carried out. Other cells take it as it
  // comes. `settled` and `complete` (cell.proto) are kept for the tree version that they are said
  // of.
  struct Installed {
    bool settled = false, complete = false;
  };
  Result<v1::StreamConfig> InstallStream(const v1::StreamConfig& stream,
                                         const Installed& what = {false, false});
  // All cells below this one are fed as the tree of this version wants it. In the source that ends
  // the change.
  void SetFinished(const std::string& name, stream::TreeVersion tree_version);
  // In the source: all other cells are to be told. Returns the configuration it had.
  // `incarnation`: that is meant; kNone: whichever has the name.
  //   NotFound (with the nearest name); FailedPrecondition: another cell is the source, named, or
  //   the name has another incarnation.
  Result<v1::StreamConfig> DeleteStream(
      const std::string& name,
      stream::StreamIncarnation incarnation = stream::StreamIncarnation::kNone);
  // Elsewhere, as the source says: it, and what comes of it from now on, is refused. Returns the
  // configuration it had, if any. FailedPrecondition: this cell is its source.
  Result<std::optional<v1::StreamConfig>> RemoveStream(const stream::StreamId& stream,
                                                       int32_t shards);
  // Those that are durable.
  const std::map<stream::StreamId, v1::DeletedStream>& deleted() const { return written_deleted_; }
  // `cell` has recorded the deletion.
  void OnTold(const stream::StreamId& deleted, const std::string& cell);
  // No file of it is left here; or there may be one again: somebody was slow.
  void SetOnDisk(const stream::StreamId& deleted, bool on_disk);
  // Known and not written yet, too.
  const v1::StreamConfig* FindStream(const std::string& name) const;
  bool Has(const stream::StreamId& stream) const;
  // All of them, sorted by name.
  const google::protobuf::RepeatedPtrField<v1::StreamConfig>& streams() const {
    return durable_->streams();
  }
  // One whose source this cell is; not null. Errors as DeleteStream's; `verb`: what can't be done
  // elsewhere.
  Result<const v1::StreamConfig*> FindMine(const std::string& name, const char* verb) const;
  bool WasDeleted(const stream::StreamId& stream) const { return deletions_.Has(stream); }

  // --- retention (spec Retention) ---
  // In the source. Returns the configuration with it.
  //   InvalidArgument; NotFound, FailedPrecondition: as DeleteStream; Aborted: it has a version, and
  //   another change came first.
  Result<v1::StreamConfig> SetRetention(const std::string& name, const v1::Retention& retention);
  // In the source: nothing is kept for the cell, or it is kept for it again.
  void SetLeftOut(const stream::StreamId& stream, const std::string& cell, bool left_out);
  // With those that are not written yet: for deciding what comes next.
  const Floors& floors() const { return floors_; }
  // Those that are durable: for whatever is done by them, or said of them. 1 if there is none.
  int64_t WrittenFloor(const stream::ShardId& shard) const;
  const std::map<stream::ShardId, int64_t>& written_floors() const { return written_floors_; }
  // Only grow. Of a stream that is not there nothing is kept, and Trim is false.
  void RaiseFloor(const stream::ShardId& shard, int64_t seq);
  bool Trim(const stream::ShardId& shard, int64_t seq);
  // As Floors::NoteHeldUp.
  void NoteHeldUp(const stream::ShardId& shard, const std::string& cell, int64_t done,
                  Duration time);
  // As Floors::NoteRan, NoteSeen.
  void NoteRan(Duration ran) { changed_.floors |= floors_.NoteRan(ran); }
  void NoteSeen(const stream::ShardId& shard, int64_t seq, Duration ran, Duration old);

  // --- copies of cells that left a copy tree (departures.h) ---
  // In the source: the cell's copies go. False: it is no leaver with that order, or is named again.
  bool BeginGoing(const stream::StreamId& stream, const std::string& cell, uint64_t order);
  void OnGone(const stream::StreamId& stream, const std::string& cell, uint64_t order);
  // In the source: a cell that its trees do not name has files. Errors as FindMine's.
  Status AskToLeave(const stream::StreamId& stream, const std::string& cell);
  // Elsewhere, as the source says, which has this configuration now: the copies go. True: those of
  // this order are gone, durably; false: once it is written they go.
  //   FailedPrecondition: a tree or an open change that is known here names the cell. Others as
  //   InstallStream's.
  Result<bool> LeaveStream(const v1::StreamConfig& stream, uint64_t order);
  void OnDropped(const stream::StreamId& stream, uint64_t order);
  bool IsDropping(const stream::StreamId& stream) const { return departures_.IsDropping(stream); }
  // The same, as it was written last.
  bool WasDropping(const stream::StreamId& stream) const;
  // Those that are durable.
  const google::protobuf::RepeatedPtrField<v1::Leaver>& leavers() const { return written_leavers_; }
  const google::protobuf::RepeatedPtrField<v1::DroppedCopy>& dropped() const {
    return written_dropped_;
  }

  // Something changed since OnTaken.
  bool changed() const { return changed_.any(); }
  // A snapshot of the durable state was taken, to be written, with these changes since the last
  // one.
  CatalogueChanges OnTaken() { return std::exchange(changed_, CatalogueChanges()); }
  // In the order in which they were taken.
  void OnWritten(const v1::RegistrySnapshot& snapshot, const CatalogueChanges& changed);
  // Of who begins: all there is.
  CatalogueChanges Everything() const;

 private:
  Status CheckRoom(const v1::StreamConfig& added, int64_t times) const;
  v1::StreamConfig* Mutable(const std::string& name);
  void Forget(int index, std::vector<std::string> cells_to_tell);
  void Put(const v1::StreamConfig& stream);
  Result<int> IndexOfMine(const std::string& name, const char* verb) const;

  const CatalogueOptions options_;
  v1::RegistrySnapshot* const durable_;
  std::map<stream::StreamId, v1::DeletedStream> written_deleted_;
  google::protobuf::RepeatedPtrField<v1::Leaver> written_leavers_;
  google::protobuf::RepeatedPtrField<v1::DroppedCopy> written_dropped_;
  Deletions deletions_;    // of durable_
  Floors floors_;          // of durable_
  Departures departures_;  // of durable_
  std::map<stream::ShardId, int64_t> written_floors_;
  CatalogueChanges changed_;
  Rng rng_;
};

}  // namespace tailcast::cell
