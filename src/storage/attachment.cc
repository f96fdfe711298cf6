#include "tailcast/storage/attachment.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "tailcast/base/hash.h"
#include "tailcast/base/rng.h"

namespace tailcast::storage {
namespace {

constexpr char kFileName[] = ".attached";
constexpr size_t kNumberDigits = 16;
constexpr int kWaitsMax = 60'000;
constexpr useconds_t kWaitMicros = 1000;

// Bytes of the file that are locked; neither has to exist.
constexpr off_t kJoining = 0;   // exclusively, by who joins, for microseconds
constexpr off_t kAttached = 1;  // shared, by all that are attached

// Locks belong to the open file description, so two stores of one process count as two. False:
// others hold it.
Result<bool> Lock(int fd, off_t byte, short type, const std::string& path) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  return ErrnoStatus(errno, "lock " + path);
}

Result<std::string> ReadBootId() {
  constexpr char kPath[] = "/proc/sys/kernel/random/boot_id";
  const int fd = open(kPath, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, std::string("open ") + kPath);
  char text[64];
  const ssize_t n = read(fd, text, sizeof text);
  const int error = errno;
  close(fd);
  if (n < 36) return ErrnoStatus(n < 0 ? error : EIO, std::string("read ") + kPath);
  return std::string(text, 36);
}

uint64_t Tag(std::string_view text) {
  const uint64_t tag = Hash128(text).hi;
  return tag == 0 ? uint64_t{1} : tag;
}

// Under the lock on kJoining: whoever has a lock on kAttached, but us, has seen the number written.
Result<std::string> JoinOrBegin(int fd, const std::string& path) {
  char number[kNumberDigits + 1] = {};
  TAILCAST_ASSIGN_OR_RETURN(const bool first, Lock(fd, kAttached, F_WRLCK, path));
  if (first) {
    // Whoever was attached before may have been killed between a write and its flush: what the page
    // cache shows of that is believed from now on, so it has to be on the disk first.
    const bool anybody_before = pread(fd, number, kNumberDigits, 0) > 0;
    if (anybody_before && syncfs(fd) != 0) return ErrnoStatus(errno, "syncfs " + path);
    std::snprintf(number, sizeof number, "%016llx", static_cast<unsigned long long>(RandomSeed()));
    if (pwrite(fd, number, kNumberDigits, 0) != static_cast<ssize_t>(kNumberDigits)) {
      return ErrnoStatus(errno, "write " + path);
    }
  }
  TAILCAST_ASSIGN_OR_RETURN(const bool shared, Lock(fd, kAttached, F_RDLCK, path));
  if (!shared) return UnavailableError("lock " + path + ": another program locks it");
  if (!first && pread(fd, number, kNumberDigits, 0) != static_cast<ssize_t>(kNumberDigits)) {
    return DataLossError(path + ": was cut while the store is in use; stop all its processes");
  }
  return std::string(number);
}

Result<std::string> JoinInTurn(int fd, const std::string& path) {
  for (int wait = 0; wait < kWaitsMax; ++wait) {
    TAILCAST_ASSIGN_OR_RETURN(const bool ours, Lock(fd, kJoining, F_WRLCK, path));
    if (ours) {
      Result<std::string> number = JoinOrBegin(fd, path);
      TAILCAST_ASSIGN_OR_RETURN(const bool freed, Lock(fd, kJoining, F_UNLCK, path));
      static_cast<void>(freed);
      return number;
    }
    usleep(kWaitMicros);
  }
  return UnavailableError("lock " + path + ": another process that opens the store holds it for " +
                          std::to_string(kWaitsMax * kWaitMicros / 1'000'000) +
                          " s now; was it stopped?");
}

}  // namespace

Result<std::unique_ptr<Attachment>> Attachment::Join(int root, const std::string& path) {
  const std::string file = path + "/" + kFileName;
  TAILCAST_ASSIGN_OR_RETURN(const std::string boot_id, ReadBootId());
  const int fd = openat(root, kFileName, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return ErrnoStatus(errno, "open " + file);
  const Result<std::string> number = JoinInTurn(fd, file);
  if (!number.ok()) {
    close(fd);
    return number.status();
  }
  return std::unique_ptr<Attachment>(new Attachment(fd, Tag(boot_id + *number), Tag(boot_id)));
}

Attachment::~Attachment() { close(fd_); }

}  // namespace tailcast::storage
