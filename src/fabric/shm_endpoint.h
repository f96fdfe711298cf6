// The reader's end of the shm driver: a read is a bounds check, a copy out of the mapped region and
// a look at its generation.
#pragma once

#include <memory>

#include "tailcast/fabric/client_session.h"

namespace tailcast::fabric {

std::shared_ptr<ClientSession> MakeShmSession(const DialContext& context, const Target& target);

}  // namespace tailcast::fabric
