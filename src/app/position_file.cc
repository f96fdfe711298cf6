#include "tailcast/app/position_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace tailcast::app {
namespace {

constexpr char kHeading[] = "# positions of `tailcast consume --position-file`";

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

Result<std::vector<stream::Position>> ReadPositionFile(const std::string& path) {
  errno = 0;
  std::ifstream in(path);
  if (!in && errno == ENOENT) return std::vector<stream::Position>();
  if (!in) return ErrnoStatus(errno != 0 ? errno : EIO, "read " + path);
  std::vector<stream::Position> positions;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    const auto position = stream::Position::Parse(line);
    if (!position.ok()) {
      return DataLossError(path + ":" + std::to_string(number) + ": " +
                           position.status().message() +
                           "; mend the line, or remove the file to begin at --from");
    }
    positions.push_back(*position);
  }
  if (in.bad()) return ErrnoStatus(EIO, "read " + path);
  return positions;
}

Status WritePositionFile(const std::string& path, const std::vector<stream::Position>& positions) {
  std::string text = std::string(kHeading) + "\n";
  for (const stream::Position& position : positions) text += position.ToString() + "\n";
  const std::string part = path + ".part";
  const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "write " + part);
  size_t written = 0;
  int error = 0;
  while (written < text.size() && error == 0) {
    const ssize_t n = write(fd, text.data() + written, text.size() - written);
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
