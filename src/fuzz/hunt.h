// Runs a target with changed inputs until it dies. The target runs in a child process, whose input
// lies in memory shared with this one, so whatever ends it (a check, a sanitizer, a signal, 30 s
// for one input) leaves the input that did it.
//
// The inputs follow from the seed alone: the same program with the same seed runs the same ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/time.h"

namespace tailcast::fuzz {

// The functions of target.h.
struct Target {
  int (*run)(const uint8_t* data, size_t size) = nullptr;
  size_t (*mutate)(uint8_t* data, size_t size, size_t size_max,
                   unsigned int seed) = nullptr;  // or none
  std::vector<std::string> seeds;
};

struct HuntOptions {
  uint64_t seed = 1;
  Duration time = Duration::Seconds(10);
  uint64_t runs_max = UINT64_MAX;
  size_t size_max = 16 << 10;  // bytes of an input
};

struct Death {
  std::string input;
  std::string how;  // "signal 6 (Aborted)"
};
struct HuntReport {
  uint64_t runs = 0;
  Duration time;
  uint64_t inputs_kept = 0;  // the seeds, and those that took a new way
  uint64_t edges = 0;        // of the code that was compiled for it
  std::optional<Death> death;
};

HuntReport Hunt(const Target& target, const HuntOptions& options);
// Runs one input in a child; nothing: it lives. `quiet`: the child's stderr is dropped.
std::optional<Death> Replay(const Target& target, const std::string& input, bool quiet);
// A smaller input that dies in the same way, as small as is found in this time.
std::string Minimise(const Target& target, const Death& death, Duration time);

}  // namespace tailcast::fuzz
