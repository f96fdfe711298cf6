// What both drivers count of connections, each with its labels.
#pragma once

#include "tailcast/base/metrics.h"

namespace tailcast::fabric {

// `driver`: "shm", "tcp". `side`: "server", "client": who counts.
Counter& BadInput(const char* driver, const char* side);
Counter& SilentPeers(const char* driver, const char* side);
Counter& RefusedConnections(const char* driver);

}  // namespace tailcast::fabric
