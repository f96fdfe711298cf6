// The first page of an inode as memory of all processes, on the real system. Internal to the posix
// driver.
#pragma once

#include <memory>
#include <string>

#include "tailcast/base/status.h"
#include "tailcast/storage/file_ops.h"

namespace tailcast::storage {

// Maps the first page of `fd`, which must exist. `path` is for errors.
//
// Memory behind which there is no file any more raises SIGBUS: the file was cut, or its device is
// gone. The first call sets a handler for it that ends accesses to these pages with an error
// (SharedPage::lost) and hands every other SIGBUS to whoever had it before.
Result<std::unique_ptr<SharedPage>> MapFirstPage(int fd, bool writable, const std::string& path);

}  // namespace tailcast::storage
