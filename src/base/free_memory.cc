#include "tailcast/base/free_memory.h"

#include <malloc.h>

#include <algorithm>

namespace tailcast {
namespace {
constexpr Duration kEvery = Duration::Seconds(10);
constexpr int64_t kLeastBytes = 16 << 20;
constexpr int kKeptBytes = 64 << 20;
}  // namespace

void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, kKeptBytes / 2);  // the most that it takes
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
}

bool FreeMemory::Return() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)least_bytes_;
  (void)given_back_;
  return false;
#else
  const auto free_bytes = static_cast<int64_t>(mallinfo2().fordblks);
  given_back_ = std::min(given_back_, free_bytes);
  if (free_bytes < given_back_ + least_bytes_) return false;
  given_back_ = free_bytes;
  return malloc_trim(0) == 1;
#endif
}

FreeMemoryKeeper::FreeMemoryKeeper(EventLoop& loop) : memory_(kLeastBytes), timer_(loop) { Arm(); }

void FreeMemoryKeeper::Arm() {
  timer_.After(kEvery, scope_.Bind([this] {
    memory_.Return();
    Arm();
  }));
}

}  // namespace tailcast
