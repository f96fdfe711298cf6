#include "tailcast/app/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace tailcast::app {
namespace {

FileInfo InfoOf(const struct stat& info) {
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .size = info.st_size,
          .modified_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec,
          .regular = S_ISREG(info.st_mode),
          .linked = info.st_nlink > 0};
}

class RealFile : public OpenedFile {
 public:
  RealFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  RealFile(const RealFile&) = delete;
  RealFile& operator=(const RealFile&) = delete;
  ~RealFile() override { close(fd_); }

  Result<FileInfo> Info() override {
    struct stat info {};
    if (fstat(fd_, &info) != 0) return ErrnoStatus(errno, "look at " + path_);
    return InfoOf(info);
  }
  Result<std::string> Read(int64_t at, int64_t bytes) override {
    std::string out(static_cast<size_t>(bytes), '\0');
    size_t got = 0;
    while (got < out.size()) {
      const ssize_t n =
          pread(fd_, out.data() + got, out.size() - got, at + static_cast<int64_t>(got));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "read " + path_);
      if (n == 0) break;
      got += static_cast<size_t>(n);
    }
    out.resize(got);
    return out;
  }

 private:
  const int fd_;
  const std::string path_;
};

class RealFileSystem : public FileSystem {
 public:
  Result<FileInfo> Stat(const std::string& path) override {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
    return InfoOf(info);
  }
  Result<std::unique_ptr<OpenedFile>> Open(const std::string& path) override {
    // O_NONBLOCK: what became a pipe is not waited for.
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return ErrnoStatus(errno, "open " + path);
    return std::unique_ptr<OpenedFile>(std::make_unique<RealFile>(fd, path));
  }
  Result<std::vector<std::string>> Rotated(const std::string& path) override {
    std::error_code error;
    // Where a link leads to, if that is there at the moment.
    std::filesystem::path real = std::filesystem::weakly_canonical(path, error);
    if (error) real = path;
    const std::string base = real.filename().string();
    std::vector<std::string> found;
    std::filesystem::directory_iterator at(real.parent_path(), error);
    for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
      const std::string name = at->path().filename().string();
      if (IsRotatedName(base, name)) found.push_back(at->path().string());
    }
    if (error) return ErrnoStatus(error.value(), "list " + real.parent_path().string());
    std::sort(found.begin(), found.end());
    return found;
  }
};

}  // namespace

bool IsRotatedName(std::string_view base, std::string_view name) {
  if (name.size() < base.size() + 2 || !name.starts_with(base)) return false;
  const std::string_view ending = name.substr(base.size());
  constexpr std::string_view kDigits = "0123456789";
  return (ending[0] == '.' || ending[0] == '-') && kDigits.find(ending[1]) != kDigits.npos &&
         ending.find_first_not_of("0123456789.-_:+T") == ending.npos;
}

std::unique_ptr<FileSystem> FileSystem::Real() { return std::make_unique<RealFileSystem>(); }

}  // namespace tailcast::app
