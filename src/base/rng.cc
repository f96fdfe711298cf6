#include "tailcast/base/rng.h"

#include <sys/random.h>

#include "tailcast/base/check.h"

namespace tailcast {
namespace {
__extension__ using Wide = unsigned __int128;
uint64_t SplitMix(uint64_t& x) {
  uint64_t z = (x += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
uint64_t RotateLeft(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
}  // namespace

Rng::Rng(uint64_t seed) {
  for (uint64_t& word : s_) word = SplitMix(seed);
}

uint64_t Rng::Next() {
  const uint64_t result = RotateLeft(s_[1] * 5, 7) * 9;
  const uint64_t t = s_[1] << 17;
  s_[2] ^= s_[0];
  s_[3] ^= s_[1];
  s_[1] ^= s_[2];
  s_[0] ^= s_[3];
  s_[2] ^= t;
  s_[3] = RotateLeft(s_[3], 45);
  return result;
}

uint64_t Rng::Below(uint64_t bound) {
  TAILCAST_CHECK(bound > 0);
  // Lemire's multiplication method; the loop runs more than once with probability bound / 2^64.
  uint64_t x = Next();
  Wide m = static_cast<Wide>(x) * bound;
  uint64_t low = static_cast<uint64_t>(m);
  if (low < bound) {
    const uint64_t threshold = -bound % bound;
    while (low < threshold) {
      x = Next();
      m = static_cast<Wide>(x) * bound;
      low = static_cast<uint64_t>(m);
    }
  }
  return static_cast<uint64_t>(m >> 64);
}

int64_t Rng::Between(int64_t low, int64_t high) {
  TAILCAST_CHECK(low <= high);
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  return low + static_cast<int64_t>(span == UINT64_MAX ? Next() : Below(span + 1));
}

double Rng::Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

// Von Neumann's method, which only compares: the logarithms of two machines may differ in their
// last bit. A descent of an odd number of uniform numbers has probability exp(-the first).
double Rng::Exponential(double mean) {
  for (double whole = 0;; ++whole) {
    const double first = Unit();
    bool odd = true;
    double lowest = first;
    for (double next = Unit(); next < lowest; next = Unit()) {
      lowest = next;
      odd = !odd;
    }
    if (odd) return (whole + first) * mean;
  }
}

Rng Rng::Fork(std::string_view component) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (unsigned char c : component) hash = (hash ^ c) * 0x100000001b3ull;
  return Rng(Next() ^ hash);
}

uint64_t RandomSeed() {
  uint64_t seed;
  TAILCAST_CHECK(getrandom(&seed, sizeof seed, 0) == sizeof seed);
  return seed;
}

}  // namespace tailcast
