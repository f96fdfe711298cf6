// What of this process is in memory.
#pragma once

#include <cstdint>

namespace tailcast {

// In bytes; 0: not known. Pages of the program itself, which all its processes share, and of files
// count in neither.
struct ResidentMemory {
  int64_t own = 0;     // nobody else has it
  int64_t shared = 0;  // mapped from elsewhere: caches, of which a reader maps what it reads
};

// Reads /proc/self/status. Any thread.
ResidentMemory ReadResidentMemory();

}  // namespace tailcast
