// The reader's end of the shm driver: a read is a bounds check, a copy out of the mapped region and
// a look at its generation.
#pragma once

#include <memory>
#include <string>

#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/client_session.h"

namespace tailcast::fabric {

std::shared_ptr<ClientSession> MakeShmSession(ThreadLoop* loop, Reactor* reactor, std::string path,
                                              ExporterIncarnation expected_incarnation);

}  // namespace tailcast::fabric
