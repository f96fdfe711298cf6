// A file system in memory that loses power, for tests of the posix driver.
//
// It promises as little as a disk does. Without a flush of the inode, each 512-byte sector that was
// written may come back as it was, as it is, or, where it had never been flushed, as zeros or
// garbage, whatever became of its neighbours. Without a flush of the folder each name that was made
// or removed may be there or not, whatever became of the others. A flush that fails leaves a random
// part durable and the rest lost for ever, though it still reads well until the power goes.
//
// Of real disks it assumes one thing: rewriting a sector that was flushed leaves the old or the new
// content (Damage::garble_rewritten_metadata drops even that for the sectors between header and
// data).
//
// Threads: any; each call is atomic.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tailcast/base/rng.h"
#include "tailcast/storage/file_ops.h"

namespace tailcast::storage {

class MemoryFiles {
 public:
  struct Faults {
    double write_error_rate = 0;  // a part of the bytes is written, then Unavailable
    double flush_error_rate = 0;
    int64_t capacity_bytes = INT64_MAX;  // of all inodes; beyond it ResourceExhausted
  };
  struct Damage {
    bool garble_rewritten_metadata = false;
    // The machine runs on: the device was taken away and attached again.
    bool same_boot = false;
  };

  explicit MemoryFiles(uint64_t seed);
  ~MemoryFiles();

  // A process' view. Neither it nor its files may outlive this object.
  std::unique_ptr<FileOps> OpenOps();
  void SetFaults(Faults faults);
  // What was not flushed is drawn anew. Files and pages opened before refer to nothing any more;
  // they may still be used, by processes that are dead. A new attachment, and boot unless told
  // otherwise, counts from here on.
  void PowerLoss(Rng& rng, Damage damage);
  // Number of inodes that have a name, for leak checks.
  size_t inodes() const;
  // A copy of everything, durable and not; handles of this one stay with this one.
  std::unique_ptr<MemoryFiles> Clone() const;

  struct Inode;
  struct Folder;

 private:
  friend class MemoryFileOps;
  friend class MemoryOpsFile;
  friend class MemoryPage;

  // Bytes of all inodes that have a name, and of `open`, which may have none; may be null.
  int64_t Used(const Inode* open) const;

  mutable std::mutex mutex_;
  Rng rng_;
  Faults faults_;
  uint64_t boot_tag_ = 1;
  uint64_t attach_tag_ = 1;
  std::map<std::string, Folder> folders_;  // by path; "" is the root
};

}  // namespace tailcast::storage
