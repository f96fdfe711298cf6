// The client's end of a message channel over verbs. It begins as one of tcp, over which the server
// knows whom it lets in and offers its queue pair, and which shows by its end that the server's
// process ended; messages go by SEND.
#pragma once

#include <memory>

#include "tailcast/fabric/channel_session.h"
#include "tailcast/fabric/net_address.h"

namespace tailcast::fabric {

std::shared_ptr<ChannelSession> MakeVerbsChannelSession(const DialContext& context, HostPort where,
                                                        ExporterIncarnation expected_incarnation);

}  // namespace tailcast::fabric
