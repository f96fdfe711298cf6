// A forward proxy (HTTP CONNECT) that makes a connection as slow as a long-distance link: in-order
// delay and bandwidth. `tailcast up` puts one between neighbouring cells, so that a deployment on
// one machine sees the world's distances; readers and writers know nothing of it but an address
// (`via:` of a link in the topology).
#pragma once

#include <memory>
#include <string>

#include "tailcast/base/status.h"
#include "tailcast/link/delay_line.h"

namespace tailcast::link {

class LinkProxy {
 public:
  // Listens at "host:port" (port 0: any); both directions have the same shape. One thread, which
  // sleeps while nothing moves. Connections to hosts other than this one are refused: it is a
  // stand-in for distance, not a way out.
  //   FailedPrecondition: the port is in use. InvalidArgument: not an address.
  static Result<std::unique_ptr<LinkProxy>> Start(const std::string& listen_address,
                                                  LinkShape shape);
  virtual ~LinkProxy() = default;
  // "host:port" with the real port.
  virtual const std::string& address() const = 0;
};

}  // namespace tailcast::link
