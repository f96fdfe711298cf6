// The primary layer's port: append-only files on a distributed file system, the only source of
// truth (paper §2.1, §2.2). Drivers: PosixStore (posix_store.h), RolledStore on objects
// (rolled_store.h), FakeStore (fake_store.h); all run the same conformance suite
// (store_conformance.h).
//
// What every driver promises:
//  * A byte is shown by Size or Read only after the flush that covers it was acknowledged by the
//    file system; once shown it survives every crash and takeover (design rule "committed first").
//  * One writer at a time: opening a file for append fences every earlier handle, in any process,
//    running or stopped. A fenced handle's next append fails and leaves nothing that can be seen.
//  * Create, delete and fences are durable when their callback runs.
//  * Every call is answered within the driver's deadline (30 s unless told): then an append is
//    kUnknown and anything else DeadlineExceeded, which says nothing about what was done, or will
//    be. Opening a store (open_store.h) and closing it is bounded, too, whatever hangs.
//
// Threads: all calls on the loop that the store was made with; callbacks run on that loop, exactly
// once (never once their scope has ended), never inside the call. Destroying a handle answers what
// is outstanding, with kUnknown / Cancelled; whether an append takes effect all the same, a fence
// tells.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/status.h"

namespace tailcast::storage {

enum class AppendOutcome : uint8_t {
  kApplied,      // flushed and committed; shown to everybody from now on
  kFenced,       // another opener owns the file; none of these bytes will ever be seen
  kWrongOffset,  // expected_offset is not the committed length; nothing was written
  kUnknown,      // the write or its flush failed, or the handle was closed meanwhile: the bytes may
                 // or may not be committed; a fencing open tells
};

struct AppendResult {
  AppendOutcome outcome = AppendOutcome::kUnknown;
  int64_t committed_length = 0;  // bytes; what this handle knows to be committed
  Status error;                  // for kUnknown and kFenced: what happened, for people and logs
};

// What every driver answers to an append that is not at the end of what is committed.
inline AppendResult WrongOffset(const std::string& file, int64_t expected, int64_t committed) {
  return {AppendOutcome::kWrongOffset, committed,
          FailedPreconditionError(file + ": append at " + std::to_string(expected) +
                                  ", committed are " + std::to_string(committed))};
}

// Of a file: one more with each opener for append, who fences the earlier ones by it.
enum class Epoch : uint64_t { kNone = 0, kFirst = 1 };

// The right to append to one file. After any outcome but kApplied and kWrongOffset the handle is
// dead: each further append answers the same, at once. A flush is never tried again after an error
// (a failed fsync has dropped the dirty pages): the rest goes to a new file or a new epoch.
class AppendFile {
 public:
  virtual ~AppendFile() = default;
  // Appends `bytes` at `expected_offset` and flushes them durably. One append may be outstanding;
  // callers batch. `bytes` is kept by the driver until the callback.
  virtual void AppendAt(int64_t expected_offset, std::string bytes,
                        Callback<void(AppendResult)> done) = 0;
  // Bytes committed when the handle was opened, plus those applied since.
  virtual int64_t committed_length() const = 0;
  // kFirst for the file's creator.
  virtual Epoch epoch() const = 0;
  virtual const std::string& name() const = 0;
};

struct FileSize {
  int64_t committed_length = 0;  // bytes
  Epoch epoch = Epoch::kNone;
};

// A reader's handle. Any number of reads may be outstanding.
class ReadFile {
 public:
  virtual ~ReadFile() = default;
  // The committed length now. Grows only.
  virtual void Size(Callback<void(Result<FileSize>)> done) = 0;
  // As Size, after a look at whether everything that is committed is there, as far as that is seen
  // without reading it. DataLoss: it is not, and Read fails at what the message names.
  virtual void CheckedSize(Callback<void(Result<FileSize>)> done) = 0;
  // Up to `length` bytes at `offset`: at least one, maybe fewer than asked, if any is committed
  // there; "" only at or past the committed end. InvalidArgument: a negative argument. Unavailable:
  // I/O. DataLoss: committed bytes are missing.
  virtual void Read(int64_t offset, int64_t length, Callback<void(Result<std::string>)> done) = 0;
};

struct DirEntry {
  std::string name;
};

// What a store is opened for. A driver may keep some room of the disk back (docs/ops/storage.md):
// who writes the records of a cell (its registry, the marks of what is deleted) then finds room on
// a disk that is full of messages, and can make some.
enum class StoreUse : uint8_t {
  kMessages,
  kRecords,  // the cell's scheduler
};

struct StoreRoom {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  bool low = false;  // messages are refused for want of room, or will be soon
  std::string text;  // "3 MiB of 32 MiB are free at /folder", for people
};

class Store {
 public:
  virtual ~Store() = default;

  // Creates the file `name` in `dir` (folders are made as needed), exclusively on `key`: of all
  // creators that ever used this key in this folder, one name wins.
  //   AlreadyExists      the key is taken; the message is the winner's file name, whole (see
  //                      WinnerOf). The winner's file exists when this is reported: a creation
  //                      that another process left half done is completed first.
  //   InvalidArgument    a name or key that is empty, has '/' or starts with '.'
  //   PermissionDenied, ResourceExhausted (disk full), Unavailable (I/O)
  virtual void CreateExclusive(const std::string& dir, const std::string& name,
                               const std::string& key,
                               Callback<void(Result<std::unique_ptr<AppendFile>>)> done) = 0;

  // Opens for append and fences every earlier handle of the file.
  //   NotFound, PermissionDenied, Unavailable; Aborted: another opener fenced us meanwhile;
  //   DataLoss: the file's own records contradict each other.
  virtual void OpenFencing(const std::string& dir, const std::string& name,
                           Callback<void(Result<std::unique_ptr<AppendFile>>)> done) = 0;

  // NotFound if there is no such file.
  virtual void OpenRead(const std::string& dir, const std::string& name,
                        Callback<void(Result<std::unique_ptr<ReadFile>>)> done) = 0;

  // File names in `dir` that were created and not deleted, sorted by bytes. A folder that does not
  // exist is an empty one. Sub-folders are left out.
  virtual void List(const std::string& dir, Callback<void(Result<std::vector<DirEntry>>)> done) = 0;
  // Names of the folders directly below `dir`, sorted.
  virtual void ListDirs(const std::string& dir,
                        Callback<void(Result<std::vector<std::string>>)> done) = 0;

  // Deletes a file and its key's claim, also a damaged one. NotFound if absent. Open readers may go
  // on reading or get NotFound.
  virtual void Delete(const std::string& dir, const std::string& name,
                      Callback<void(Status)> done) = 0;

  // Which file has the name now: of all that ever had it, each has another id. Empty for one that
  // is too damaged to tell. NotFound.
  virtual void Identify(const std::string& dir, const std::string& name,
                        Callback<void(Result<std::string>)> done) = 0;
  // As Delete, if the file of this name is still the one with this id, or is too damaged to tell,
  // if it is empty; so that whoever was stopped on the way deletes no file that was created
  // meanwhile. NotFound: the name is free, or another file's, of which nothing is changed.
  virtual void DeleteExactly(const std::string& dir, const std::string& name, const std::string& id,
                             Callback<void(Status)> done) = 0;

  // Takes a damaged file aside, so that it can be copied again: fences every earlier handle, frees
  // its name and its key, and keeps what is there of it for people, where no listing shows it,
  // until the next deletion in this folder. Also of files that nothing else can open (DataLoss).
  // Open readers may go on reading or get NotFound.
  //   NotFound, PermissionDenied, ResourceExhausted
  //   Unavailable, Aborted   it may be aside or not, or in between, where OpenFencing and OpenRead
  //                          may already find nothing: call again
  virtual void Quarantine(const std::string& dir, const std::string& name,
                          Callback<void(Status)> done) = 0;

  // How much room there is. Unimplemented: the driver does not know.
  virtual void Room(Callback<void(Result<StoreRoom>)> done) = 0;
};

// The name that holds the key, from CreateExclusive's AlreadyExists error.
inline const std::string& WinnerOf(const Status& already_exists) {
  return already_exists.message();
}

}  // namespace tailcast::storage
