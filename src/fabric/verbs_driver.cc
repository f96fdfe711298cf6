// The verbs driver: RDMA READs and SENDs, "verbs:host:port", where the port is one of tcp.
#include <unistd.h>

#include "tailcast/base/log.h"
#include "tailcast/fabric/driver.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/verbs_channel.h"
#include "tailcast/fabric/verbs_device.h"
#include "tailcast/fabric/verbs_door.h"
#include "tailcast/fabric/verbs_session.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");

class Verbs final : public Driver {
 public:
  std::string_view scheme() const override { return "verbs"; }
  std::unique_ptr<Door> MakeDoor(const DoorContext& context) const override {
    const ExporterOptions& options = *context.options;
    if (options.verbs_host.empty()) return nullptr;
    std::string host = options.verbs_host;
    if (host == kVerbsAuto) {
      const Result<HostPort> tcp = ParseHostPort(options.tcp_listen);
      if (!tcp.ok()) return nullptr;
      host = tcp->host;
      if (const Status found = FindRdmaDevice(host); !found.ok()) {
        kLog.Info(options.name, ": no readers by RDMA: ", found.message());
        return nullptr;
      }
    }
    return std::make_unique<VerbsDoor>(context, host);
  }
  Result<std::shared_ptr<ClientSession>> Dial(const DialContext& context,
                                              const Target& target) const override {
    TAILCAST_ASSIGN_OR_RETURN(HostPort where, ParseHostPort(target.where));
    return std::shared_ptr<ClientSession>(
        std::make_shared<VerbsSession>(context, std::move(where), target.incarnation));
  }
  Result<std::shared_ptr<ChannelSession>> DialChannel(const DialContext& context,
                                                      const Target& target) const override {
    TAILCAST_ASSIGN_OR_RETURN(HostPort where, ParseHostPort(target.where));
    return MakeVerbsChannelSession(context, std::move(where), target.incarnation);
  }
  bool InSight(const std::string&) const override {
    return access(kConnectionManager, R_OK | W_OK) == 0;
  }
};

}  // namespace

const Driver* VerbsDriver() {
  static const Verbs driver;
  return &driver;
}

}  // namespace tailcast::fabric
