// Tells one life of a process from the others.
#pragma once

#include <cstdint>

namespace tailcast {

// Drawn at each start of a process: what has the name or the address of an earlier one is told from
// it. Never kNone.
enum class ProcessIncarnation : uint64_t { kNone = 0 };

}  // namespace tailcast
