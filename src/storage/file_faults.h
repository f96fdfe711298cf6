// Faults of the disk under real processes, for tests: in a build with fault points, the environment
// variable TAILCAST_FILE_FAULTS makes system calls of the posix driver fail, or be slow, at random.
//
//   TAILCAST_FILE_FAULTS=write:ENOSPC:0.01,flush:EIO:0.001,read:EIO:0.001,flush:300ms:0.5
//
// CALL:ERROR:PROBABILITY[:PATH] each, or CALL:stop:N[:PATH[:TOKEN]]; CALL is create, open, write,
// read, flush or truncate, ERROR is EIO or ENOSPC. The call is not made: of a failed write nothing
// is on the disk, not a part of it, and what a failed flush was to keep is lost only if the machine
// is. With a time in place of the error it is made, so much later. `lost`, of a write or flush,
// reports success, and what it was to write or keep is gone: as of a disk that lies about its
// flushes, with the power loss that shows it at once. `stop:N` stops the whole process (SIGSTOP)
// before the Nth such call, once: what it looked at before may be long untrue when somebody wakes
// it. PATH: only of files whose path has it, the store's folder included. TOKEN: a file that is not
// there yet; of all processes with this fault only the first one stops, which leaves its process id
// in it.
#pragma once

#include <memory>
#include <string>

#include "tailcast/base/status.h"
#include "tailcast/storage/file_ops.h"

namespace tailcast::storage {

inline constexpr char kFileFaultsVariable[] = "TAILCAST_FILE_FAULTS";

// `ops`, whose paths lie in `root`, with these faults. `seed` draws them. InvalidArgument: the
// text, which is quoted.
Result<std::unique_ptr<FileOps>> WithFileFaults(std::unique_ptr<FileOps> ops,
                                                const std::string& root, const std::string& faults,
                                                uint64_t seed);
// As the environment says; `ops` itself when it says nothing. FailedPrecondition: it does, and this
// build has no fault points.
Result<std::unique_ptr<FileOps>> WithFileFaultsOfEnvironment(std::unique_ptr<FileOps> ops,
                                                             const std::string& root);

}  // namespace tailcast::storage
