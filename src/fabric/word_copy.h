// The copy of a one-sided read out of memory that a server changes at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tailcast::fabric {

// Copies `length` bytes at `offset` of a region to private memory. Aligned 8-byte words of the
// region that lie whole in the range are read in one piece: memcpy alone would break that, because
// its overlapping moves at the ends of an unaligned range may take one word at two moments. The
// region's memory ends on a multiple of 8.
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
  // Both now on a multiple of 8 in the region: every move of memcpy holds whole words.
  const size_t words = length & ~size_t{7};
  std::memcpy(destination, source, words);
  const size_t rest = length & 7;
  if (rest != 0) {
    uint64_t word;
    __atomic_load(reinterpret_cast<const uint64_t*>(source + words), &word, __ATOMIC_RELAXED);
    std::memcpy(destination + words, &word, rest);
  }
}

}  // namespace tailcast::fabric
