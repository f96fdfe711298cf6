#include "tailcast/base/thread_priority.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace tailcast {
namespace {

constexpr int kBeforeOthers = -10;
constexpr char kSession[] = "/proc/self/autogroup";

int Own() { return getpriority(PRIO_PROCESS, 0); }

void Change(int from, int to) {
  if (Own() == from) (void)setpriority(PRIO_PROCESS, 0, to);
}

// The nice of this process's session, as of "/autogroup-4 nice 0"; false: it has none, as in a
// control group or with a kernel that does not group by sessions.
bool SessionNice(int* nice) {
  std::FILE* const file = std::fopen(kSession, "re");
  if (file == nullptr) return false;
  const bool read = std::fscanf(file, "/autogroup-%*d nice %d", nice) == 1;
  (void)std::fclose(file);
  return read;
}

void RaiseOwnSession() {
  int nice = 0;
  if (getsid(0) != getpid() || !SessionNice(&nice) || nice != 0) return;
  const int file = open(kSession, O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  const std::string text = std::to_string(kBeforeOthers);
  (void)!write(file, text.data(), text.size());
  close(file);
}

}  // namespace

bool RunBeforeOthers() {
  Change(0, kBeforeOthers);
  if (Own() == kBeforeOthers) RaiseOwnSession();
  return Own() < 0;
}
void RunAmongOthers() { Change(kBeforeOthers, 0); }

}  // namespace tailcast
