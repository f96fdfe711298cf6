// The session that this process leads, where Linux shares the processors out by sessions before it
// looks at nice (kernel.sched_autogroup_enabled). One that another process leads is not ours to
// change, nor is one that somebody else gave a priority. Threads: any.
#pragma once

namespace tailcast {

// It runs before others of nice 0 from now on, all of it, at nice -10, as far as the process may.
// RunBeforeOthers (thread_priority.h) does that. May take a second: without CAP_SYS_ADMIN Linux
// lets one session of the whole host be changed each 100 ms.
void RaiseOwnSession();

// While one of these lives, a session that was raised is at nice -5: a third of the share.
class LessForOwnSession {
 public:
  LessForOwnSession();
  ~LessForOwnSession();
  LessForOwnSession(const LessForOwnSession&) = delete;
  LessForOwnSession& operator=(const LessForOwnSession&) = delete;
};

// Once more what LessForOwnSession could not change, if somebody had changed another session in the
// 100 ms before. Costs nothing if there is nothing to do.
void SettleOwnSession();

}  // namespace tailcast
