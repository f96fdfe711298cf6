// Threads that many others wait for.
#pragma once

namespace tailcast {

// The calling thread runs before those of nice 0 from now on, and so do the threads that it begins,
// as far as the process may (root, CAP_SYS_NICE, RLIMIT_NICE): at nice -10. Else it would have no
// more of a processor than each of the hundreds on its host that wait for what it does, and each of
// its steps would queue behind them. Who was given another priority keeps it. Returns whether it
// runs before others now.
//
// Nice counts among the threads of one session where Linux shares out the processors by sessions:
// so the session that this process leads runs before others, too (session_priority.h). One that
// another process leads is not ours to raise: there, as in a control group, nice counts inside
// (docs/caches.md, "Priority").
bool RunBeforeOthers();

// For a thread that such a one began, and nobody waits for: at nice 0 again. (Who was given the
// very priority that RunBeforeOthers sets loses it, too.)
void RunAmongOthers();

}  // namespace tailcast
