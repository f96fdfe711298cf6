// Which branches an input took, and what it was compared with. Code that gcc compiled with
// -fsanitize-coverage=trace-pc,trace-cmp calls the functions of coverage.cc; where none is, no
// input brings anything new.
//
// Threads: what the thread that called BeginRun does until EndRun counts, nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tailcast::fuzz {

// Two unequal operands of a comparison.
struct Comparison {
  uint64_t left = 0, right = 0;
  uint8_t bytes = 0;  // of each
};

void BeginRun();
// How many edges were passed for the first time, or more often than in any run before (in powers of
// two).
size_t EndRun();
// Edges passed in any run so far.
size_t EdgesSeen();
// The last comparisons of the last run. Valid until the next BeginRun.
std::span<const Comparison> Comparisons();

}  // namespace tailcast::fuzz
