// How long a thread has run, and has waited for a processor, since it began; and how long the
// machine had nothing to do.
#pragma once

#include <optional>
#include <string_view>

#include "tailcast/base/time.h"

namespace tailcast {

struct ThreadTimes {
  Duration ran, waited;
  // Since the machine booted, as the mean of its processors; counted in hundredths of a second.
  // Also when they waited for disks, or did what gives way to this thread (nice).
  Duration idle;
};

// Of the calling thread; some ten microseconds. nullopt: this kernel does not say.
std::optional<ThreadTimes> ReadThreadTimes();

// CPU time of those threads of this process that live and have that name, exact also while they
// run; nullopt: there is none. Reads /proc for each thread: for tests and benchmarks.
std::optional<Duration> CpuOfThreadsNamed(std::string_view name);

}  // namespace tailcast
