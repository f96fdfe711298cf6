#include "tailcast/base/thread_times.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace tailcast {
namespace {

// Both numbers that the file begins with.
template <typename Number>
bool ReadTwo(const char* path, const char* format, Number (&numbers)[2]) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[128];
  const ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (n <= 0) return false;
  text[n] = '\0';
  return std::sscanf(text, format, &numbers[0], &numbers[1]) == 2;
}

}  // namespace

std::optional<ThreadTimes> ReadThreadTimes() {
  unsigned long long thread_ns[2];  // ran, waited
  double machine_s[2];              // since it booted; idle, of all processors
  if (!ReadTwo("/proc/thread-self/schedstat", "%llu %llu", thread_ns) ||
      !ReadTwo("/proc/uptime", "%lf %lf", machine_s)) {
    return std::nullopt;
  }
  static const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (processors <= 0) return std::nullopt;
  return ThreadTimes{.ran = Duration::Micros(static_cast<int64_t>(thread_ns[0] / 1000)),
                     .waited = Duration::Micros(static_cast<int64_t>(thread_ns[1] / 1000)),
                     .idle = Duration::Micros(static_cast<int64_t>(
                         machine_s[1] * 1e6 / static_cast<double>(processors)))};
}

}  // namespace tailcast
