// The one random source of the project: small, seeded, the same on every platform. std::
// distributions are not used, because they differ between standard libraries.
#pragma once

#include <cstdint>
#include <string_view>

namespace tailcast {

// xoshiro256** seeded by splitmix64 (Blackman and Vigna). Not for secrets. Not thread-safe.
class Rng {
 public:
  explicit Rng(uint64_t seed);
  uint64_t Next();
  // Uniform in [0, bound); bound > 0. Unbiased.
  uint64_t Below(uint64_t bound);
  // Uniform in [low, high], both included.
  int64_t Between(int64_t low, int64_t high);
  // Uniform in [0, 1).
  double Unit();
  // True with the given probability.
  bool Chance(double probability) { return Unit() < probability; }
  // Exponentially distributed with the given mean, for arrival times and tails.
  double Exponential(double mean);
  // An independent generator for a component: draws of one do not shift the other's.
  Rng Fork(std::string_view component);

 private:
  uint64_t s_[4];
};

// 64 bits from the kernel's random source, for seeds and nonces of real processes.
uint64_t RandomSeed();

}  // namespace tailcast
