// The decisions of a cell's registry: who is there, the rings, the catalogue of
// streams (proto/registry.proto). Served by the scheduler; the durable part is a RegistrySnapshot
// that registry_store.h writes (docs/formats/registry.md).
//
// Durable changes are made in two steps, so that nothing is shown before it survives a crash: a
// call here changes the durable state and asks for a write (NeedsWrite); when the snapshot was
// written, OnWritten makes it part of the view.
//
// The rings hold their cache replicas by name, whether they are there or not: a dead replica stays
// on its ring without an address, so its keys do not move. Which replicas these are, which of them
// are whole and how the ring changes is said by cache_members.h.
//
// A core: no clock, no I/O, one thread. All input from peers is checked; errors name the field.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/cell/cache_members.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/proto/registry.pb.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/term.h"

namespace tailcast::cell {

struct RegistryOptions {
  std::string cell;
  std::string store;                        // as processes of the cell open it
  std::vector<std::string> cache_replicas;  // names of the first ring, in any order
  std::vector<std::string> cache_spares;    // that may be there without being in the ring
  std::vector<std::string> known_cells;     // this one included; empty: any name is good
  std::string topology;                     // passed on in the view
  Duration lease = Duration::Seconds(1);
  // After a lease ran out; of a cache replica that another one needs (cache_members.h).
  Duration fence_after = Duration::Seconds(2);
  int processes_max = 10000;
  int streams_max = 10000;
};

class RegistryCore {
 public:
  // `durable` is what RegistryStore::Open gave. `seed`: for incarnations of streams.
  RegistryCore(RegistryOptions options, v1::RegistrySnapshot durable, uint64_t seed);

  // version() is (scheduler incarnation << 32) + changes: never equal for two schedulers' views.
  const v1::CellView& view() const { return view_; }
  stream::SchedulerIncarnation scheduler_incarnation() const {
    return stream::SchedulerIncarnation{durable_.scheduler_incarnation()};
  }

  // A process is there, again. InvalidArgument: a bad field. FailedPrecondition: a cache that the
  // cell's configuration does not declare, or a process that another one of its name has replaced.
  // ResourceExhausted: too many.
  Result<v1::RegisterReply> Register(MonotonicTime now, const v1::ProcessInfo& process);
  // Drops processes whose lease ran out and returns their names.
  std::vector<std::string> Expire(MonotonicTime now);
  // When Expire is due next.
  MonotonicTime NextExpiry() const;

  // Makes a stream whose source is this cell: gives it an incarnation and tree version 1. `planned`
  // is the copy tree if the request has none.
  //   AlreadyExists, InvalidArgument, ResourceExhausted; FailedPrecondition: this is not the
  //   source.
  Result<v1::StreamConfig> CreateStream(const v1::StreamConfig& request,
                                        const std::vector<v1::TreeEdge>& planned, WallTime now);
  // The configuration of a stream as its parent in the copy tree has it, or a re-route. Returns
  // what is known afterwards; NotFound if that incarnation was deleted.
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
  // Returns the configuration it had. `incarnation` kNone: whichever. NotFound.
  Result<v1::StreamConfig> DeleteStream(const std::string& name,
                                        stream::StreamIncarnation incarnation);
  // Known and not written yet, too.
  const v1::StreamConfig* FindStream(const std::string& name) const;
  bool WasDeleted(const stream::StreamId& stream) const;

  // The retention floor of a shard; 1 if none was set. Only grows.
  int64_t Floor(const stream::ShardId& shard) const;
  void SetFloor(const stream::ShardId& shard, int64_t seq);

  // As CacheMembers::ChangeTo, or its Cancel.
  Status ChangeRing(const v1::ChangeRingRequest& request);

  // There are changes that no snapshot given out holds.
  bool NeedsWrite() const { return dirty_ || caches_.changed(); }
  v1::RegistrySnapshot TakeSnapshot();
  void OnWritten(const v1::RegistrySnapshot& snapshot);
  // As CacheMembers'.
  std::vector<CacheMembers::Event> TakeCacheEvents() { return caches_.TakeEvents(); }

 private:
  struct Entry {
    v1::ProcessInfo info;
    MonotonicTime expires;
    std::vector<ProcessIncarnation> replaced;  // the earlier ones, a few
  };
  Status CheckProcess(const v1::ProcessInfo& process) const;
  Status CheckStream(const v1::StreamConfig& stream) const;
  static v1::TreeChange ChangeFrom(const v1::StreamConfig& known, const v1::StreamConfig& next);
  v1::StreamConfig* Mutable(const std::string& name);
  void Put(const v1::StreamConfig& stream);
  void Changed();
  void RefreshProcesses();
  void FillRing(bool metadata, v1::Ring* ring) const;

  const RegistryOptions options_;
  v1::RegistrySnapshot durable_;
  bool dirty_ = false;
  CacheMembers caches_;
  v1::RegistrySnapshot shown_;  // of it the ring: what is durable
  Rng rng_;
  std::map<std::string, Entry> processes_;
  std::map<std::string, std::vector<ProcessIncarnation>> gone_;  // of names that left
  v1::CellView view_;
};

// InvalidArgument unless the edges are a tree that begins at the stream's source and reaches all of
// its destinations; a cell is entered once.
Status ValidateTree(const v1::StreamConfig& stream);

}  // namespace tailcast::cell
