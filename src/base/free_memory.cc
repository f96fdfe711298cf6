#include "tailcast/base/free_memory.h"

#include <malloc.h>

namespace tailcast {
namespace {
constexpr Duration kEvery = Duration::Seconds(10);
constexpr int64_t kLeastBytes = 16 << 20;
}  // namespace

bool ReturnFreeMemory(int64_t least_bytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)least_bytes;
  return false;
#else
  if (static_cast<int64_t>(mallinfo2().fordblks) < least_bytes) return false;
  return malloc_trim(0) == 1;
#endif
}

FreeMemoryKeeper::FreeMemoryKeeper(EventLoop& loop) : timer_(loop) { Arm(); }

void FreeMemoryKeeper::Arm() {
  timer_.After(kEvery, scope_.Bind([this] {
    ReturnFreeMemory(kLeastBytes);
    Arm();
  }));
}

}  // namespace tailcast
