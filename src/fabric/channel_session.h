// A client's channel while it is being opened, and its engine's end after that. Shared by the
// connector, the channel (both on the loop) and the reactor.
#pragma once

#include <memory>

#include "tailcast/fabric/channel.h"
#include "tailcast/fabric/client_session.h"
#include "tailcast/fabric/net_address.h"

namespace tailcast::fabric {

class ChannelSession : public ClientEnd {
 public:
  // Loop thread, once, after `ready` with Ok.
  virtual std::unique_ptr<Channel> MakeChannel(std::shared_ptr<Reactor> reactor) = 0;
};

std::shared_ptr<ChannelSession> MakeShmChannelSession(const DialContext& context,
                                                      const Target& target);
std::shared_ptr<ChannelSession> MakeTcpChannelSession(const DialContext& context, HostPort where,
                                                      ExporterIncarnation expected_incarnation);

}  // namespace tailcast::fabric
