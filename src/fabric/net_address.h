// Host and port in text, and as the kernel wants them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"

namespace tailcast::fabric {

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

// "host:port" or "[v6 address]:port". InvalidArgument says what is missing.
Result<HostPort> ParseHostPort(std::string_view text);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  uint16_t port() const;
  std::string ToString() const;
};

// May ask the name service, and so block for seconds, unless the host is a number.
Result<SocketAddress> ResolveForListening(const HostPort& where);
Result<SocketAddress> ResolveForConnecting(const HostPort& where);
// Only if the host is a number; never blocks. NotFound otherwise.
Result<SocketAddress> ResolveNumber(const HostPort& where);

}  // namespace tailcast::fabric
