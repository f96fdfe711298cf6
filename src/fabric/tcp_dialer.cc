#include "tailcast/fabric/tcp_dialer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace tailcast::fabric {

// The name service may take seconds; its thread outlives us and finds nobody.
struct TcpDialer::ResolveJob {
  std::mutex mutex;
  Reactor* reactor = nullptr;  // guarded; null when nobody waits any more
};

TcpDialer::TcpDialer(Reactor* reactor, HostPort where)
    : reactor_(reactor), where_(std::move(where)) {}

TcpDialer::~TcpDialer() {
  if (resolve_ == nullptr) return;
  std::lock_guard lock(resolve_->mutex);
  resolve_->reactor = nullptr;
}

void TcpDialer::Start(Callback<void(Result<Descriptor>)> done) {
  done_ = std::move(done);
  if (Result<SocketAddress> number = ResolveNumber(where_); number.ok()) {
    Connect(*number);
    return;
  }
  resolve_ = std::make_shared<ResolveJob>();
  resolve_->reactor = reactor_;
  Callback<void(Result<SocketAddress>)> resolved =
      scope_.Bind([this](Result<SocketAddress> address) {
        if (address.ok()) {
          Connect(*address);
        } else {
          Finish(UnavailableError(address.status().message()));
        }
      });
  std::thread([job = resolve_, where = where_, resolved = std::move(resolved)]() mutable {
    Result<SocketAddress> address = ResolveForConnecting(where);
    std::lock_guard lock(job->mutex);
    if (job->reactor != nullptr) job->reactor->Post(std::move(resolved).With(std::move(address)));
  }).detach();
}

void TcpDialer::Stop() {
  scope_.Restart();
  done_ = nullptr;
  if (!fd_.valid()) return;
  reactor_->Remove(fd_.get());
  fd_.Close();
}

void TcpDialer::Connect(const SocketAddress& address) {
  Descriptor fd(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Finish(ErrnoStatus(errno, "make a tcp socket"));
  const int one = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  if (connect(fd.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
    return Finish(UnavailableError("connect to " + name() + ": " + std::strerror(errno)));
  }
  fd_ = std::move(fd);
  if (Status s = reactor_->Add(fd_.get(), EPOLLOUT, this); !s.ok()) Finish(std::move(s));
}

void TcpDialer::OnEvents(uint32_t) {
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  reactor_->Remove(fd_.get());
  Descriptor fd = std::move(fd_);
  if (error != 0) {
    return Finish(UnavailableError("connect to " + name() + ": " + std::strerror(error)));
  }
  Finish(std::move(fd));
}

void TcpDialer::Finish(Result<Descriptor> result) {
  Callback<void(Result<Descriptor>)> done = std::exchange(done_, nullptr);
  if (done) done(std::move(result));
}

void KeepAlive(const Descriptor& fd, Duration timeout) {
  const auto set = [&](int level, int option, int value) {
    setsockopt(fd.get(), level, option, &value, sizeof(value));
  };
  // Two probes in the last two thirds of it.
  const auto seconds = static_cast<int>(std::max<int64_t>(1, (timeout / 3).millis() / 1000));
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, 2);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(timeout.millis()));
}

}  // namespace tailcast::fabric
