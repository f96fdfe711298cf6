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

Counter& CrowdedOut(const char* driver) {
  return ProcessMetrics().GetCounter(
      "tailcast_fabric_crowded_out_total",
      "Connections closed before their hello because too many others came.", {{"driver", driver}});
}

Counter& RefusedConnections(const char* driver, HelloStatus why) {
  const auto name = [why] {
    switch (why) {
      case HelloStatus::kWelcome:
      case HelloStatus::kProve:
        break;
      case HelloStatus::kVersion:
        return "version";
      case HelloStatus::kGoingAway:
        return "going_away";
      case HelloStatus::kIncarnation:
        return "incarnation";
      case HelloStatus::kTooMany:
        return "too_many";
      case HelloStatus::kNoMessages:
        return "no_messages";
      case HelloStatus::kNeedsKey:
        return "no_key";
      case HelloStatus::kWrongKey:
        return "wrong_key";
      case HelloStatus::kKeyless:
        return "keyless";
    }
    return "other";
  };
  return RefusedConnections(driver, name());
}

Counter& RefusedConnections(const char* driver, const char* why) {
  return ProcessMetrics().GetCounter("tailcast_fabric_refused_connections_total",
                                     "Connections that a server refused, by the reason.",
                                     {{"driver", driver}, {"why", why}});
}

Gauge& LockedBytes(bool shared) {
  return ProcessMetrics().GetGauge(
      "tailcast_fabric_channel_locked_bytes",
      "Memory that a server locks for message channels by RDMA: in buffers that all of them share, "
      "or in those of each.",
      {{"buffers", shared ? "shared" : "own"}});
}

Counter& LowOnBuffers() {
  return ProcessMetrics().GetCounter(
      "tailcast_fabric_channel_buffers_low_total",
      "Times that few of the receive buffers were left that a server's channels by RDMA share.");
}

Gauge& LostBuffers() {
  return ProcessMetrics().GetGauge(
      "tailcast_fabric_channel_buffers_lost",
      "Shared receive buffers that queue pairs took along when they ended.");
}

}  // namespace tailcast::fabric
