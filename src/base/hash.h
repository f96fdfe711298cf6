// A 128-bit hash that is the same on every machine and in every version: chunk keys of the cache
// and placement on its ring are made of it. Not for adversaries: who chooses names can find
// collisions.
#pragma once

#include <compare>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tailcast {

struct Hash128Value {
  uint64_t hi = 0;
  uint64_t lo = 0;
  auto operator<=>(const Hash128Value&) const = default;
};

namespace internal {
inline uint64_t HashRotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
inline uint64_t HashFinish(uint64_t k) {
  k = (k ^ (k >> 33)) * 0xff51afd7ed558ccdull;
  k = (k ^ (k >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return k ^ (k >> 33);
}
// Little-endian whatever the machine; n <= 8.
inline uint64_t HashLoad(const char* p, size_t n) {
  uint64_t v = 0;
  for (size_t i = 0; i < n; ++i) v |= uint64_t{static_cast<unsigned char>(p[i])} << (8 * i);
  return v;
}
}  // namespace internal

// MurmurHash3 for 64-bit machines, 128 bits (Appleby; public domain algorithm). hi is the first
// word of its output, lo the second.
inline Hash128Value Hash128(std::string_view data, uint32_t seed = 0) {
  constexpr uint64_t c1 = 0x87c37b91114253d5ull;
  constexpr uint64_t c2 = 0x4cf5ad432745937full;
  using internal::HashRotate;
  const auto mix1 = [](uint64_t k) { return HashRotate(k * c1, 31) * c2; };
  const auto mix2 = [](uint64_t k) { return HashRotate(k * c2, 33) * c1; };
  uint64_t h1 = seed;
  uint64_t h2 = seed;
  const char* p = data.data();
  size_t left = data.size();
  for (; left >= 16; left -= 16, p += 16) {
    h1 ^= mix1(internal::HashLoad(p, 8));
    h1 = (HashRotate(h1, 27) + h2) * 5 + 0x52dce729;
    h2 ^= mix2(internal::HashLoad(p + 8, 8));
    h2 = (HashRotate(h2, 31) + h1) * 5 + 0x38495ab5;
  }
  if (left > 8) h2 ^= mix2(internal::HashLoad(p + 8, left - 8));
  if (left > 0) h1 ^= mix1(internal::HashLoad(p, left < 8 ? left : 8));
  h1 ^= data.size();
  h2 ^= data.size();
  h1 += h2;
  h2 += h1;
  h1 = internal::HashFinish(h1);
  h2 = internal::HashFinish(h2);
  h1 += h2;
  h2 += h1;
  return {h1, h2};
}

}  // namespace tailcast
