// The reader's end of the tcp driver: requests are sent and answers received on the loop's thread,
// straight into the readers' memory.
#pragma once

#include <memory>

#include "tailcast/fabric/client_session.h"
#include "tailcast/fabric/net_address.h"

namespace tailcast::fabric {

std::shared_ptr<ClientSession> MakeTcpSession(const DialContext& context, HostPort where,
                                              ExporterIncarnation expected_incarnation);

}  // namespace tailcast::fabric
