#include "tailcast/base/free_memory.h"

#include <malloc.h>

#include <algorithm>

#include "tailcast/base/resident_memory.h"

namespace tailcast {
namespace {
constexpr Duration kEvery = Duration::Seconds(10);
constexpr int64_t kLeastBytes = 4 << 20;
constexpr int kKeptBytes = 64 << 20;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// What the process has of its own in memory and nobody uses; with it stacks and the like, and less
// what is in use and was never touched.
int64_t IdleBytes() {
  const struct mallinfo2 info = mallinfo2();
  return ReadResidentMemory().own - static_cast<int64_t>(info.uordblks + info.hblkhd);
}
#endif

}  // namespace

void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, kKeptBytes / 2);  // the most that it takes
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
}

bool FreeMemory::Return() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)least_bytes_;
  (void)left_;
  return false;
#else
  const int64_t idle = IdleBytes();
  left_ = std::min(left_, idle);
  if (idle < left_ + least_bytes_) return false;
  const bool returned = malloc_trim(0) == 1;
  left_ = IdleBytes();
  return returned;
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
