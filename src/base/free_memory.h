// Memory that was freed goes back to the system: glibc keeps what lies below anything that is still
// in use, so a process would stay as large as its worst backlog made it.
//
// Threads: one loop. Costs one timer; while little is free, a look at the allocator's counts.
#pragma once

#include <cstdint>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"

namespace tailcast {

// Gives free pages back if at least `least_bytes` are free. False: nothing was given back. A
// sanitizer's allocator keeps its own; then always false.
bool ReturnFreeMemory(int64_t least_bytes);

// Does so every ten seconds, when 16 MiB are free.
class FreeMemoryKeeper {
 public:
  explicit FreeMemoryKeeper(EventLoop& loop);

 private:
  void Arm();
  Timer timer_;
  Scope scope_;
};

}  // namespace tailcast
