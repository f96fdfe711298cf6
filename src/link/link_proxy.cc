#include "tailcast/link/link_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <thread>

#include "tailcast/base/log.h"

namespace tailcast::link {
namespace {

const Logger kLog("link");
constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kRequestBytesMax = 8 << 10;

std::optional<sockaddr_in> ParseAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string host(text.substr(0, colon));
  if (host == "localhost") host = "127.0.0.1";
  int port = 0;
  for (char c : text.substr(colon + 1)) {
    if (c < '0' || c > '9' || port > 65535) return std::nullopt;
    port = port * 10 + (c - '0');
  }
  if (port > 65535 || colon + 1 == text.size()) return std::nullopt;
  sockaddr_in addr{};
  addr.sin_family = AF_INET;
  addr.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &addr.sin_addr) != 1) return std::nullopt;
  return addr;
}

bool IsLoopback(const sockaddr_in& addr) { return (ntohl(addr.sin_addr.s_addr) >> 24) == 127; }

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// One proxied connection: the client that asked, the target, and the bytes between them.
struct Tunnel {
  Tunnel(LinkDirection& up, LinkDirection& down) : to_target(up), to_client(down) {}
  Fd client, target;
  DelayLine to_target, to_client;
  std::string request;  // until the CONNECT line is complete
  bool established = false;
  bool client_ended = false;  // no more bytes from the client
  bool target_ended = false;
  bool target_shut = false;  // the end was passed on
  bool client_shut = false;
  bool broken = false;
  uint32_t client_events = 0, target_events = 0;  // as registered with epoll
  bool client_writable = true, target_writable = true;
};

class EpollProxy final : public LinkProxy {
 public:
  EpollProxy(Fd listener, std::string address, LinkShape shape)
      : listener_(std::move(listener)),
        address_(std::move(address)),
        up_(shape),
        down_(shape),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    Register(listener_.get(), EPOLLIN);
    Register(stop_.get(), EPOLLIN);
    thread_ = std::thread([this] { Run(); });
  }
  ~EpollProxy() override {
    const uint64_t one = 1;
    TAILCAST_CHECK(write(stop_.get(), &one, sizeof one) == sizeof one);
    thread_.join();
  }
  const std::string& address() const override { return address_; }

 private:
  void Register(int fd, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    TAILCAST_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
  }
  void Change(int fd, uint32_t events, uint32_t& registered) {
    if (fd < 0 || events == registered) return;
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    TAILCAST_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0);
    registered = events;
  }

  void Run() {
    epoll_event events[64];
    for (;;) {
      MonotonicTime now = ReadMonotonicClock();
      MonotonicTime next = MonotonicTime::Max();
      for (Tunnel* t : tunnels_) {
        if (t->target_writable) next = std::min(next, t->to_target.NextArrival());
        if (t->client_writable) next = std::min(next, t->to_client.NextArrival());
      }
      timespec timeout{};
      timespec* wait = nullptr;
      if (next != MonotonicTime::Max()) {
        const int64_t us = std::max<int64_t>(0, (next - now).micros());
        timeout = {us / 1000000, (us % 1000000) * 1000};
        wait = &timeout;
      }
      const int n = epoll_pwait2(epoll_.get(), events, 64, wait, nullptr);
      now = ReadMonotonicClock();
      for (int i = 0; i < n; ++i) {
        const int fd = events[i].data.fd;
        if (fd == stop_.get()) return CloseAll();
        if (fd == listener_.get()) {
          Accept();
        } else if (auto it = by_fd_.find(fd); it != by_fd_.end()) {
          OnEvent(*it->second, fd, events[i].events, now);
        }
      }
      for (auto it = tunnels_.begin(); it != tunnels_.end();) {
        Tunnel* t = *it;
        Pass(*t, now);
        if (Finished(*t)) {
          by_fd_.erase(t->client.get());
          by_fd_.erase(t->target.get());
          it = tunnels_.erase(it);
          delete t;
        } else {
          Update(*t);
          ++it;
        }
      }
    }
  }

  void CloseAll() {
    for (Tunnel* t : tunnels_) delete t;
    tunnels_.clear();
  }

  void Accept() {
    for (;;) {
      Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (fd.get() < 0) return;
      const int on = 1;
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      auto* t = new Tunnel(up_, down_);
      t->client_events = EPOLLIN;
      Register(fd.get(), EPOLLIN);
      by_fd_[fd.get()] = t;
      t->client = std::move(fd);
      tunnels_.insert(t);
    }
  }

  void OnEvent(Tunnel& t, int fd, uint32_t events, MonotonicTime now) {
    const bool from_client = fd == t.client.get();
    if (events & EPOLLOUT) (from_client ? t.client_writable : t.target_writable) = true;
    if (events & EPOLLERR) t.broken = true;
    if ((events & (EPOLLIN | EPOLLHUP)) == 0) return;
    if (from_client && !t.established) return ReadRequest(t, now);
    DelayLine& line = from_client ? t.to_target : t.to_client;
    bool& ended = from_client ? t.client_ended : t.target_ended;
    while (!line.full() && !ended) {
      std::string bytes(kReadBytes, '\0');
      const ssize_t got = recv(fd, bytes.data(), bytes.size(), 0);
      if (got > 0) {
        bytes.resize(static_cast<size_t>(got));
        bytes.shrink_to_fit();
        line.Push(now, std::move(bytes));
      } else if (got == 0) {
        ended = true;
      } else if (errno == EAGAIN || errno == EINTR) {
        return;
      } else {
        t.broken = true;
        return;
      }
    }
  }

  // "CONNECT host:port HTTP/1.1", headers, an empty line. Nothing may follow before our answer.
  void ReadRequest(Tunnel& t, MonotonicTime now) {
    char bytes[4096];
    const ssize_t got = recv(t.client.get(), bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      t.broken = true;
      return;
    }
    t.request.append(bytes, static_cast<size_t>(got));
    const size_t end = t.request.find("\r\n\r\n");
    if (end == std::string::npos) {
      if (t.request.size() > kRequestBytesMax) t.broken = true;
      return;
    }
    std::string_view line = std::string_view(t.request).substr(0, t.request.find("\r\n"));
    constexpr std::string_view kVerb = "CONNECT ";
    if (!line.starts_with(kVerb) || line.find(' ', kVerb.size()) == std::string_view::npos) {
      return Refuse(t, now, "400 Bad Request");
    }
    line.remove_prefix(kVerb.size());
    const std::string_view name = line.substr(0, line.find(' '));
    const auto address = ParseAddress(name);
    if (!address || !IsLoopback(*address)) {
      kLog.Warn("refused to connect to ", name, ": not an address of this host");
      return Refuse(t, now, "403 Forbidden");
    }
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 &&
        errno != EINPROGRESS) {
      return Refuse(t, now, "502 Bad Gateway");
    }
    t.established = true;
    t.target_events = EPOLLIN;
    t.target_writable = false;  // until connected
    Register(fd.get(), EPOLLIN | EPOLLOUT);
    t.target_events = EPOLLIN | EPOLLOUT;
    by_fd_[fd.get()] = &t;
    t.target = std::move(fd);
    // The handshake of a real connection takes a round trip before the first byte.
    t.to_client.Push(now + down_.shape().delay, "HTTP/1.1 200 Connection established\r\n\r\n");
    if (end + 4 < t.request.size()) t.to_target.Push(now, t.request.substr(end + 4));
    t.request.clear();
  }

  void Refuse(Tunnel& t, MonotonicTime now, std::string_view status) {
    t.established = true;
    t.client_ended = t.target_ended = t.target_shut = true;
    t.to_client.Push(now, "HTTP/1.1 " + std::string(status) + "\r\nContent-Length: 0\r\n\r\n");
  }

  void PassOn(DelayLine& line, int fd, bool& writable, bool ended, bool& shut, Tunnel& t,
              MonotonicTime now) {
    if (fd < 0) return;
    while (writable) {
      const std::string_view bytes = line.Front(now);
      if (bytes.empty()) break;
      const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        line.Pop(static_cast<size_t>(sent));
      } else if (errno == EAGAIN) {
        writable = false;
      } else if (errno != EINTR) {
        t.broken = true;
        return;
      }
    }
    if (ended && !shut && line.empty()) {
      shut = true;
      shutdown(fd, SHUT_WR);
    }
  }
  void Pass(Tunnel& t, MonotonicTime now) {
    if (t.broken) return;
    PassOn(t.to_target, t.target.get(), t.target_writable, t.client_ended, t.target_shut, t, now);
    PassOn(t.to_client, t.client.get(), t.client_writable, t.target_ended, t.client_shut, t, now);
  }
  static bool Finished(const Tunnel& t) { return t.broken || (t.target_shut && t.client_shut); }
  void Update(Tunnel& t) {
    const bool read_client = !t.client_ended && !t.to_target.full();
    const bool read_target = !t.target_ended && !t.to_client.full();
    Change(t.client.get(), (read_client ? EPOLLIN : 0u) | (t.client_writable ? 0u : EPOLLOUT),
           t.client_events);
    Change(t.target.get(), (read_target ? EPOLLIN : 0u) | (t.target_writable ? 0u : EPOLLOUT),
           t.target_events);
  }

  const Fd listener_;
  const std::string address_;
  LinkDirection up_, down_;
  const Fd epoll_, stop_;
  std::set<Tunnel*> tunnels_;
  std::map<int, Tunnel*> by_fd_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<LinkProxy>> LinkProxy::Start(const std::string& listen_address,
                                                    LinkShape shape) {
  const auto parsed = ParseAddress(listen_address);
  if (!parsed) {
    return InvalidArgumentError("listen address '" + listen_address +
                                "' is not IPV4:PORT, e.g. 127.0.0.1:0");
  }
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&*parsed), sizeof *parsed) != 0 ||
      listen(fd.get(), 128) != 0) {
    return ErrnoStatus(errno, "listen at " + listen_address);
  }
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  char host[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &bound.sin_addr, host, sizeof host);
  return std::unique_ptr<LinkProxy>(std::make_unique<EpollProxy>(
      std::move(fd), std::string(host) + ":" + std::to_string(ntohs(bound.sin_port)), shape));
}

}  // namespace tailcast::link
