// The reader's end of the tcp driver. Requests are sent from the loop's thread; answers are
// received by the connector's engine thread, straight into the readers' memory.
#pragma once

#include <memory>

#include "tailcast/fabric/client_session.h"
#include "tailcast/fabric/net_address.h"

namespace tailcast::fabric {

std::shared_ptr<ClientSession> MakeTcpSession(const DialContext& context, HostPort where,
                                              ExporterIncarnation expected_incarnation);

}  // namespace tailcast::fabric
