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
// Leases and time-outs run only while this process does: after a stall (it was stopped, or starved)
// nobody is dropped for having been silent meanwhile.
//
// A core: no clock, no I/O, one thread. All input from peers is checked; errors name the field.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/running_clock.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/cell/cache_members.h"
#include "tailcast/cell/catalogue.h"
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
  std::vector<std::string> peers;           // the other cells of the deployment
  std::string topology;                     // passed on in the view
  std::string scheduler_address;            // host:port, kept with the durable state
  std::string cell_key;                     // the same: path of its file, or "none"
  Duration lease = Duration::Millis(1500);  // of caches
  // Of everybody else: what they are given to do is watched by beats besides (rpc/beats.h).
  Duration worker_lease = Duration::Millis(4500);
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
  Result<v1::RegisterReply> Register(MonotonicTime loop_now, const v1::ProcessInfo& process);
  // Drops processes whose lease ran out and returns their names.
  std::vector<std::string> Expire(MonotonicTime loop_now);
  // When Expire is due next: also to see that this process runs, a few times in a lease.
  MonotonicTime NextExpiry() const;
  // How often it did not.
  int64_t stalls() const { return clock_.stalls(); }

  // The streams, with what is known and not written yet.
  Catalogue& catalogue() { return catalogue_; }
  const Catalogue& catalogue() const { return catalogue_; }

  // What the cell lacks of its files, for the view. Soft state.
  void ShowLacking(const std::vector<v1::LackingFile>& lacking, int64_t total);

  // As CacheMembers::ChangeTo, or its Cancel.
  Status ChangeRing(const v1::ChangeRingRequest& request);

  // There are changes that no snapshot given out holds.
  bool NeedsWrite() const { return begun_ || catalogue_.changed() || caches_.changed(); }
  struct Snapshot {
    v1::RegistrySnapshot state;
    CatalogueChanges changed;  // since the one that was taken before
  };
  Snapshot TakeSnapshot();
  // In the order in which they were taken.
  void OnWritten(const Snapshot& snapshot);
  // As CacheMembers'.
  std::vector<CacheMembers::Event> TakeCacheEvents() { return caches_.TakeEvents(); }

 private:
  struct Entry {
    v1::ProcessInfo info;
    MonotonicTime expires;                     // by clock_
    std::vector<ProcessIncarnation> replaced;  // the earlier ones, a few
  };
  MonotonicTime Running(MonotonicTime now);
  Status CheckProcess(const v1::ProcessInfo& process) const;
  void Changed();
  void RefreshProcesses();
  bool ShowStreams(const Snapshot& snapshot);
  void FillRing(bool metadata, v1::Ring* ring) const;

  const RegistryOptions options_;
  const Duration tick_;
  RunningClock clock_;
  MonotonicTime seen_;  // when it was asked last, by the loop's clock
  v1::RegistrySnapshot durable_;
  bool begun_ = false;   // its id or address is not written
  Catalogue catalogue_;  // of durable_
  CacheMembers caches_;
  v1::RegistrySnapshot shown_;  // of it the ring: what is durable
  std::map<std::string, Entry> processes_;
  std::map<std::string, std::vector<ProcessIncarnation>> gone_;  // of names that left
  v1::CellView view_;
  std::string seen_by_others_;  // of it the processes and rings, as the last version shows them
};

}  // namespace tailcast::cell
