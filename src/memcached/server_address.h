// Where memcached servers are, as users write it: "memcached:HOST:PORT,HOST:PORT,...".
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"

namespace tailcast::memcached {

inline constexpr size_t kServersMax = 64;

struct ServerAddress {
  std::string host;   // or the absolute path of a unix socket
  uint16_t port = 0;  // 0: a unix socket
  // "HOST:PORT", "[IPv6]:PORT" or "/path": the server's name on the ring.
  std::string ToString() const;
  auto operator<=>(const ServerAddress&) const = default;
};

// "memcached:" and then 1 to kServersMax different addresses, separated by commas. InvalidArgument
// says which one is wrong and why.
Result<std::vector<ServerAddress>> ParseServers(std::string_view text);
// What ParseServers reads back as these.
std::string FormatServers(const std::vector<ServerAddress>& servers);

// Asks every server for its version, one after the other, waiting `timeout` for each; for tools,
// before they start what will use them. Blocks. Unavailable if none answers: the message names them
// and says why. `silent`: those that did not answer, when some did; null: not wanted.
Status CheckServers(const std::vector<ServerAddress>& servers, Duration timeout,
                    std::vector<ServerAddress>* silent = nullptr);

}  // namespace tailcast::memcached
