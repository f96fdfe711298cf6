#include "tailcast/fabric/shm_wire.h"

namespace tailcast::fabric {

const char* HelloStatusText(HelloStatus status) {
  switch (status) {
    case HelloStatus::kWelcome:
      return "welcome";
    case HelloStatus::kVersion:
      return "it speaks another version of the protocol";
    case HelloStatus::kGoingAway:
      return "it is going away (its memory was invalidated)";
    case HelloStatus::kIncarnation:
      return "another server than the one asked for listens there";
    case HelloStatus::kTooMany:
      return "it has as many connections as it takes";
  }
  return "it refused for a reason unknown to this version";
}

}  // namespace tailcast::fabric
