#include "tailcast/base/thread_priority.h"

#include <sys/resource.h>

namespace tailcast {
namespace {

constexpr int kBeforeOthers = -10;

void Change(int from, int to) {
  if (getpriority(PRIO_PROCESS, 0) == from) (void)setpriority(PRIO_PROCESS, 0, to);
}

}  // namespace

void RunBeforeOthers() { Change(0, kBeforeOthers); }
void RunAmongOthers() { Change(kBeforeOthers, 0); }

}  // namespace tailcast
