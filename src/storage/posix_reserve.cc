#include "tailcast/storage/posix_reserve.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"

namespace tailcast::storage::posix {
namespace {

const Logger kLog("storage");

FAULT_POINT(kTakenByMessages, "storage.reserve_taken_by_messages",
            "messages are written although the reserve is given up");

constexpr int64_t kDiskShare = 16;
constexpr int64_t kBytesMax = 8 << 20;
constexpr int64_t kFirstPieceBytes = 64 << 10;
constexpr int kLockAttempts = 200;
constexpr std::chrono::milliseconds kLockPause{1};

}  // namespace

int64_t ReserveBytes(int64_t disk_bytes) { return std::min(disk_bytes / kDiskShare, kBytesMax); }

Result<std::unique_ptr<OpsFile>> Reserve::OpenLocked(int attempts) {
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<OpsFile> file, ops_->Open(kReserveName, true));
  for (;;) {
    TAILCAST_ASSIGN_OR_RETURN(const bool locked, file->TryLock());
    if (locked) return file;
    if (--attempts <= 0) return UnavailableError("another process is at the reserve");
    std::this_thread::sleep_for(kLockPause);
  }
}

Status Reserve::MayWrite(const std::string& what) {
  if (kTakenByMessages.planted()) return OkStatus();
  const Result<int64_t> have = ops_->AllocatedBytes(kReserveName);
  if (!have.ok()) return OkStatus();
  if (*have >= kBytesMax) return OkStatus();
  const Result<OpsRoom> room = ops_->Room();
  if (!room.ok() || *have >= ReserveBytes(room->total_bytes)) return OkStatus();
  if (Grow(false).ok()) return OkStatus();
  return ResourceExhaustedError(what + ": No space left on device (" + RoomText(*room) +
                                ", for the cell's own records alone)");
}

void Reserve::MakeWhole() {
  const Result<OpsRoom> room = ops_->Room();
  if (!room.ok()) return;
  const Result<int64_t> have = ops_->AllocatedBytes(kReserveName);
  if (have.ok() && *have >= ReserveBytes(room->total_bytes)) return;
  if (!have.ok() && !IsNotFound(have.status())) return;
  // It is tried again with the next look.
  static_cast<void>(Grow(true));
}

Status Reserve::Grow(bool make) {
  const std::lock_guard lock(mutex_);
  TAILCAST_ASSIGN_OR_RETURN(const OpsRoom room, ops_->Room());
  const int64_t wanted = ReserveBytes(room.total_bytes);
  Result<std::unique_ptr<OpsFile>> file = OpenLocked(1);
  if (!file.ok() && IsNotFound(file.status()) && make) {
    TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<OpsFile> made, ops_->CreateUnnamed(""));
    TAILCAST_RETURN_IF_ERROR(made->Allocate(wanted));
    return ops_->Link(*made, kReserveName);
  }
  if (!file.ok()) return file.status();
  return (*file)->Allocate(wanted);
}

Status Reserve::Use(const std::function<Status()>& write) {
  Status status = write();
  if (!IsResourceExhausted(status)) return status;
  const std::lock_guard lock(mutex_);
  Result<std::unique_ptr<OpsFile>> file = OpenLocked(kLockAttempts);
  if (!file.ok()) return status;
  const Result<OpsRoom> room = ops_->Room();
  if (room.ok() && room->no_inode) {
    // Its inode is what it has to give.
    if (!ops_->Unlink(kReserveName).ok()) return status;
    file->reset();
    return write();
  }
  for (int64_t piece = kFirstPieceBytes; IsResourceExhausted(status); piece *= 2) {
    const Result<int64_t> have = ops_->AllocatedBytes(kReserveName);
    if (!have.ok() || *have == 0) return status;
    const Status cut = (*file)->Truncate(std::max<int64_t>(*have - piece, 0));
    if (!cut.ok()) return status;
    kLog.Warn("the disk is full: ", std::min(piece, *have) >> 10, " KiB of the ", *have >> 10,
              " that are kept for the cell's own records are given up: ", status.message());
    status = write();
  }
  return status;
}

Result<StoreRoom> Reserve::Room() {
  TAILCAST_ASSIGN_OR_RETURN(const OpsRoom room, ops_->Room());
  const int64_t wanted = ReserveBytes(room.total_bytes);
  const Result<int64_t> have = ops_->AllocatedBytes(kReserveName);
  const bool cut = have.ok() && *have < wanted;
  return StoreRoom{.free_bytes = room.free_bytes,
                   .total_bytes = room.total_bytes,
                   .low = cut || room.no_inode || room.free_bytes < wanted,
                   .text = RoomText(room)};
}

namespace {

class ReservingFile : public OpsFile {
 public:
  ReservingFile(Reserve* reserve, std::unique_ptr<OpsFile> file)
      : reserve_(reserve), file_(std::move(file)) {}
  Status WriteAt(int64_t offset, std::string_view bytes) override {
    return reserve_->Use([&] { return file_->WriteAt(offset, bytes); });
  }
  Status Truncate(int64_t size) override { return file_->Truncate(size); }
  Status Allocate(int64_t size) override { return file_->Allocate(size); }
  Result<std::string> ReadAt(int64_t offset, int64_t length) override {
    return file_->ReadAt(offset, length);
  }
  Result<int64_t> WrittenEnd(int64_t offset) override { return file_->WrittenEnd(offset); }
  Status SyncData() override { return file_->SyncData(); }
  Result<bool> TryLock() override { return file_->TryLock(); }
  void Unlock() override { file_->Unlock(); }
  Result<std::unique_ptr<SharedPage>> MapPage(bool writable) override {
    return file_->MapPage(writable);
  }
  OpsFile& inner() { return *file_; }

 private:
  Reserve* const reserve_;
  const std::unique_ptr<OpsFile> file_;
};

class ReservingFileOps : public FileOps {
 public:
  ReservingFileOps(FileOps* ops, Reserve* reserve) : ops_(ops), reserve_(reserve) {}
  Result<std::unique_ptr<OpsFile>> CreateUnnamed(const std::string& folder) override {
    Result<std::unique_ptr<OpsFile>> made = UnavailableError("");
    TAILCAST_RETURN_IF_ERROR(reserve_->Use([&] {
      made = ops_->CreateUnnamed(folder);
      return made.status();
    }));
    return Wrap(std::move(made));
  }
  Result<std::unique_ptr<OpsFile>> Open(const std::string& path, bool writable) override {
    return Wrap(ops_->Open(path, writable));
  }
  Status Link(OpsFile& file, const std::string& path) override {
    return reserve_->Use(
        [&] { return ops_->Link(static_cast<ReservingFile&>(file).inner(), path); });
  }
  Status Unlink(const std::string& path) override { return ops_->Unlink(path); }
  Result<bool> IsName(const std::string& path, OpsFile& file) override {
    return ops_->IsName(path, static_cast<ReservingFile&>(file).inner());
  }
  Status SyncFolder(const std::string& folder) override { return ops_->SyncFolder(folder); }
  Status MakeFolder(const std::string& path) override {
    return reserve_->Use([&] { return ops_->MakeFolder(path); });
  }
  Result<std::vector<OpsEntry>> ListFolder(const std::string& folder) override {
    return ops_->ListFolder(folder);
  }
  Result<OpsRoom> Room() override { return ops_->Room(); }
  Result<int64_t> AllocatedBytes(const std::string& path) override {
    return ops_->AllocatedBytes(path);
  }
  uint64_t AttachTag() override { return ops_->AttachTag(); }
  uint64_t BootTag() override { return ops_->BootTag(); }
  uint64_t Random64() override { return ops_->Random64(); }

 private:
  Result<std::unique_ptr<OpsFile>> Wrap(Result<std::unique_ptr<OpsFile>> file) {
    if (!file.ok()) return file;
    return std::unique_ptr<OpsFile>(std::make_unique<ReservingFile>(reserve_, *std::move(file)));
  }
  FileOps* const ops_;
  Reserve* const reserve_;
};

}  // namespace

std::unique_ptr<FileOps> UseReserve(FileOps* ops, Reserve* reserve) {
  return std::make_unique<ReservingFileOps>(ops, reserve);
}

}  // namespace tailcast::storage::posix
