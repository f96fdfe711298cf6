// A client's channel while it is being opened, and its engine's end after that. Shared by the
// connector, the channel (both on the loop) and the reactor.
#pragma once

#include <memory>
#include <string>

#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/channel.h"
#include "tailcast/fabric/client_session.h"
#include "tailcast/fabric/net_address.h"

namespace tailcast::fabric {

class ChannelSession : public ClientEnd {
 public:
  // Loop thread, once, after `ready` with Ok.
  virtual std::unique_ptr<Channel> MakeChannel(std::shared_ptr<Reactor> reactor) = 0;
};

std::shared_ptr<ChannelSession> MakeShmChannelSession(ThreadLoop* loop, Reactor* reactor,
                                                      std::string path,
                                                      ExporterIncarnation expected_incarnation);
std::shared_ptr<ChannelSession> MakeTcpChannelSession(ThreadLoop* loop, Reactor* reactor,
                                                      HostPort where,
                                                      ExporterIncarnation expected_incarnation);

}  // namespace tailcast::fabric
