#include "tailcast/base/thread_priority.h"

#include <sys/resource.h>

#include "tailcast/base/session_priority.h"

namespace tailcast {
namespace {

constexpr int kBeforeOthers = -10;

int Own() { return getpriority(PRIO_PROCESS, 0); }

void Change(int from, int to) {
  if (Own() == from) (void)setpriority(PRIO_PROCESS, 0, to);
}

}  // namespace

bool RunBeforeOthers() {
  Change(0, kBeforeOthers);
  if (Own() == kBeforeOthers) RaiseOwnSession();
  return Own() < 0;
}
void RunAmongOthers() { Change(kBeforeOthers, 0); }

}  // namespace tailcast
