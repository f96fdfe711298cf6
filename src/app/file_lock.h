// A file that one process at a time holds; the kernel lets go of it when the process ends, however
// it ends.
#pragma once

#include <functional>
#include <string>

#include "tailcast/base/status.h"

namespace tailcast::app {

// Held while it lives. The file stays when it is let go of, with the pid of who held it last.
class FileLock {
 public:
  // Creates the file, not its folder. FailedPrecondition: somebody holds it already, with the words
  // of `refusal`, which gets the holder's pid ("" if it is not known yet).
  static Result<FileLock> Take(const std::string& path,
                               const std::function<std::string(const std::string& pid)>& refusal);
  // Waits for as long as another one holds it.
  static Result<FileLock> Await(const std::string& path);
  // Whether anybody holds it; a file that is not there is held by nobody. PermissionDenied: this
  // user may not look.
  static Result<bool> IsHeld(const std::string& path);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  static Result<FileLock> Open(const std::string& path);
  Status Sign(const std::string& path) const;

  int fd_;
};

}  // namespace tailcast::app
