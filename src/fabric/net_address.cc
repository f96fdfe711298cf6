#include "tailcast/fabric/net_address.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <charconv>
#include <cstring>

namespace tailcast::fabric {
namespace {

Result<SocketAddress> Resolve(const HostPort& where, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(where.port);
  const int rc =
      getaddrinfo(where.host.empty() ? nullptr : where.host.c_str(), port.c_str(), &hints, &found);
  if (rc != 0) {
    return NotFoundError("host \"" + where.host + "\": " + gai_strerror(rc));
  }
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

}  // namespace

Result<HostPort> ParseHostPort(std::string_view text) {
  const auto bad = [&](const char* why) {
    return InvalidArgumentError("\"" + std::string(text) + "\" is no host:port: " + why);
  };
  HostPort result;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t end = text.find("]:");
    if (end == std::string_view::npos) return bad("the ']:' before the port is missing");
    result.host = text.substr(1, end - 1);
    port = text.substr(end + 2);
  } else {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return bad("the port is missing");
    result.host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (result.host.find(':') != std::string::npos) return bad("write [v6 address]:port");
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), result.port);
  if (port.empty() || error != std::errc() || end != port.data() + port.size()) {
    return bad("the port is no number from 0 to 65535");
  }
  return result;
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  if (family() == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return 0;
}

std::string SocketAddress::ToString() const {
  char host[INET6_ADDRSTRLEN] = "?";
  if (family() == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, host,
              sizeof(host));
    return std::string(host) + ":" + std::to_string(port());
  }
  if (family() == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr, host,
              sizeof(host));
  }
  return "[" + std::string(host) + "]:" + std::to_string(port());
}

Result<SocketAddress> ResolveForListening(const HostPort& where) {
  return Resolve(where, AI_PASSIVE);
}
Result<SocketAddress> ResolveForConnecting(const HostPort& where) { return Resolve(where, 0); }
Result<SocketAddress> ResolveNumber(const HostPort& where) {
  return Resolve(where, AI_NUMERICHOST);
}

}  // namespace tailcast::fabric
