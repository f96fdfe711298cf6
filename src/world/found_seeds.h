// Seeds that have found something: they are run by every test run, beside the fixed sample. What a
// seed draws changes with Options::Swarm, so one that found a bug which matters gets a test of its
// own as well.
#pragma once

#include <cstdint>

namespace tailcast::world {

inline constexpr uint64_t kFoundSeeds[] = {
    60,  // of the simulator: what was sent to a closed port behind a cut was kept for ever
};

}  // namespace tailcast::world
