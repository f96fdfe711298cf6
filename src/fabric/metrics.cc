#include "tailcast/fabric/metrics.h"

namespace tailcast::fabric {

Counter& BadInput(const char* driver, const char* side) {
  return ProcessMetrics().GetCounter("tailcast_fabric_bad_input_total",
                                     "Connections closed because the other end broke the protocol.",
                                     {{"driver", driver}, {"side", side}});
}

Counter& SilentPeers(const char* driver, const char* side) {
  return ProcessMetrics().GetCounter("tailcast_fabric_silent_peers_total",
                                     "Connections closed because the other end fell silent.",
                                     {{"driver", driver}, {"side", side}});
}

Counter& RefusedConnections(const char* driver) {
  return ProcessMetrics().GetCounter("tailcast_fabric_refused_connections_total",
                                     "Connections that a server refused.", {{"driver", driver}});
}

}  // namespace tailcast::fabric
