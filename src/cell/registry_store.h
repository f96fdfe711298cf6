// The durable registry of a cell: a log of snapshots in the folder `registry` of its primary layer
// (docs/formats/registry.md). Opening it fences the scheduler that had it before, so at most one
// scheduler of a cell can change it; the loser's next Write fails and it must end.
//
//   registry/0000000001.log   | snapshot | snapshot | ... | snapshot (rolled) |
//   registry/0000000002.log   | snapshot | ...
//
//   snapshot 0      4        8            12              16
//            | TCR1 | length | crc of the | crc of bytes  | RegistrySnapshot |
//            |      | u32    | message    | 0..11         |                  |
//
// Little-endian. A snapshot is durable before anything of it is shown. A file ends with a `rolled`
// one before the next one is created; whoever finds such an end creates the next file himself,
// exclusively, so a scheduler that was stopped in the middle of a roll cannot fork the log.
//
// A disk without room ends nobody: the write, or the opening, waits and is tried again, also while
// the disk then fails in other ways, and `no_room` says why. Who has taken over meanwhile has
// written what ends us then.
//
// Threads: everything on the store's loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/proto/registry.pb.h"
#include "tailcast/storage/store.h"

namespace tailcast::cell {

// The format by itself.
inline constexpr int64_t kSnapshotBytesMax = 1 << 30;
std::string EncodeSnapshot(const v1::RegistrySnapshot& snapshot);
struct RegistryLogContent {
  std::optional<v1::RegistrySnapshot> last;
  int64_t snapshots = 0;
  // Bytes after the last valid snapshot: the remains of an append that never was acknowledged.
  int64_t torn_bytes = 0;
};
// Of all but the last one only the checksums are looked at: each is the whole state, and a log has
// up to thousands of them. One that is whole by these and can't be parsed is the torn end if it is
// the last.
// DataLoss: a snapshot that is followed by a valid one is damaged, or one has more than
// kSnapshotBytesMax; names `file` and the offset.
Result<RegistryLogContent> ParseRegistryLog(std::string_view bytes, const std::string& file);

class RegistryStore {
 public:
  struct Options {
    std::string dir = "registry";
    int64_t file_bytes_max = 4 << 20;  // a longer log is rolled
    int64_t snapshot_bytes_max = kSnapshotBytesMax;
    // Where there is no room: the first time, then twice as long each time.
    Duration retry = Duration::Millis(500);
    Duration retry_max = Duration::Seconds(8);
  };
  // Both outlive it.
  RegistryStore(EventLoop& loop, storage::Store& store) : RegistryStore(loop, store, Options()) {}
  RegistryStore(EventLoop& loop, storage::Store& store, Options options);
  RegistryStore(const RegistryStore&) = delete;
  RegistryStore& operator=(const RegistryStore&) = delete;

  // Fences every earlier scheduler, reads the last snapshot, writes it again under an incarnation
  // that is one greater, and gives that. Once.
  //   Aborted: another scheduler fenced us meanwhile. DataLoss: the log is damaged.
  void Open(Callback<void(Result<v1::RegistrySnapshot>)> done);

  // Writes a snapshot (its incarnation and sequence are set here). One at a time: not before the
  // write before is answered.
  //   FailedPrecondition: another scheduler took over; end. Unavailable: the write failed; its
  //   outcome is unknown, end and open anew. ResourceExhausted: it has more than kSnapshotBytesMax,
  //   and nothing was written; end (catalogue.h refuses streams long before that).
  void Write(v1::RegistrySnapshot snapshot, Callback<void(Status)> done);

  // Whether another scheduler has taken over since; who has nothing to write would never know.
  //   FailedPrecondition: it has; end. Others: it can't be told now.
  void CheckFence(Callback<void(Status)> done);

  // ResourceExhausted: a write, or the opening, waits for room on the disk. Unavailable,
  // DeadlineExceeded: it did, and now the file can't be opened again.
  const Status& no_room() const { return no_room_; }

  const std::string& file_name() const { return name_; }
  // Of a file of the log; nullopt: the name is of none.
  static std::optional<int64_t> NumberOf(std::string_view name);

 private:
  void FindLast();
  void FenceFile(const std::string& name, int64_t number);
  void CreateFile(int64_t number);
  void AfterFence();
  struct WholeRead;
  void ReadAll(const std::string& name, Callback<void(Result<std::string>)> done);
  void ReadNext(std::shared_ptr<WholeRead> read);
  void OnContent(const std::string& name, Result<std::string> bytes);
  void Begin();
  void FinishOpen(Status status);
  void WriteSnapshot();
  void Roll();
  void RollIntoHalfMade(const std::string& name);
  void OnNextFile(const std::string& name, Result<std::unique_ptr<storage::AppendFile>> file);
  void EndRolling(Status why);
  // NotFound: it is gone.
  void LookAt(const std::string& name, Callback<void(Result<storage::FileSize>)> done);
  void Answer(const Status& status);
  // `snapshot` is state_ or that of writing_: it stays until `done`, however long there is no room.
  void Append(const v1::RegistrySnapshot& snapshot, Callback<void(Status)> done);
  // `why` is for want of room: runs `again` later.
  void WaitForRoom(const Status& why, Task again);
  void OnRoom();
  void OnNotReopened(const Status& why, const v1::RegistrySnapshot& snapshot,
                     Callback<void(Status)> done);
  void OnNoRoom(const Status& why, const v1::RegistrySnapshot& snapshot,
                Callback<void(Status)> done);
  // file_ is dead for want of room: opens it anew, and appends.
  void Reopen(const v1::RegistrySnapshot& snapshot, Callback<void(Status)> done);
  void ReopenFencing(const v1::RegistrySnapshot& snapshot, Callback<void(Status)> done);
  static std::string NameOf(int64_t number);

  EventLoop& loop_;
  storage::Store& store_;
  const Options options_;
  Callback<void(Result<v1::RegistrySnapshot>)> opened_;
  std::unique_ptr<storage::AppendFile> file_;
  std::string name_;
  int64_t number_ = 0;
  int64_t reading_number_ = 0;  // the file whose content is looked at
  bool half_made_ = false;      // the next file may be there: making it found no room on the way
  bool newest_torn_ = false;    // file_ has nothing but the remains of an append
  v1::RegistrySnapshot state_;  // last written
  Status dead_;                 // why nothing can be written any more
  Status no_room_;
  Duration retry_;  // the next time that there is none
  Timer retry_timer_{loop_};
  struct Writing {
    v1::RegistrySnapshot snapshot;
    Callback<void(Status)> done;
  };
  std::unique_ptr<Writing> writing_;  // under way; null: nothing is
  Scope scope_;
};

}  // namespace tailcast::cell
