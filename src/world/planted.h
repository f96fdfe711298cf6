// Bugs that the world has found, planted one at a time, each with the seed that found it first: an
// oracle is trusted for what it has caught. `./dev sim planted` looks for the seeds anew,
// planted_test.cc replays these.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tailcast::world {

struct PlantedBug {
  std::string_view name;  // of its FAULT_POINT; what stands before the dot is its room
  uint64_t seed;          // Options::Swarm(seed) finds it
};

const std::vector<PlantedBug>& PlantedBugs();

struct Finding {
  uint64_t seed = 0;    // 0: not found
  std::string problem;  // what the oracle said
};
// The first of the seeds from `first` on that finds the bug.
Finding FindPlanted(std::string_view name, uint64_t first, uint64_t seeds);

}  // namespace tailcast::world
