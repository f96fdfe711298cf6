#include "tailcast/base/thread_times.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace tailcast {

std::optional<ThreadTimes> ReadThreadTimes() {
  const int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  char text[128];
  const ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (n <= 0) return std::nullopt;
  text[n] = '\0';
  unsigned long long ran_ns = 0, waited_ns = 0;
  if (std::sscanf(text, "%llu %llu", &ran_ns, &waited_ns) != 2) return std::nullopt;
  return ThreadTimes{Duration::Micros(static_cast<int64_t>(ran_ns / 1000)),
                     Duration::Micros(static_cast<int64_t>(waited_ns / 1000))};
}

}  // namespace tailcast
