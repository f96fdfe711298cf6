// How long a thread has run, and has waited for a processor, since it began.
#pragma once

#include <optional>

#include "tailcast/base/time.h"

namespace tailcast {

struct ThreadTimes {
  Duration ran, waited;
};

// Of the calling thread; some microseconds. nullopt: this kernel does not say.
std::optional<ThreadTimes> ReadThreadTimes();

}  // namespace tailcast
