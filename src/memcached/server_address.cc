#include "tailcast/memcached/server_address.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "tailcast/memcached/connection.h"

namespace tailcast::memcached {
namespace {

constexpr std::string_view kScheme = "memcached:";
constexpr size_t kHostBytesMax = 255;

Result<ServerAddress> ParseOne(std::string_view text) {
  const auto error = [&](const std::string& what) {
    return InvalidArgumentError("'" + std::string(text.substr(0, 100)) + "' " + what +
                                "; write HOST:PORT, [IPv6]:PORT or the path of a unix socket");
  };
  ServerAddress address;
  if (text.starts_with("/")) {
    constexpr size_t kPathBytesMax = 107;  // of sockaddr_un
    if (text.size() > kPathBytesMax) return error("is longer than the path of a socket may be");
    address.host = text;
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return error("has no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with("[") && host.ends_with("]")) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return error("is no address");
  }
  const auto good = [](unsigned char c) {  // nothing that is read as something else
    return c > ' ' && c < 0x7f && c != '[' && c != ']' && c != '/';
  };
  if (host.empty() || host.size() > kHostBytesMax || !std::all_of(host.begin(), host.end(), good)) {
    return error("has no host");
  }
  const auto [end, failure] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (failure != std::errc() || end != port.data() + port.size() || address.port == 0) {
    return error("has no port of 1 to 65535");
  }
  address.host = host;
  return address;
}

}  // namespace

std::string ServerAddress::ToString() const {
  if (port == 0) return host;
  const bool ipv6 = host.find(':') != std::string::npos;
  return (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<std::vector<ServerAddress>> ParseServers(std::string_view text) {
  if (!text.starts_with(kScheme)) {
    return InvalidArgumentError("'" + std::string(text.substr(0, 100)) +
                                "' must be memcached:HOST:PORT,HOST:PORT,...");
  }
  std::vector<ServerAddress> servers;
  std::set<ServerAddress> seen;
  for (std::string_view rest = text.substr(kScheme.size());;) {
    const size_t comma = rest.find(',');
    TAILCAST_ASSIGN_OR_RETURN(ServerAddress address, ParseOne(rest.substr(0, comma)));
    if (!seen.insert(address).second) {
      return InvalidArgumentError("'" + address.ToString() +
                                  "' is there twice; name each memcached server once");
    }
    servers.push_back(std::move(address));
    if (servers.size() > kServersMax) {
      return InvalidArgumentError("more than " + std::to_string(kServersMax) +
                                  " memcached servers; name fewer");
    }
    if (comma == std::string_view::npos) return servers;
    rest.remove_prefix(comma + 1);
  }
}

std::string FormatServers(const std::vector<ServerAddress>& servers) {
  std::string text(kScheme);
  for (const ServerAddress& server : servers) {
    if (text.size() > kScheme.size()) text += ',';
    text += server.ToString();
  }
  return text;
}

Status CheckServers(const std::vector<ServerAddress>& servers, Duration timeout,
                    std::vector<ServerAddress>* silent) {
  std::string why;
  size_t answered = 0;
  if (silent != nullptr) silent->clear();
  for (const ServerAddress& server : servers) {
    Connection connection(server, timeout);
    if (connection.Ping()) {
      ++answered;
      continue;
    }
    why += (why.empty() ? "" : ", ") + server.ToString() + " (" + connection.last_error() + ")";
    if (silent != nullptr) silent->push_back(server);
  }
  if (answered > 0) return OkStatus();
  return UnavailableError("no memcached server answers: " + why +
                          "; start them, or correct their addresses");
}

}  // namespace tailcast::memcached
