#include "tailcast/base/thread_times.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace tailcast {
namespace {

// A file of /proc that a thread reads again and again: opening it costs more than reading it.
class ProcFile {
 public:
  explicit ProcFile(const char* path) : path_(path) {}
  ~ProcFile() {
    if (fd_ >= 0) close(fd_);
  }
  ProcFile(const ProcFile&) = delete;
  ProcFile& operator=(const ProcFile&) = delete;

  // The numbers that it begins with, after `format`'s text.
  template <typename... Number>
  bool Read(const char* format, Number*... numbers) {
    if (fd_ < 0) fd_ = open(path_, O_RDONLY | O_CLOEXEC);
    char text[192];
    const ssize_t n = pread(fd_, text, sizeof(text) - 1, 0);
    if (n <= 0) return false;
    text[n] = '\0';
    return std::sscanf(text, format, numbers...) == sizeof...(numbers);
  }

 private:
  const char* const path_;
  int fd_ = -1;
};

}  // namespace

std::optional<ThreadTimes> ReadThreadTimes() {
  unsigned long long ran_ns, waited_ns;
  unsigned long long user, nice, kernel, idle, disk;  // ticks of all processors since it booted
  thread_local ProcFile thread("/proc/thread-self/schedstat"), machine("/proc/stat");
  if (!thread.Read("%llu %llu", &ran_ns, &waited_ns) ||
      !machine.Read("cpu %llu %llu %llu %llu %llu", &user, &nice, &kernel, &idle, &disk)) {
    return std::nullopt;
  }
  static const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  static const long ticks_per_second = sysconf(_SC_CLK_TCK);
  if (processors <= 0 || ticks_per_second <= 0) return std::nullopt;
  // Who gives way himself waits for others that do.
  const bool gives_way = getpriority(PRIO_PROCESS, 0) > 0;
  const auto ticks = static_cast<double>(idle + disk + (gives_way ? 0 : nice));
  return ThreadTimes{.ran = Duration::Micros(static_cast<int64_t>(ran_ns / 1000)),
                     .waited = Duration::Micros(static_cast<int64_t>(waited_ns / 1000)),
                     .idle = Duration::Micros(static_cast<int64_t>(
                         ticks * 1e6 / static_cast<double>(ticks_per_second * processors)))};
}

std::optional<Duration> CpuOfThreadsNamed(std::string_view name) {
  std::optional<Duration> sum;
  std::error_code ended;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ended)) {
    std::string comm;
    std::getline(std::ifstream(task.path() / "comm"), comm);
    if (comm != name) continue;
    // By the thread's CPU clock: what /proc says of a thread that runs is as old as the last tick.
    // Its number is made as pthread_getcpuclockid makes it: ~tid, then "of a thread, exact".
    const auto tid = static_cast<uint32_t>(std::stoul(task.path().filename().string()));
    timespec ran{};
    if (clock_gettime(static_cast<clockid_t>(~tid << 3 | 6), &ran) != 0) continue;  // it has ended
    sum = sum.value_or(Duration()) + Duration::Seconds(ran.tv_sec) +
          Duration::Micros(ran.tv_nsec / 1000);
  }
  return sum;
}

}  // namespace tailcast
