// The primary layer on a local folder: durable, fenced across processes, safe against kill -9 and
// power loss. docs/formats/primary_posix.md has the layout, posix_file.h the steps.
//
// One host only: all processes that use a folder share its page cache. Good: ext4, xfs, tmpfs
// (which a restart empties), overlay; without flushes also btrfs, f2fs, bcachefs. Refused at Open:
// these with flushes, and NFS, SMB, FUSE, 9p and others where two hosts, or a mapping and a write,
// may not see each other.
//
// An append is one task on a pool thread: two writes, one fdatasync, one compare-and-swap. Size
// costs one that does not wait. Reads have threads of their own, so that a spike of readers does
// not delay appends.
//
// A call that the kernel does not answer by its deadline (a disk or a mount that hangs) is answered
// as not known, as Store says; one that waits for a thread until then is never begun. What hangs
// keeps its thread, so no more can hang than there are threads. That is said once, with where the
// threads wait, and when it is over (slow_requests_core.h).
//
// Threads: all calls on the loop; see Store.
#pragma once

#include <memory>
#include <string>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/step_log.h"
#include "tailcast/base/time.h"
#include "tailcast/storage/file_ops.h"
#include "tailcast/storage/posix_format.h"
#include "tailcast/storage/store.h"

namespace tailcast::storage {

struct PosixStoreOptions {
  // See posix::Durability. A file keeps working under either, in turn, until the machine restarts.
  posix::Durability durability = posix::Durability::kDurable;
  StoreUse use = StoreUse::kMessages;  // posix_reserve.h
  // Threads for appends, creates, fences, deletes; and for reads and listings. They are started as
  // they are needed. More threads = more flushes at once, which most disks merge.
  size_t write_threads_max = 8;
  size_t read_threads_max = 4;
  // Reads that wait for a thread; above it Read answers ResourceExhausted.
  size_t queued_reads_max = 65'536;
  Duration deadline = Duration::Seconds(30);  // of each call
  // When it is said that one is slow.
  Duration slow_after = Duration::Seconds(2);
  // What Open and the end of the store wait for the kernel.
  Duration open_wait = Duration::Millis(4500);
  Duration close_wait = Duration::Millis(500);
  std::string name = "the store";  // for people; of Open: the folder
  // Null: ProcessMetrics(). Outlives the store, its handles, and the calls that hung when it was
  // closed.
  MetricRegistry* metrics = nullptr;
  // Not null: each committed length is logged there, also of calls that hung when the store was
  // closed.
  std::shared_ptr<StepLog> steps;
};

class PosixStore final : public Store {
 public:
  // Opens the store in the folder `root`, which is made if its parent exists. `loop` must outlive
  // the store.
  //   NotFound, PermissionDenied  the folder cannot be made, read or written; the message names it
  //   Unavailable                 it hangs
  //   FailedPrecondition          its file system cannot fence, or may forget flushes (see above)
  //   ResourceExhausted, Unavailable, PermissionDenied
  //                               its file `.attached` (attachment.h)
  static Result<std::unique_ptr<PosixStore>> Open(EventLoop* loop, const std::string& root,
                                                  PosixStoreOptions options = {});
  // On given system calls, for tests.
  PosixStore(EventLoop* loop, std::unique_ptr<FileOps> ops, PosixStoreOptions options);
  // Waits for system calls under way, `close_wait` at most. Outstanding callbacks run later, with
  // kUnknown / Cancelled.
  ~PosixStore() override;

  void CreateExclusive(const std::string& dir, const std::string& name, const std::string& key,
                       Callback<void(Result<std::unique_ptr<AppendFile>>)> done) override;
  void OpenFencing(const std::string& dir, const std::string& name,
                   Callback<void(Result<std::unique_ptr<AppendFile>>)> done) override;
  void OpenRead(const std::string& dir, const std::string& name,
                Callback<void(Result<std::unique_ptr<ReadFile>>)> done) override;
  void List(const std::string& dir, Callback<void(Result<std::vector<DirEntry>>)> done) override;
  void ListDirs(const std::string& dir,
                Callback<void(Result<std::vector<std::string>>)> done) override;
  void Identify(const std::string& dir, const std::string& name,
                Callback<void(Result<std::string>)> done) override;
  void DeleteExactly(const std::string& dir, const std::string& name, const std::string& id,
                     Callback<void(Status)> done) override;
  void Delete(const std::string& dir, const std::string& name,
              Callback<void(Status)> done) override;
  void Quarantine(const std::string& dir, const std::string& name,
                  Callback<void(Status)> done) override;
  void Room(Callback<void(Result<StoreRoom>)> done) override;

  struct Core;

 private:
  const std::shared_ptr<Core> core_;
};

}  // namespace tailcast::storage
