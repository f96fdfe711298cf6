#include "tailcast/storage/file_ops.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "tailcast/base/hash.h"
#include "tailcast/base/rng.h"

namespace tailcast::storage {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kOrphanAgeSeconds = 3600;
constexpr std::string_view kTemporaryPrefix = ".tmp-";

class MappedPage : public SharedPage {
 public:
  MappedPage(void* memory, bool writable) : memory_(memory), writable_(writable) {}
  ~MappedPage() override { munmap(memory_, kPage); }
  uint64_t Load(int64_t offset) override { return Word(offset).load(); }
  void Store(int64_t offset, uint64_t value) override {
    TAILCAST_CHECK(writable_, "a page mapped for reading");
    Word(offset).store(value);
  }
  bool CompareAndSwap(int64_t offset, uint64_t expected, uint64_t desired) override {
    TAILCAST_CHECK(writable_, "a page mapped for reading");
    return Word(offset).compare_exchange_strong(expected, desired);
  }

 private:
  std::atomic_ref<uint64_t> Word(int64_t offset) {
    return std::atomic_ref<uint64_t>(
        *reinterpret_cast<uint64_t*>(static_cast<char*>(memory_) + offset));
  }
  void* const memory_;
  const bool writable_;
};
static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);

class PosixOpsFile : public OpsFile {
 public:
  // `temporary`: a name to remove in the end, on file systems without nameless inodes.
  PosixOpsFile(int fd, std::string path, std::string temporary = "")
      : fd_(fd), path_(std::move(path)), temporary_(std::move(temporary)) {}
  ~PosixOpsFile() override {
    close(fd_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
  }
  Status WriteAt(int64_t offset, std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "write " + path_);
      if (n == 0) return UnavailableError("write " + path_ + ": the system wrote nothing");
      bytes.remove_prefix(static_cast<size_t>(n));
      offset += n;
    }
    return OkStatus();
  }
  Result<std::string> ReadAt(int64_t offset, int64_t length) override {
    std::string bytes(static_cast<size_t>(length), '\0');
    size_t have = 0;
    while (have < bytes.size()) {
      const ssize_t n =
          pread(fd_, bytes.data() + have, bytes.size() - have, offset + static_cast<int64_t>(have));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "read " + path_);
      if (n == 0) break;
      have += static_cast<size_t>(n);
    }
    bytes.resize(have);
    return bytes;
  }
  Status SyncData() override {
    // EINTR does not come from local file systems; after any error the pages are gone, so there is
    // no second try.
    if (fdatasync(fd_) != 0) return ErrnoStatus(errno, "flush " + path_);
    return OkStatus();
  }
  Result<bool> TryLock() override {
    // Of the open file description, so it also excludes other opens of this process.
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK) return false;
    return ErrnoStatus(errno, "lock " + path_);
  }
  void Unlock() override { flock(fd_, LOCK_UN); }
  Result<std::unique_ptr<SharedPage>> MapPage(bool writable) override {
    void* memory =
        mmap(nullptr, kPage, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd_, 0);
    if (memory == MAP_FAILED) return ErrnoStatus(errno, "map " + path_);
    return std::unique_ptr<SharedPage>(std::make_unique<MappedPage>(memory, writable));
  }
  int fd() const { return fd_; }
  const std::string& temporary() const { return temporary_; }

 private:
  const int fd_;
  const std::string path_;
  const std::string temporary_;
};

class PosixFileOps : public FileOps {
 public:
  PosixFileOps(std::string root, uint64_t boot_tag, bool nameless_inodes)
      : root_(std::move(root)), boot_tag_(boot_tag), no_unnamed_(!nameless_inodes) {}

  Result<std::unique_ptr<OpsFile>> CreateUnnamed(const std::string& folder) override {
    const std::string path = Absolute(folder);
    if (!no_unnamed_.load(std::memory_order_relaxed)) {
      const int fd = open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
      if (fd >= 0) {
        return std::unique_ptr<OpsFile>(std::make_unique<PosixOpsFile>(fd, path + "/(new file)"));
      }
      if (errno != EOPNOTSUPP && errno != EISDIR) {
        return ErrnoStatus(errno, "create a file in " + path);
      }
      no_unnamed_.store(true, std::memory_order_relaxed);
    }
    RemoveOrphans(path);
    char name[32];
    std::snprintf(name, sizeof name, "%s%016llx", std::string(kTemporaryPrefix).c_str(),
                  static_cast<unsigned long long>(Random64()));
    const std::string temporary = path + "/" + name;
    const int fd = open(temporary.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
    if (fd < 0) return ErrnoStatus(errno, "create " + temporary);
    return std::unique_ptr<OpsFile>(std::make_unique<PosixOpsFile>(fd, temporary, temporary));
  }

  Result<std::unique_ptr<OpsFile>> Open(const std::string& path, bool writable) override {
    const std::string absolute = Absolute(path);
    const int fd = open(absolute.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return ErrnoStatus(errno, "open " + absolute);
    return std::unique_ptr<OpsFile>(std::make_unique<PosixOpsFile>(fd, absolute));
  }

  Status Link(OpsFile& file, const std::string& path) override {
    const auto& posix = static_cast<PosixOpsFile&>(file);
    const std::string to = Absolute(path);
    const std::string from = posix.temporary().empty()
                                 ? "/proc/self/fd/" + std::to_string(posix.fd())
                                 : posix.temporary();
    if (linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return ErrnoStatus(errno, "link " + to);
    }
    return OkStatus();
  }

  Status Unlink(const std::string& path) override {
    const std::string absolute = Absolute(path);
    if (unlink(absolute.c_str()) != 0) return ErrnoStatus(errno, "remove " + absolute);
    return OkStatus();
  }

  Status SyncFolder(const std::string& folder) override {
    const std::string path = Absolute(folder);
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return ErrnoStatus(errno, "open folder " + path);
    Status status;
    if (fsync(fd) != 0) status = ErrnoStatus(errno, "flush folder " + path);
    close(fd);
    return status;
  }

  Status MakeFolder(const std::string& path) override {
    const std::string absolute = Absolute(path);
    if (mkdir(absolute.c_str(), 0755) != 0) return ErrnoStatus(errno, "make folder " + absolute);
    return OkStatus();
  }

  Result<std::vector<OpsEntry>> ListFolder(const std::string& folder) override {
    const std::string path = Absolute(folder);
    DIR* dir = opendir(path.c_str());
    if (dir == nullptr) return ErrnoStatus(errno, "list " + path);
    std::vector<OpsEntry> entries;
    errno = 0;
    while (const dirent* entry = readdir(dir)) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      bool is_folder = entry->d_type == DT_DIR;
      if (entry->d_type == DT_UNKNOWN) {
        struct stat st;
        is_folder = lstat((path + "/" + name).c_str(), &st) == 0 && S_ISDIR(st.st_mode);
      }
      entries.push_back({name, is_folder});
      errno = 0;
    }
    const int error = errno;
    closedir(dir);
    if (error != 0) return ErrnoStatus(error, "list " + path);
    return entries;
  }

  uint64_t BootTag() override { return boot_tag_; }
  uint64_t Random64() override { return RandomSeed(); }

 private:
  std::string Absolute(const std::string& path) const {
    return path.empty() ? root_ : root_ + "/" + path;
  }
  // Temporaries whose maker died. They live for milliseconds, so an hour is beyond doubt.
  void RemoveOrphans(const std::string& folder) {
    DIR* dir = opendir(folder.c_str());
    if (dir == nullptr) return;
    while (const dirent* entry = readdir(dir)) {
      if (!std::string_view(entry->d_name).starts_with(kTemporaryPrefix)) continue;
      struct stat st;
      if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
          time(nullptr) - st.st_mtime > kOrphanAgeSeconds) {
        unlinkat(dirfd(dir), entry->d_name, 0);
      }
    }
    closedir(dir);
  }

  const std::string root_;
  const uint64_t boot_tag_;
  std::atomic<bool> no_unnamed_;
};

Result<uint64_t> ReadBootTag() {
  constexpr char kPath[] = "/proc/sys/kernel/random/boot_id";
  const int fd = open(kPath, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, std::string("open ") + kPath);
  char text[64];
  const ssize_t n = read(fd, text, sizeof text);
  const int error = errno;
  close(fd);
  if (n < 36) return ErrnoStatus(n < 0 ? error : EIO, std::string("read ") + kPath);
  const uint64_t tag = Hash128(std::string_view(text, 36)).hi;
  return tag == 0 ? uint64_t{1} : tag;
}

// File systems of one host with one page cache, where what is mapped and what is written agree.
struct KnownFileSystem {
  uint64_t magic;
  const char* name;
};
constexpr KnownFileSystem kGoodFileSystems[] = {
    {0xef53, "ext4"},      {0x58465342, "xfs"},     {0x9123683e, "btrfs"}, {0x01021994, "tmpfs"},
    {0x858458f6, "ramfs"}, {0x794c7630, "overlay"}, {0xf2f52010, "f2fs"},  {0xca451a4e, "bcachefs"},
};
constexpr KnownFileSystem kSharedFileSystems[] = {
    {0x6969, "NFS"},       {0xff534d42, "SMB"}, {0xfe534d42, "SMB2"}, {0x517b, "SMB"},
    {0x65735546, "FUSE"},  {0x01021997, "9p"},  {0x00c36400, "Ceph"}, {0x01161970, "GFS2"},
    {0x7461636f, "OCFS2"}, {0x5346414f, "AFS"}, {0x2fc12fc1, "ZFS"},  {0x4d44, "FAT"},
};

}  // namespace

Result<std::unique_ptr<FileOps>> OpenFileOps(const std::string& root, FileOpsOptions options) {
  struct statfs fs;
  if (statfs(root.c_str(), &fs) != 0) return ErrnoStatus(errno, "storage folder " + root);
  const auto magic = static_cast<uint64_t>(fs.f_type) & 0xffffffff;
  const auto has_magic = [&](const KnownFileSystem& k) { return k.magic == magic; };
  if (std::none_of(std::begin(kGoodFileSystems), std::end(kGoodFileSystems), has_magic)) {
    const auto known =
        std::find_if(std::begin(kSharedFileSystems), std::end(kSharedFileSystems), has_magic);
    char text[32];
    std::snprintf(text, sizeof text, "type 0x%llx", static_cast<unsigned long long>(magic));
    return FailedPreconditionError(
        "storage folder " + root + " is on " +
        (known != std::end(kSharedFileSystems) ? known->name : text) +
        ", where writers of a file cannot be fenced safely; use a folder on a local ext4, xfs, "
        "btrfs or tmpfs");
  }
  if (access(root.c_str(), R_OK | W_OK | X_OK) != 0) {
    return ErrnoStatus(errno, "storage folder " + root);
  }
  TAILCAST_ASSIGN_OR_RETURN(const uint64_t boot_tag, ReadBootTag());
  return std::unique_ptr<FileOps>(
      std::make_unique<PosixFileOps>(root, boot_tag, options.nameless_inodes));
}

// ---------------------------------------------------------------------------------------------

namespace {

class HookedPage : public SharedPage {
 public:
  HookedPage(std::unique_ptr<SharedPage> page, FileOpsHook before, std::string path)
      : page_(std::move(page)), before_(std::move(before)), path_(std::move(path)) {}
  uint64_t Load(int64_t offset) override {
    const Status ignored = before_("load", path_);
    static_cast<void>(ignored);
    return page_->Load(offset);
  }
  void Store(int64_t offset, uint64_t value) override {
    if (before_("store", path_).ok()) page_->Store(offset, value);
  }
  bool CompareAndSwap(int64_t offset, uint64_t expected, uint64_t desired) override {
    return before_("swap", path_).ok() && page_->CompareAndSwap(offset, expected, desired);
  }

 private:
  const std::unique_ptr<SharedPage> page_;
  const FileOpsHook before_;
  const std::string path_;
};

class HookedFile : public OpsFile {
 public:
  HookedFile(std::unique_ptr<OpsFile> file, FileOpsHook before, std::string path)
      : file_(std::move(file)), before_(std::move(before)), path_(std::move(path)) {}
  Status WriteAt(int64_t offset, std::string_view bytes) override {
    TAILCAST_RETURN_IF_ERROR(before_("write", path_));
    return file_->WriteAt(offset, bytes);
  }
  Result<std::string> ReadAt(int64_t offset, int64_t length) override {
    TAILCAST_RETURN_IF_ERROR(before_("read", path_));
    return file_->ReadAt(offset, length);
  }
  Status SyncData() override {
    TAILCAST_RETURN_IF_ERROR(before_("flush", path_));
    return file_->SyncData();
  }
  Result<bool> TryLock() override {
    TAILCAST_RETURN_IF_ERROR(before_("lock", path_));
    return file_->TryLock();
  }
  void Unlock() override { file_->Unlock(); }
  Result<std::unique_ptr<SharedPage>> MapPage(bool writable) override {
    TAILCAST_RETURN_IF_ERROR(before_("map", path_));
    TAILCAST_ASSIGN_OR_RETURN(auto page, file_->MapPage(writable));
    return std::unique_ptr<SharedPage>(
        std::make_unique<HookedPage>(std::move(page), before_, path_));
  }
  OpsFile& inner() { return *file_; }

 private:
  const std::unique_ptr<OpsFile> file_;
  const FileOpsHook before_;
  const std::string path_;
};

class HookedFileOps : public FileOps {
 public:
  HookedFileOps(FileOps* ops, FileOpsHook before) : ops_(ops), before_(std::move(before)) {}
  Result<std::unique_ptr<OpsFile>> CreateUnnamed(const std::string& folder) override {
    TAILCAST_RETURN_IF_ERROR(before_("create", folder));
    return Wrap(ops_->CreateUnnamed(folder), folder + "/(new file)");
  }
  Result<std::unique_ptr<OpsFile>> Open(const std::string& path, bool writable) override {
    TAILCAST_RETURN_IF_ERROR(before_("open", path));
    return Wrap(ops_->Open(path, writable), path);
  }
  Status Link(OpsFile& file, const std::string& path) override {
    TAILCAST_RETURN_IF_ERROR(before_("link", path));
    return ops_->Link(static_cast<HookedFile&>(file).inner(), path);
  }
  Status Unlink(const std::string& path) override {
    TAILCAST_RETURN_IF_ERROR(before_("unlink", path));
    return ops_->Unlink(path);
  }
  Status SyncFolder(const std::string& folder) override {
    TAILCAST_RETURN_IF_ERROR(before_("flush folder", folder));
    return ops_->SyncFolder(folder);
  }
  Status MakeFolder(const std::string& path) override {
    TAILCAST_RETURN_IF_ERROR(before_("make folder", path));
    return ops_->MakeFolder(path);
  }
  Result<std::vector<OpsEntry>> ListFolder(const std::string& folder) override {
    TAILCAST_RETURN_IF_ERROR(before_("list", folder));
    return ops_->ListFolder(folder);
  }
  uint64_t BootTag() override { return ops_->BootTag(); }
  uint64_t Random64() override { return ops_->Random64(); }

 private:
  Result<std::unique_ptr<OpsFile>> Wrap(Result<std::unique_ptr<OpsFile>> file, std::string path) {
    if (!file.ok()) return file;
    return std::unique_ptr<OpsFile>(
        std::make_unique<HookedFile>(*std::move(file), before_, std::move(path)));
  }
  FileOps* const ops_;
  const FileOpsHook before_;
};

}  // namespace

std::unique_ptr<FileOps> HookFileOps(FileOps* ops, FileOpsHook before) {
  return std::make_unique<HookedFileOps>(ops, std::move(before));
}

}  // namespace tailcast::storage
