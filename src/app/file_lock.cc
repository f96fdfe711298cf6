#include "tailcast/app/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tailcast::app {

Result<FileLock> FileLock::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "write " + path);
  return FileLock(fd);
}

Status FileLock::Sign(const std::string& path) const {
  const std::string pid = std::to_string(getpid());
  if (ftruncate(fd_, 0) == 0 && pwrite(fd_, pid.data(), pid.size(), 0) >= 0) return OkStatus();
  return ErrnoStatus(errno, "write " + path);
}

Result<FileLock> FileLock::Take(const std::string& path,
                                const std::function<std::string(const std::string& pid)>& refusal) {
  TAILCAST_ASSIGN_OR_RETURN(FileLock lock, Open(path));
  if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock " + path);
    char pid[32] = {};
    const ssize_t bytes = pread(lock.fd_, pid, sizeof pid - 1, 0);
    return FailedPreconditionError(refusal(bytes > 0 ? pid : ""));
  }
  TAILCAST_RETURN_IF_ERROR(lock.Sign(path));
  return lock;
}

Result<FileLock> FileLock::Await(const std::string& path) {
  TAILCAST_ASSIGN_OR_RETURN(FileLock lock, Open(path));
  while (flock(lock.fd_, LOCK_EX) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "lock " + path);
  }
  TAILCAST_RETURN_IF_ERROR(lock.Sign(path));
  return lock;
}

Result<bool> FileLock::IsHeld(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return false;
  if (fd < 0) return ErrnoStatus(errno, "look at " + path);
  const bool held = flock(fd, LOCK_SH | LOCK_NB) != 0;
  close(fd);
  return held;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace tailcast::app
