// The system calls of the posix driver, as a seam: the driver's steps run unchanged on the real
// file system, on one in memory that loses power (memory_files.h), and with a hook before each
// call, where a test stops a process or lets another one run.
//
// Calls block. Any thread; one OpsFile may be used by several threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"

namespace tailcast::storage {

// The first page of an inode as memory that all processes share. Offsets are multiples of 8 below
// 4096. All three are sequentially consistent for a word. Without the file behind it, which another
// program cut or whose device is gone, a load gives 0 and nothing else does anything.
class SharedPage {
 public:
  virtual ~SharedPage() = default;
  virtual uint64_t Load(int64_t offset) = 0;
  virtual void Store(int64_t offset, uint64_t value) = 0;
  // Whether the word was `expected` and is now `desired`.
  virtual bool CompareAndSwap(int64_t offset, uint64_t expected, uint64_t desired) = 0;
  // Whether an access found no file behind the page; it stays so.
  virtual bool lost() const { return false; }
  // Whether the page is in memory, so that an access does not wait for the disk.
  virtual bool resident() const { return true; }
};

// An open inode. It can be read and written after its names are gone.
class OpsFile {
 public:
  virtual ~OpsFile() = default;
  // Writes all bytes, or fails with any part of them written.
  virtual Status WriteAt(int64_t offset, std::string_view bytes) = 0;
  // Cuts off what lies behind `size`.
  virtual Status Truncate(int64_t size) = 0;
  // The inode is `size` bytes long, at least as long as before, and has room for all of them that
  // nothing else may take. ResourceExhausted: nothing has changed.
  virtual Status Allocate(int64_t size) = 0;
  // Fewer bytes only at the end of the inode.
  virtual Result<std::string> ReadAt(int64_t offset, int64_t length) = 0;
  // The end of the bytes that were written from `offset` on: where a hole begins, or the inode
  // ends. At least `offset`. Where the system knows of no holes, the inode's end.
  virtual Result<int64_t> WrittenEnd(int64_t offset) = 0;
  // fdatasync: bytes and size of this inode survive a power loss from here on. After an error
  // nobody knows what did, and a second try says nothing.
  virtual Status SyncData() = 0;
  // Takes the inode's lock unless somebody else has it: true if it is ours. It is freed by Unlock,
  // with this object, or when the process dies. It excludes nothing but other locks.
  virtual Result<bool> TryLock() = 0;
  virtual void Unlock() = 0;
  // Maps the first page, which must exist. The mapping outlives the file object.
  virtual Result<std::unique_ptr<SharedPage>> MapPage(bool writable) = 0;
};

struct OpsEntry {
  std::string name;
  bool is_folder = false;
};

// Of a file system.
struct OpsRoom {
  int64_t free_bytes = 0;  // to everybody: without what only root may take
  int64_t total_bytes = 0;
  bool no_inode = false;  // none is free
  std::string where;      // the store's folder, for people
};
// "3 MiB of 32 MiB are free at /folder", for people.
std::string RoomText(const OpsRoom& room);

// Paths are relative to the store's root, "a/b/name"; the root itself is "". Errors carry the path.
class FileOps {
 public:
  virtual ~FileOps() = default;
  // A new inode without a name in `folder`; it vanishes if it never gets one.
  virtual Result<std::unique_ptr<OpsFile>> CreateUnnamed(const std::string& folder) = 0;
  // NotFound.
  virtual Result<std::unique_ptr<OpsFile>> Open(const std::string& path, bool writable) = 0;
  // Gives an inode a name, atomically. AlreadyExists; NotFound if it had names and has none any
  // more.
  virtual Status Link(OpsFile& file, const std::string& path) = 0;
  virtual Status Unlink(const std::string& path) = 0;
  // Whether `path` is a name of this inode; false if there is nothing.
  virtual Result<bool> IsName(const std::string& path, OpsFile& file) = 0;
  // Names made and removed in this folder survive a power loss from here on.
  virtual Status SyncFolder(const std::string& folder) = 0;
  // AlreadyExists if anything has this name.
  virtual Status MakeFolder(const std::string& path) = 0;
  // In no order. NotFound.
  virtual Result<std::vector<OpsEntry>> ListFolder(const std::string& folder) = 0;
  virtual Result<OpsRoom> Room() = 0;
  // As many bytes as this file has room for: its size, or less if it has holes. NotFound.
  virtual Result<int64_t> AllocatedBytes(const std::string& path) = 0;
  // Differs between any two lives of the page cache that processes share: after a restart of the
  // machine, and after its device or volume was attached anew (attachment.h). Not 0.
  virtual uint64_t AttachTag() = 0;
  // Differs between any two boots of the machine. Not 0.
  virtual uint64_t BootTag() = 0;
  virtual uint64_t Random64() = 0;
};

struct FileOpsOptions {
  // False: new files have a temporary name, as on file systems without O_TMPFILE. For tests; the
  // system is asked first.
  bool nameless_inodes = true;
  // Whether appends have to survive a power loss: then only file systems are taken that are known
  // to keep what was flushed (btrfs, f2fs, bcachefs are not).
  bool durable = true;
};

// The real ones, within one mount: `root`, which must exist, is held open, and what lies on another
// mount below it is refused with FailedPrecondition.
//   PermissionDenied, NotFound       as the system says
//   ResourceExhausted, Unavailable   the folder's attachment (attachment.h)
//   FailedPrecondition               the folder is on a file system where several hosts' processes,
//                                    or one host's mappings and writes, do not see each other (NFS,
//                                    SMB, FUSE, 9p, Ceph, ...): fencing would not hold there; or
//                                    on one that may lose what was flushed
Result<std::unique_ptr<FileOps>> OpenFileOps(const std::string& root, FileOpsOptions options = {});

// Calls `before(call, path)` before each call of another FileOps and of its files and pages; an
// error is returned instead of making the call (of a page, which has no errors: a load still loads,
// a store or swap changes nothing). For tests.
using FileOpsHook = std::function<Status(std::string_view call, const std::string& path)>;
std::unique_ptr<FileOps> HookFileOps(FileOps* ops, FileOpsHook before);
// Whether the call, a "write" or "flush" that is going to report success, loses what it says it
// did: a write is not made, a flush brings back what was there before the writes since the flush
// before (of this handle: the driver flushes with the handle that wrote).
using FileOpsLoss = std::function<bool(std::string_view call, const std::string& path)>;
// The same, and owns them. Without `loses` nothing is lost.
std::unique_ptr<FileOps> HookFileOps(std::unique_ptr<FileOps> ops, FileOpsHook before,
                                     FileOpsLoss loses = nullptr);

}  // namespace tailcast::storage
