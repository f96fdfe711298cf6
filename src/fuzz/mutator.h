// Changes an input: bits, integers, lengths, cuts, pieces of other inputs, and values that the code
// under test compared it with. The same draws from the same generator make the same changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/fuzz/coverage.h"

namespace tailcast::fuzz {

class Mutator {
 public:
  // `others`: inputs to take pieces from; outlives it.
  Mutator(uint64_t seed, const std::vector<std::string>* others) : rng_(seed), others_(others) {}

  // Of a run of the input that is going to be changed; they are copied.
  void SetComparisons(std::span<const Comparison> comparisons) {
    comparisons_.assign(comparisons.begin(), comparisons.end());
  }
  // Changes `size` bytes at `data` in place, in 1 to 8 steps, mostly few. Gives the new size, at
  // most size_max, which is at least 1.
  size_t Mutate(uint8_t* data, size_t size, size_t size_max);

  Rng& rng() { return rng_; }

 private:
  size_t Step(uint8_t* data, size_t size, size_t size_max);
  size_t Insert(uint8_t* data, size_t size, size_t size_max);
  size_t Erase(uint8_t* data, size_t size);
  size_t Splice(uint8_t* data, size_t size, size_t size_max);
  void PutInteger(uint8_t* data, size_t size);
  void AddToInteger(uint8_t* data, size_t size);
  void PutLength(uint8_t* data, size_t size);
  void MovePiece(uint8_t* data, size_t size);
  // False if the input has nothing that was compared.
  bool PutCompared(uint8_t* data, size_t size);

  Rng rng_;
  const std::vector<std::string>* const others_;
  std::vector<Comparison> comparisons_;
};

}  // namespace tailcast::fuzz
