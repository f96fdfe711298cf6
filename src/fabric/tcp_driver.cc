// The tcp driver: a software engine for remote memory access, "tcp:host:port".
#include "tailcast/fabric/driver.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/tcp_door.h"
#include "tailcast/fabric/tcp_endpoint.h"

namespace tailcast::fabric {
namespace {

class Tcp final : public Driver {
 public:
  std::string_view scheme() const override { return "tcp"; }
  std::unique_ptr<Door> MakeDoor(const DoorContext& context) const override {
    if (context.options->tcp_listen.empty()) return nullptr;
    return std::make_unique<TcpDoor>(context);
  }
  Result<std::shared_ptr<ClientSession>> Dial(const DialContext& context,
                                              const Target& target) const override {
    TAILCAST_ASSIGN_OR_RETURN(HostPort where, ParseHostPort(target.where));
    return MakeTcpSession(context, std::move(where), target.incarnation);
  }
  Result<std::shared_ptr<ChannelSession>> DialChannel(const DialContext& context,
                                                      const Target& target) const override {
    TAILCAST_ASSIGN_OR_RETURN(HostPort where, ParseHostPort(target.where));
    return MakeTcpChannelSession(context, std::move(where), target.incarnation);
  }
  bool InSight(const std::string&) const override { return true; }
};

}  // namespace

const Driver& TcpDriver() {
  static const Tcp driver;
  return driver;
}

}  // namespace tailcast::fabric
