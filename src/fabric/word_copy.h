// The copy of a one-sided read out of memory that a server changes at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tailcast::fabric {

// Copies `length` bytes at `offset` of a region to private memory. Aligned 8-byte words of the
// region that lie whole in the range are read in one piece. memcpy alone would break that: its
// overlapping moves at the ends of an unaligned range may take one word at two moments, and in a
// long copy it aligns its moves to the destination, which need not lie as the source does (with
// 32-byte registers beyond 256 bytes). The region's memory ends on a multiple of 8.
inline void CopyWords(char* destination, const char* region, uint64_t offset, size_t length) {
  if (length == 0) return;
  const char* source = region + offset;
  const size_t to_word = static_cast<size_t>(-offset & 7);
  if (to_word != 0) {
    uint64_t word;
    const size_t n = to_word < length ? to_word : length;
    __atomic_load(reinterpret_cast<const uint64_t*>(source - (offset & 7)), &word,
                  __ATOMIC_RELAXED);
    std::memcpy(destination, reinterpret_cast<const char*>(&word) + (offset & 7), n);
    destination += n;
    source += n;
    length -= n;
  }
  // The source is on a multiple of 8 now, and 64 bytes are few enough for moves that begin and end
  // on one, too. The compiler must not join these copies to one memcpy.
  constexpr size_t kPiece = 64;
  for (; length >= kPiece; length -= kPiece, source += kPiece, destination += kPiece) {
    std::memcpy(destination, source, kPiece);
    __asm__ volatile("" ::: "memory");
  }
  while (length > 0) {
    uint64_t word;
    const size_t n = length < sizeof word ? length : sizeof word;
    __atomic_load(reinterpret_cast<const uint64_t*>(source), &word, __ATOMIC_RELAXED);
    std::memcpy(destination, &word, n);
    destination += n;
    source += n;
    length -= n;
  }
}

}  // namespace tailcast::fabric
