// Memory that was freed goes back to the system: glibc keeps what lies below anything that is still
// in use, so a process would stay as large as its worst backlog made it.
//
// Threads: one loop. Costs one timer, and a look at the system's and the allocator's counts.
#pragma once

#include <cstdint>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"

namespace tailcast {

// Gives free pages back. False: nothing was given back. A sanitizer's allocator keeps its own; then
// always false.
//
// It does so when at least `least_bytes` more lie idle than were left the last time: pages that the
// process has and the allocator does not use. The allocator counts as free also what the system has
// got back already, so its count alone does not show that a burst has fetched those pages again.
class FreeMemory {
 public:
  explicit FreeMemory(int64_t least_bytes) : least_bytes_(least_bytes) {}
  bool Return();

 private:
  const int64_t least_bytes_;
  int64_t left_ = 0;  // idle bytes that could not be given back
};

// Has the allocator keep what was freed, 64 MiB at most, for the next buffer of that size. By
// default large ones come fresh from the system: each of their pages costs a fault, and zeros that
// are written over at once. For programs, at their start; what is kept is given back by Return.
void KeepFreedMemory();

// Looks every ten seconds, for 4 MiB.
class FreeMemoryKeeper {
 public:
  explicit FreeMemoryKeeper(EventLoop& loop);

 private:
  void Arm();
  FreeMemory memory_;
  Timer timer_;
  Scope scope_;
};

}  // namespace tailcast
