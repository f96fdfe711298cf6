// What the drivers count of connections, each with its labels.
#pragma once

#include "tailcast/base/metrics.h"
#include "tailcast/fabric/handshake.h"

namespace tailcast::fabric {

// `driver`: "shm", "tcp". `side`: "server", "client": who counts.
Counter& BadInput(const char* driver, const char* side);
Counter& SilentPeers(const char* driver, const char* side);
// Guests that were sent away because too many others came (guest_list.h).
Counter& CrowdedOut(const char* driver);
// `why`: "version", "incarnation", "no_key", "wrong_key", ...
Counter& RefusedConnections(const char* driver, HelloStatus why);
Counter& RefusedConnections(const char* driver, const char* why);
// Of message channels by RDMA: memory that is locked at the server's end.
Gauge& LockedBytes(bool shared);
// Times that a device said that few shared receive buffers were left.
Counter& LowOnBuffers();
// Receive buffers that a queue pair took along (verbs_pool_core.h).
Gauge& LostBuffers();

}  // namespace tailcast::fabric
