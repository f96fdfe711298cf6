#include "tailcast/base/thread_priority.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace tailcast {
namespace {

constexpr int kBeforeOthers = -10;
constexpr int kLowered = -5;
constexpr char kSession[] = "/proc/self/autogroup";

int Own() { return getpriority(PRIO_PROCESS, 0); }

void Change(int from, int to) {
  if (Own() == from) (void)setpriority(PRIO_PROCESS, 0, to);
}

// The file says "/autogroup-4 nice 0", or nothing: in a control group, or where the kernel does not
// group by sessions.
void ChangeSession(int from, int to) {
  if (getsid(0) != getpid()) return;
  std::string name, word;
  int nice = 0;
  if (std::ifstream(kSession) >> name >> word >> nice && nice == from) {
    std::ofstream(kSession) << to;
  }
}

}  // namespace

bool RunBeforeOthers() {
  Change(0, kBeforeOthers);
  if (Own() == kBeforeOthers) ChangeSession(0, kBeforeOthers);
  return Own() < 0;
}
void RunAmongOthers() { Change(kBeforeOthers, 0); }

void LowerSession() { ChangeSession(kBeforeOthers, kLowered); }
void RaiseSession() { ChangeSession(kLowered, kBeforeOthers); }

}  // namespace tailcast
