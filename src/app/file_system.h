// The files that `tailcast tail` follows, as a port: the real ones, and those of tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"

namespace tailcast::app {

struct FileInfo {
  uint64_t device = 0, inode = 0;
  int64_t size = 0;
  int64_t modified_ns = 0;
  bool regular = true;
  bool linked = true;  // it has a name
};

class OpenedFile {
 public:
  virtual ~OpenedFile() = default;
  virtual Result<FileInfo> Info() = 0;
  // Fewer bytes than asked for: the file ends there.
  virtual Result<std::string> Read(int64_t at, int64_t bytes) = 0;
};

// Whether a file `base` may be called `name` after a rotation: `.` or `-` and a number or time
// behind it, as app.log.1, app.log-20130131, app.log.2013-01-31T12:00. What else begins like it is
// another program's, or compressed.
bool IsRotatedName(std::string_view base, std::string_view name);

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Symbolic links are followed. Errors as ErrnoStatus: NotFound, PermissionDenied, ...
  virtual Result<FileInfo> Stat(const std::string& path) = 0;
  virtual Result<std::unique_ptr<OpenedFile>> Open(const std::string& path) = 0;
  // Paths of what lies beside the file and has a name as IsRotatedName: what it was rotated to.
  virtual Result<std::vector<std::string>> Rotated(const std::string& path) = 0;

  static std::unique_ptr<FileSystem> Real();
};

}  // namespace tailcast::app
