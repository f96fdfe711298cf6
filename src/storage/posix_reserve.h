// Room that is kept back on the disk of a store, so that a full one can be emptied: by a scheduler,
// which must write down what goes before anything goes. It is a file in the store's root, with
// blocks for all of its bytes:
//
//   who writes messages (StoreUse::kMessages)   who writes the cell's records (StoreUse::kRecords)
//   writes while the file is whole.             makes the file; where a write finds no room, cuts
//   Who finds it cut makes it whole first,      a piece off and writes again, till it has room.
//   if there is room, or else is refused.
//
//   whole ---- a record finds no room ----> cut ---- somebody finds room for all of it ---> whole
//
// So what is given up is not taken by messages that wait, and nobody has to be there for the file
// to be whole again. Whoever cuts or grows it holds its lock, which dies with the process. A store
// without the file, which no newer scheduler has opened yet, keeps nothing back; other programs,
// and other stores on this disk, may take what was cut off before the record does. Where inodes
// lack the file itself is given up, and nothing is kept back until there is one for it again.
//
// Internal to the driver. Any thread; calls block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "tailcast/base/status.h"
#include "tailcast/storage/file_ops.h"
#include "tailcast/storage/store.h"

namespace tailcast::storage::posix {

// No listing shows it.
inline constexpr const char* kReserveName = ".reserve";
// A sixteenth of the disk, at most 8 MiB: a registry's log has two files of 4 MiB.
int64_t ReserveBytes(int64_t disk_bytes);

class Reserve {
 public:
  // Outlives it.
  explicit Reserve(FileOps* ops) : ops_(ops) {}

  // Whether messages may be written. ResourceExhausted: no; `what` is for people.
  Status MayWrite(const std::string& what);
  // Makes the file, whole, if there is room.
  void MakeWhole();
  // Runs `write`, again after each piece that is given up, until it does not end for want of room,
  // or nothing is left to give.
  Status Use(const std::function<Status()>& write);
  // For people and schedulers.
  Result<StoreRoom> Room();

 private:
  Status Grow(bool make);
  // With the mutex. The lock is the file's as long as it is open.
  Result<std::unique_ptr<OpsFile>> OpenLocked(int attempts);

  FileOps* const ops_;
  std::mutex mutex_;  // the file's lock is another process'
};

// Calls of `ops` that want room use the reserve, which is theirs. For kRecords. Both outlive it.
std::unique_ptr<FileOps> UseReserve(FileOps* ops, Reserve* reserve);

}  // namespace tailcast::storage::posix
