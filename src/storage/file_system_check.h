// Whether a file system keeps what the posix driver asks of it (docs/formats/primary_posix.md,
// "Where it holds").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"

namespace tailcast::storage {

// Of the folder `path`, open as `fd`, on the mount that statx names `mount`. An overlay is as good
// as the file system that its upper layer is on; where that can't be seen from here, as in a
// container, a warning is logged.
//   FailedPrecondition: writers of a file can't be fenced there, or, where appends must survive a power loss
//   (`durable`), nobody has shown that they do.
Status CheckFileSystem(int fd, const std::string& path, uint64_t mount, bool durable);

// Where the writes to an overlay go, as whoever mounted it sees that folder: of the mount of this
// number in the text of /proc/self/mountinfo. Empty: that doesn't say, or not from the root on.
std::string UpperLayerOf(std::string_view mountinfo, uint64_t mount);

}  // namespace tailcast::storage
