#include "tailcast/storage/file_ops.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <memory>
#include <utility>

#include "tailcast/base/rng.h"
#include "tailcast/storage/attachment.h"
#include "tailcast/storage/file_system_check.h"
#include "tailcast/storage/mapped_page.h"

namespace tailcast::storage {
namespace {

constexpr int64_t kOrphanAgeSeconds = 3600;
constexpr std::string_view kTemporaryPrefix = ".tmp-";

// The folder of a store, open.
struct Root {
  Root(int descriptor, std::string name) : fd(descriptor), path(std::move(name)) {}
  ~Root() { close(fd); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  const int fd;
  const std::string path;
  uint64_t mount = 0;
  std::unique_ptr<Attachment> attachment;
};

Result<OpsRoom> RoomOf(const Root& root) {
  struct statvfs fs {};
  if (fstatvfs(root.fd, &fs) != 0) return ErrnoStatus(errno, "room at " + root.path);
  return OpsRoom{.free_bytes = static_cast<int64_t>(fs.f_bavail * fs.f_frsize),
                 .total_bytes = static_cast<int64_t>(fs.f_blocks * fs.f_frsize),
                 .no_inode = fs.f_files > 0 && fs.f_favail == 0,
                 .where = root.path};
}

// As ErrnoStatus; where there is no room, how much there is.
Status SystemError(const Root& root, int error, const std::string& what) {
  Status status = ErrnoStatus(error, what);
  if (error != ENOSPC && error != EDQUOT) return status;
  const Result<OpsRoom> room = RoomOf(root);
  if (!room.ok()) return status;
  return ResourceExhaustedError(status.message() + " (" + RoomText(*room) + ")");
}

// Which mount an open file or folder is on; what follows from its device where the kernel, before
// 5.8, does not say.
Result<uint64_t> MountOf(int fd, const std::string& path) {
  struct statx st {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) != 0) {
    return ErrnoStatus(errno, "look at " + path);
  }
  if ((st.stx_mask & STATX_MNT_ID) != 0) return st.stx_mnt_id;
  return uint64_t{st.stx_dev_major} << 32 | st.stx_dev_minor;
}

class SystemFile : public OpsFile {
 public:
  // `temporary`: a name below the root to remove in the end, on file systems without nameless
  // inodes.
  SystemFile(std::shared_ptr<const Root> root, int fd, std::string path, std::string temporary = "")
      : root_(std::move(root)), fd_(fd), path_(std::move(path)), temporary_(std::move(temporary)) {}
  ~SystemFile() override {
    close(fd_);
    if (!temporary_.empty()) unlinkat(root_->fd, temporary_.c_str(), 0);
  }
  Status WriteAt(int64_t offset, std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return SystemError(*root_, errno, "write " + path_);
      if (n == 0) return UnavailableError("write " + path_ + ": the system wrote nothing");
      bytes.remove_prefix(static_cast<size_t>(n));
      offset += n;
    }
    return OkStatus();
  }
  Status Truncate(int64_t size) override {
    if (ftruncate(fd_, size) != 0) return SystemError(*root_, errno, "cut " + path_);
    return OkStatus();
  }
  Status Allocate(int64_t size) override {
    struct stat st {};
    if (fstat(fd_, &st) != 0) return SystemError(*root_, errno, "look at " + path_);
    // Writes where the file system can't do it otherwise.
    const int error = posix_fallocate(fd_, 0, size);
    if (error == 0) return OkStatus();
    Status status = SystemError(*root_, error, "make room for " + path_);
    if (ftruncate(fd_, st.st_size) != 0) {
      status = status.WithContext(SystemError(*root_, errno, "cut " + path_).message());
    }
    return status;
  }
  Result<std::string> ReadAt(int64_t offset, int64_t length) override {
    std::string bytes(static_cast<size_t>(length), '\0');
    size_t have = 0;
    while (have < bytes.size()) {
      const ssize_t n =
          pread(fd_, bytes.data() + have, bytes.size() - have, offset + static_cast<int64_t>(have));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return SystemError(*root_, errno, "read " + path_);
      if (n == 0) break;
      have += static_cast<size_t>(n);
    }
    bytes.resize(have);
    return bytes;
  }
  Result<int64_t> WrittenEnd(int64_t offset) override {
    off_t end = lseek(fd_, offset, SEEK_HOLE);
    if (end < 0 && errno == EINVAL) end = lseek(fd_, 0, SEEK_END);
    if (end < 0 && errno != ENXIO) return SystemError(*root_, errno, "look into " + path_);
    return std::max<int64_t>(end, offset);
  }
  Status SyncData() override {
    // EINTR does not come from local file systems; after any error the pages are gone, so there is
    // no second try.
    if (fdatasync(fd_) != 0) return SystemError(*root_, errno, "flush " + path_);
    return OkStatus();
  }
  Result<bool> TryLock() override {
    // Of the open file description, so it also excludes other opens of this process.
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK) return false;
    return SystemError(*root_, errno, "lock " + path_);
  }
  void Unlock() override { flock(fd_, LOCK_UN); }
  Result<std::unique_ptr<SharedPage>> MapPage(bool writable) override {
    return MapFirstPage(fd_, writable, path_);
  }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  const std::string& temporary() const { return temporary_; }

 private:
  const std::shared_ptr<const Root> root_;
  const int fd_;
  const std::string path_;
  const std::string temporary_;
};

class SystemFileOps : public FileOps {
 public:
  SystemFileOps(std::shared_ptr<const Root> root, bool nameless_inodes)
      : root_(std::move(root)), no_unnamed_(!nameless_inodes) {}

  Result<std::unique_ptr<OpsFile>> CreateUnnamed(const std::string& folder) override {
    if (!no_unnamed_.load(std::memory_order_relaxed)) {
      const int fd = openat(root_->fd, Below(folder), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
      if (fd >= 0) return Checked(fd, Absolute(folder) + "/(new file)");
      if (errno != EOPNOTSUPP && errno != EISDIR) {
        return SystemError(*root_, errno, "create a file in " + Absolute(folder));
      }
      no_unnamed_.store(true, std::memory_order_relaxed);
    }
    TAILCAST_RETURN_IF_ERROR(RemoveOrphans(folder));
    char name[32];
    std::snprintf(name, sizeof name, "%s%016llx", std::string(kTemporaryPrefix).c_str(),
                  static_cast<unsigned long long>(Random64()));
    const std::string temporary = folder.empty() ? name : folder + "/" + name;
    const int fd =
        openat(root_->fd, temporary.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
    if (fd < 0) return SystemError(*root_, errno, "create " + Absolute(temporary));
    return Checked(fd, Absolute(temporary), temporary);
  }

  Result<std::unique_ptr<OpsFile>> Open(const std::string& path, bool writable) override {
    const int fd =
        openat(root_->fd, path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return SystemError(*root_, errno, "open " + Absolute(path));
    return Checked(fd, Absolute(path));
  }

  Status Link(OpsFile& file, const std::string& path) override {
    const auto& ours = static_cast<SystemFile&>(file);
    const std::string from =
        ours.temporary().empty() ? "/proc/self/fd/" + std::to_string(ours.fd()) : ours.temporary();
    if (linkat(root_->fd, from.c_str(), root_->fd, path.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return SystemError(*root_, errno, "link " + Absolute(path));
    }
    return OkStatus();
  }

  Status Unlink(const std::string& path) override {
    if (unlinkat(root_->fd, path.c_str(), 0) != 0) {
      return SystemError(*root_, errno, "remove " + Absolute(path));
    }
    return OkStatus();
  }

  Result<bool> IsName(const std::string& path, OpsFile& file) override {
    struct stat named, open;
    if (fstatat(root_->fd, path.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return false;
      return SystemError(*root_, errno, "look at " + Absolute(path));
    }
    const int fd = static_cast<SystemFile&>(file).fd();
    if (fstat(fd, &open) != 0) return SystemError(*root_, errno, "look at " + Absolute(path));
    return named.st_dev == open.st_dev && named.st_ino == open.st_ino;
  }

  Status SyncFolder(const std::string& folder) override {
    TAILCAST_ASSIGN_OR_RETURN(const int fd, OpenFolder(folder));
    Status status;
    if (fsync(fd) != 0) status = SystemError(*root_, errno, "flush folder " + Absolute(folder));
    close(fd);
    return status;
  }

  Status MakeFolder(const std::string& path) override {
    if (mkdirat(root_->fd, path.c_str(), 0755) != 0) {
      return SystemError(*root_, errno, "make folder " + Absolute(path));
    }
    return OkStatus();
  }

  Result<std::vector<OpsEntry>> ListFolder(const std::string& folder) override {
    TAILCAST_ASSIGN_OR_RETURN(const int fd, OpenFolder(folder));
    const std::string path = Absolute(folder);
    DIR* dir = fdopendir(fd);
    if (dir == nullptr) {
      const int error = errno;
      close(fd);
      return SystemError(*root_, error, "list " + path);
    }
    std::vector<OpsEntry> entries;
    errno = 0;
    while (const dirent* entry = readdir(dir)) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      bool is_folder = entry->d_type == DT_DIR;
      if (entry->d_type == DT_UNKNOWN) {
        struct stat st;
        is_folder = fstatat(fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
      }
      entries.push_back({name, is_folder});
      errno = 0;
    }
    const int error = errno;
    closedir(dir);
    if (error != 0) return SystemError(*root_, error, "list " + path);
    return entries;
  }

  Result<OpsRoom> Room() override { return RoomOf(*root_); }
  Result<int64_t> AllocatedBytes(const std::string& path) override {
    struct stat st {};
    if (fstatat(root_->fd, path.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      return SystemError(*root_, errno, "look at " + Absolute(path));
    }
    return std::min<int64_t>(st.st_size, int64_t{st.st_blocks} * 512);
  }

  uint64_t AttachTag() override { return root_->attachment->tag(); }
  uint64_t BootTag() override { return root_->attachment->boot_tag(); }
  uint64_t Random64() override { return RandomSeed(); }

 private:
  // For people.
  std::string Absolute(const std::string& path) const {
    return path.empty() ? root_->path : root_->path + "/" + path;
  }
  static const char* Below(const std::string& folder) {
    return folder.empty() ? "." : folder.c_str();
  }
  Status CheckMount(int fd, const std::string& path) const {
    TAILCAST_ASSIGN_OR_RETURN(const uint64_t mount, MountOf(fd, path));
    if (mount == root_->mount) return OkStatus();
    return FailedPreconditionError(path + " is on another mount than the storage folder " +
                                   root_->path +
                                   "; a store lies on one mount as a whole, or its writers cannot "
                                   "be fenced safely");
  }
  // Takes the descriptor.
  Result<std::unique_ptr<OpsFile>> Checked(int fd, std::string path,
                                           std::string temporary = "") const {
    auto file = std::make_unique<SystemFile>(root_, fd, std::move(path), std::move(temporary));
    TAILCAST_RETURN_IF_ERROR(CheckMount(fd, file->path()));
    return std::unique_ptr<OpsFile>(std::move(file));
  }
  Result<int> OpenFolder(const std::string& folder) const {
    const int fd = openat(root_->fd, Below(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return SystemError(*root_, errno, "open folder " + Absolute(folder));
    const Status checked = CheckMount(fd, Absolute(folder));
    if (checked.ok()) return fd;
    close(fd);
    return checked;
  }
  // Temporaries whose maker died. They live for milliseconds, so an hour is beyond doubt.
  Status RemoveOrphans(const std::string& folder) {
    TAILCAST_ASSIGN_OR_RETURN(const std::vector<OpsEntry> entries, ListFolder(folder));
    for (const OpsEntry& entry : entries) {
      if (!std::string_view(entry.name).starts_with(kTemporaryPrefix)) continue;
      const std::string path = folder.empty() ? entry.name : folder + "/" + entry.name;
      struct stat st;
      if (fstatat(root_->fd, path.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
          time(nullptr) - st.st_mtime > kOrphanAgeSeconds) {
        unlinkat(root_->fd, path.c_str(), 0);
      }
    }
    return OkStatus();
  }

  const std::shared_ptr<const Root> root_;
  std::atomic<bool> no_unnamed_;
};

}  // namespace

std::string RoomText(const OpsRoom& room) {
  const auto mib = [](int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
  return mib(room.free_bytes) + " of " + mib(room.total_bytes) +
         (room.no_inode ? " and no inode" : "") + " are free at " + room.where;
}

Result<std::unique_ptr<FileOps>> OpenFileOps(const std::string& path, FileOpsOptions options) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "storage folder " + path);
  auto root = std::make_shared<Root>(fd, path);
  TAILCAST_ASSIGN_OR_RETURN(root->mount, MountOf(fd, path));
  TAILCAST_RETURN_IF_ERROR(CheckFileSystem(fd, path, root->mount, options.durable));
  if (faccessat(fd, ".", R_OK | W_OK | X_OK, 0) != 0) {
    return ErrnoStatus(errno, "storage folder " + path);
  }
  TAILCAST_ASSIGN_OR_RETURN(root->attachment, Attachment::Join(fd, path));
  return std::unique_ptr<FileOps>(
      std::make_unique<SystemFileOps>(std::move(root), options.nameless_inodes));
}

}  // namespace tailcast::storage
