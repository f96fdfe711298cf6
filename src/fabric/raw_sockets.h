// Sockets of this host, for peers that say anything: of fuzz targets.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tailcast/base/check.h"

namespace tailcast::fabric {

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) { TAILCAST_CHECK(fd >= 0, "no socket"); }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return fd_; }

  void Send(std::string_view bytes) const {
    // The other end may have hung up before the last byte.
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  // Ends our side, and waits until the other end has ended its own. Returns the beginning of what
  // it said last before.
  std::string Finish() const {
    shutdown(fd_, SHUT_WR);
    std::string last;
    std::array<char, 4096> bytes;
    for (ssize_t n; (n = recv(fd_, bytes.data(), bytes.size(), 0)) > 0;) {
      last.assign(bytes.data(), static_cast<size_t>(n));
    }
    return last;
  }

 private:
  const int fd_;
};

inline sockaddr_in Loopback(uint16_t port) {
  return {.sin_family = AF_INET,
          .sin_port = htons(port),
          .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
          .sin_zero = {}};
}
template <typename Address>
bool Connected(const Socket& socket, const Address& address) {
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// Says `bytes` at a tcp door, and returns the beginning of what the server said last.
inline std::string SayAt(uint16_t port, std::string_view bytes) {
  static uint32_t runs = 0;
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Each from another address of this host: a port that was used waits for a minute.
  sockaddr_in from = Loopback(0);
  from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + runs++ % 60'000 * 16);
  TAILCAST_CHECK(bind(socket.get(), reinterpret_cast<sockaddr*>(&from), sizeof from) == 0);
  TAILCAST_CHECK(Connected(socket, Loopback(port)), "the server takes no connection any more");
  socket.Send(bytes);
  return socket.Finish();
}

}  // namespace tailcast::fabric
