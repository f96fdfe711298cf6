// Memory that was freed goes back to the system: glibc keeps what lies below anything that is still
// in use, so a process would stay as large as its worst backlog made it.
//
// Threads: one loop. Costs one timer, and a look at the allocator's counts unless much more became
// free.
#pragma once

#include <cstdint>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"

namespace tailcast {

// Gives free pages back. False: nothing was given back. A sanitizer's allocator keeps its own; then
// always false.
//
// It does so when `least_bytes` more are free than after the last time: what the system got back
// still counts as free, so that giving it back again would only cost.
class FreeMemory {
 public:
  explicit FreeMemory(int64_t least_bytes) : least_bytes_(least_bytes) {}
  bool Return();

 private:
  const int64_t least_bytes_;
  int64_t given_back_ = 0;  // free bytes of which the system has the pages, at most
};

// Has the allocator keep what was freed, 64 MiB at most, for the next buffer of that size. By
// default large ones come fresh from the system: each of their pages costs a fault, and zeros that
// are written over at once. For programs, at their start; what is kept is given back by Return.
void KeepFreedMemory();

// Looks every ten seconds, for 16 MiB.
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
