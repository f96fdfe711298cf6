// What lies on a simulated disk: folders, names, claims, and of each file the committed bytes and
// what may lie behind them. It knows of no loop and draws nothing of its own: time and the random
// source are arguments. FakeDisk says when its calls happen and what goes wrong on the way.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/step_log.h"
#include "tailcast/base/time.h"
#include "tailcast/storage/store.h"

namespace tailcast::storage {

// How much a disk holds.
struct FakeRoom {
  int64_t capacity_bytes = INT64_MAX;
  int64_t reserve_bytes = 0;  // of it, for StoreUse::kRecords alone
  int64_t file_bytes = 0;     // that a file takes for each of its epochs, beside its bytes
  bool names = true;          // false: a file that has no name yet gets none
};

class FakeImage {
 public:
  struct File {
    std::string dir;
    std::string name;
    std::string key;
    uint64_t number = 0;  // of all files, in the order of their creation
    Epoch epoch = Epoch::kFirst;
    int64_t committed = 0;
    // What some process was told to be committed: the answer to an append, an open, a size or a
    // read has reached it, or is on its way there (but for the first).
    int64_t acknowledged = 0;
    // What lies on the platters: [0, committed) are the file's bytes, the rest is junk, which no
    // reader is shown.
    std::string physical;
    bool named = false;  // false: half created, only the claim is there
    bool deleted = false;
    int64_t cut_at = INT64_MAX;  // what lies behind is missing, though it may be committed
    struct Past {
      MonotonicTime when;
      FileSize size;
    };
    std::deque<Past> history;  // of sizes, the newest last

    // How many bytes readers are shown.
    int64_t visible() const;
  };

  // An append on its way. It is sealed when it has landed, was refused or was lost.
  struct Append {
    std::shared_ptr<File> file;
    Epoch epoch = Epoch::kNone;
    int64_t offset = 0;
    std::string bytes;
    StoreUse use = StoreUse::kMessages;
    bool sealed = false;
    // Once sealed; an append that was lost on the way is kUnknown.
    AppendOutcome outcome = AppendOutcome::kUnknown;
    Status error;
  };

  struct Counters {
    int64_t appends_landed = 0;
    int64_t appends_fenced = 0;
    int64_t appends_lost = 0;
    int64_t creations_helped = 0;
    int64_t quarantined = 0;
  };

  // The first half of a creation: takes the key. AlreadyExists: its message is the winner, whose
  // creation is completed if it was half done; FailedPrecondition: the name is another key's;
  // ResourceExhausted.
  Result<std::shared_ptr<File>> Claim(const std::string& dir, const std::string& name,
                                      const std::string& key, MonotonicTime now,
                                      const FakeRoom& room = {},
                                      StoreUse use = StoreUse::kMessages);
  // The second half: the file is there. Aborted: it was deleted since; Unavailable: a power loss
  // took the claim, and with it the right to the name; ResourceExhausted.
  Status GiveName(const std::shared_ptr<File>& claimed, const FakeRoom& room = {});
  // NotFound.
  Result<std::shared_ptr<File>> Find(const std::string& dir, const std::string& name) const;
  // The file with its new epoch. NotFound; ResourceExhausted.
  Result<std::shared_ptr<File>> Fence(const std::string& dir, const std::string& name,
                                      MonotonicTime now, const FakeRoom& room = {},
                                      StoreUse use = StoreUse::kMessages);
  Status Delete(const std::string& dir, const std::string& name);
  // If it is the file with this number. NotFound.
  Status DeleteExactly(const std::string& dir, const std::string& name, uint64_t number);
  // As Delete; counted.
  Status Quarantine(const std::string& dir, const std::string& name);
  // What another program does, beside all drivers. The file goes with its claim; who has it open
  // goes on with what nobody sees. NotFound.
  Status Remove(const std::string& dir, const std::string& name);
  // Its bytes from `length` on go, and whatever is appended. NotFound.
  Status Cut(const std::string& dir, const std::string& name, int64_t length);
  // Sorted. Of files that have their name; of folders directly below.
  std::vector<std::string> Names(const std::string& dir) const;
  std::vector<std::string> Folders(const std::string& dir) const;

  // An append is sent: until it is sealed, a power loss decides about it.
  std::shared_ptr<Append> Send(std::shared_ptr<File> file, Epoch epoch, int64_t offset,
                               std::string bytes, StoreUse use = StoreUse::kMessages);
  // The one place where bytes become committed: guard and write are one atomic step. Nothing if the
  // append is sealed. kUnknown where there is no room.
  void Land(Append& append, const FakeRoom& room, MonotonicTime now);
  // It never lands.
  void Lose(Append& append);
  // Appends that were sent are committed whole or lost, half-done creations are there or not;
  // behind the committed length of a file lies what came of lost ones.
  void LosePower(const FakeRoom& room, MonotonicTime now, Rng& rng);

  // The newest size that is as old as `then`; the oldest that is remembered if none is.
  static FileSize SizeAsOf(const File& file, MonotonicTime then);
  // What is visible of [offset, offset + length). Neither is negative. DataLoss: it was cut.
  static Result<std::string> ReadAt(const File& file, int64_t offset, int64_t length);

  // DataLoss: it was cut.
  static Status CheckWhole(const File& file);

  int64_t bytes_used(int64_t file_bytes = 0) const;
  const Counters& counters() const { return counters_; }
  // Not null: each committed length is logged there.
  void SetSteps(StepLog* steps) { steps_ = steps; }

 private:
  static Status CheckRoomForName(const File& file, const FakeRoom& room);
  // ResourceExhausted, if so many bytes more do not fit.
  Status CheckRoom(const std::string& name, int64_t bytes, const FakeRoom& room,
                   StoreUse use) const;

  struct Folder {
    std::map<std::string, std::shared_ptr<File>> names;
    std::map<std::string, std::shared_ptr<File>> claims;  // by key
  };

  StepLog* steps_ = nullptr;
  Counters counters_;
  uint64_t last_number_ = 0;
  std::map<std::string, Folder> folders_;  // by path; parents have entries of their own
  std::vector<std::weak_ptr<Append>> in_flight_;
};

}  // namespace tailcast::storage
