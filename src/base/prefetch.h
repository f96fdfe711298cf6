// Fetches memory that will be read soon.
#pragma once

#include <cstdint>

namespace tailcast {

inline constexpr uint32_t kCacheLineBytes = 64;

// Starts to bring the line of `at`, which may be anywhere, into the processor's caches, and waits
// for nothing. Not __builtin_prefetch alone: gcc takes a function that does no more than that for
// one without effect, and leaves its calls out.
inline void Prefetch(const void* at) {
#if defined(__x86_64__)
  __asm__ volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at);
  __asm__ volatile("");
#endif
}

// The same of all lines that [at, at + bytes) touches.
inline void Prefetch(const void* at, uint32_t bytes) {
  if (bytes == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(at);
  for (uintptr_t line = begin & ~uintptr_t{kCacheLineBytes - 1}; line < begin + bytes;
       line += kCacheLineBytes) {
    Prefetch(reinterpret_cast<const void*>(line));
  }
}

}  // namespace tailcast
