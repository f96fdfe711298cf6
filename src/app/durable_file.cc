#include "tailcast/app/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace tailcast::app {
namespace {

Status SyncFolder(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open the folder " + folder);
  const bool synced = fsync(fd) == 0;
  const int error = errno;
  close(fd);
  return synced ? OkStatus() : ErrnoStatus(error, "sync the folder " + folder);
}

}  // namespace

Status ReplaceFile(const std::string& path, std::string_view content) {
  const std::string part = path + ".part";
  const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "write " + part);
  size_t written = 0;
  int error = 0;
  while (written < content.size() && error == 0) {
    const ssize_t n = write(fd, content.data() + written, content.size() - written);
    if (n >= 0) {
      written += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (error == 0 && fsync(fd) != 0) error = errno;
  if (close(fd) != 0 && error == 0) error = errno;
  if (error != 0) return ErrnoStatus(error, "write " + part);
  if (std::rename(part.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "write " + path);
  return SyncFolder(path);
}

}  // namespace tailcast::app
