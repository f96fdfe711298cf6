#include "tailcast/fabric/tcp_entrance.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/tcp_wire.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
constexpr Duration kAcceptRetry = Duration::Seconds(1);
// A few, so that a flood of guests makes no reader wait.
constexpr int kAcceptsPerTurn = 8;

}  // namespace

class TcpEntrance::Listener final : public Reactor::Handler {
 public:
  explicit Listener(TcpEntrance* entrance) : entrance_(entrance) {}
  void OnEvents(uint32_t) override { entrance_->OnAccept(); }

 private:
  TcpEntrance* const entrance_;
};

// Reads a frame at a time and no byte beyond, so that what follows the handshake is left to the
// connection's next owner.
class TcpEntrance::Guest final : public Reactor::Handler {
 public:
  Guest(TcpEntrance* entrance, Descriptor fd, std::string peer)
      : entrance_(entrance), fd_(std::move(fd)), peer_(std::move(peer)) {
    timer_ =
        entrance_->reactor_->At(entrance_->reactor_->Now() + kHelloTimeout, scope_.Bind([this] {
          timer_ = 0;
          SilentPeers("tcp", "server").Add();
          entrance_->Drop(fd_.get());
        }));
  }
  ~Guest() {
    entrance_->reactor_->Cancel(timer_);
    if (fd_.valid()) Unwatch();
  }

  // Reads what came with the connection. Who says noise and goes, or nothing, is not even watched.
  void Begin() {
    const Scope::Watcher self = scope_.Watch();
    for (int i = 0; i < kReadsBefore; ++i) {
      if (!Receive()) break;
      if (self.ended()) return;
    }
    if (self.ended()) return;
    watched_ = entrance_->reactor_->Add(fd_.get(), EPOLLIN, this).ok();
    if (!watched_) entrance_->Drop(fd_.get());
  }
  void OnEvents(uint32_t) override { Receive(); }

 private:
  // Hellos of other versions may have other sizes; they are told ours.
  static constexpr size_t kBodyMax = 2 * sizeof(Hello);
  static constexpr int kReadsBefore = 3;  // a head, a body, an end

  void Unwatch() {
    if (std::exchange(watched_, false)) entrance_->reactor_->Remove(fd_.get());
  }
  // Afterwards it may be gone. False: there is nothing more now.
  bool Receive() {
    const size_t wanted = Wanted();
    const ssize_t n = recv(fd_.get(), in_.data() + used_, wanted - used_, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
      entrance_->Drop(fd_.get());
      return false;
    }
    used_ += static_cast<size_t>(n);
    if (used_ >= sizeof(TcpFrame)) TakeFrame(TakeFrom<TcpFrame>(in_.data()));
    return true;
  }
  void TakeFrame(const TcpFrame& frame) {
    const TcpOp op = proving_ ? TcpOp::kProof : TcpOp::kHello;
    if (frame.op != op || frame.argument != kTcpMagic || frame.flags != 0 || frame.count != 0 ||
        frame.body_bytes > kBodyMax) {
      return Fail(proving_ ? "no proof of this protocol" : "no hello of this protocol");
    }
    if (used_ < sizeof(frame) + frame.body_bytes) return;
    used_ = 0;
    if (proving_) {
      TakeProof(frame);
    } else {
      TakeHello(frame);
    }
  }

  size_t Wanted() const {
    if (used_ < sizeof(TcpFrame)) return sizeof(TcpFrame);
    return sizeof(TcpFrame) + TakeFrom<TcpFrame>(in_.data()).body_bytes;
  }
  void Fail(const char* why) {
    BadInput("tcp", "server").Add();
    if (const auto rest = entrance_->log_limit_.Admit(entrance_->reactor_->Now())) {
      kLog.Warn(entrance_->name_, ": closing the connection of ", peer_, ": ", why, *rest);
    }
    entrance_->Drop(fd_.get());
  }
  void TakeHello(const TcpFrame& frame) {
    Hello hello{};
    std::memcpy(&hello, in_.data() + sizeof(frame),
                std::min<size_t>(frame.body_bytes, sizeof(hello)));
    if (hello.version == kHelloVersion && frame.body_bytes != sizeof(hello)) {
      return Fail("a hello of the wrong size");
    }
    // Who says noise costs no random bytes.
    handshake_.emplace(entrance_->key_.get(), "tcp", entrance_->incarnation_, RandomBytes());
    const HelloStatus status = handshake_->OnHello(hello);
    if (status != HelloStatus::kProve) return Decide(status);
    proving_ = true;
    const std::string challenge = HandshakeFrame(TcpOp::kChallenge, handshake_->challenge());
    // The first bytes on a new socket: they fit.
    if (send(fd_.get(), challenge.data(), challenge.size(), MSG_DONTWAIT | MSG_NOSIGNAL) !=
        static_cast<ssize_t>(challenge.size())) {
      entrance_->Drop(fd_.get());
    }
  }
  void TakeProof(const TcpFrame& frame) {
    if (frame.body_bytes != sizeof(CellKey::Proof)) return Fail("a proof of the wrong size");
    Decide(handshake_->OnProof(TakeFrom<CellKey::Proof>(in_.data() + sizeof(frame))));
  }
  void Decide(HelloStatus status) {
    TcpEntrance* const entrance = entrance_;
    if (const char* const why = KeyRefusalText(status); why != nullptr) {
      if (const auto rest = entrance->log_limit_.Admit(entrance->reactor_->Now())) {
        kLog.Warn(entrance->name_, ": refusing ", peer_, ": ", why, *rest);
      }
    }
    TcpVisitor visitor{.fd = {}, .peer = std::move(peer_), .flags = handshake_->flags()};
    const int number = fd_.get();
    Unwatch();
    visitor.fd = std::move(fd_);
    entrance->Drop(number);  // and us
    if (status == HelloStatus::kWelcome) {
      entrance->enter_(std::move(visitor));
    } else {
      Refuse(std::move(visitor.fd), status, entrance->incarnation_);
    }
  }

  TcpEntrance* const entrance_;
  Descriptor fd_;
  std::string peer_;
  std::optional<ServerHandshake> handshake_;  // since the hello
  bool proving_ = false;
  bool watched_ = false;
  uint64_t timer_ = 0;
  std::array<char, sizeof(TcpFrame) + kBodyMax> in_{};
  size_t used_ = 0;
  Scope scope_;
};

TcpEntrance::TcpEntrance(Reactor* reactor, SharedCellKey key, ExporterIncarnation incarnation,
                         std::string name, std::function<void(TcpVisitor)> enter)
    : reactor_(reactor),
      key_(std::move(key)),
      incarnation_(incarnation),
      name_(std::move(name)),
      enter_(std::move(enter)),
      listener_(std::make_unique<Listener>(this)) {}

TcpEntrance::~TcpEntrance() { Close(); }

void TcpEntrance::Close() {
  if (!socket_.valid()) return;
  reactor_->Call([this] {
    reactor_->Cancel(retry_timer_);
    reactor_->Remove(socket_.get());
    scope_.End();
    guests_.clear();
  });
  socket_.Close();
}

Result<uint16_t> TcpEntrance::Listen(const HostPort& where) {
  const std::string host_port = where.host + ":" + std::to_string(where.port);
  TAILCAST_ASSIGN_OR_RETURN(const SocketAddress address, ResolveForListening(where));
  Descriptor fd(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "make a tcp socket");
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  // Connections have it from here.
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  if (bind(fd.get(), address.get(), address.length) != 0) {
    if (errno == EADDRINUSE) {
      return AlreadyExistsError("port in use: " + host_port + ": choose another, or 0 for any");
    }
    return ErrnoStatus(errno, "bind " + host_port);
  }
  if (listen(fd.get(), 1024) != 0) return ErrnoStatus(errno, "listen on " + host_port);
  SocketAddress bound;
  bound.length = sizeof(bound.storage);
  if (getsockname(fd.get(), bound.get(), &bound.length) != 0) {
    return ErrnoStatus(errno, "getsockname " + host_port);
  }
  socket_ = std::move(fd);
  address_ = bound.ToString();
  Status added;
  reactor_->Call([&] { added = reactor_->Add(socket_.get(), EPOLLIN, listener_.get()); });
  if (!added.ok()) return added;
  return bound.port();
}

void TcpEntrance::OnAccept() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    SocketAddress peer;
    peer.length = sizeof(peer.storage);
    Descriptor fd(accept4(socket_.get(), peer.get(), &peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
      kLog.Error(name_, ": can't accept on ", address_, " for a second: ", std::strerror(errno),
                 " (raise the limit of open files?)");
      reactor_->Remove(socket_.get());
      retry_timer_ = reactor_->At(reactor_->Now() + kAcceptRetry, scope_.Bind([this] {
        retry_timer_ = 0;
        if (const Status s = reactor_->Add(socket_.get(), EPOLLIN, listener_.get()); !s.ok()) {
          kLog.Error(name_, ": no more readers on ", address_, ": ", s.ToString());
        }
      }));
      return;
    }
    const int number = fd.get();
    const std::string text = peer.ToString();
    auto& guest = guests_[number] = std::make_unique<Guest>(this, std::move(fd), text);
    guest->Begin();
    if (!guests_.contains(number)) continue;  // in, or gone
    if (const auto sent_away = list_.Add(number, text.substr(0, text.rfind(':')))) {
      CrowdedOut("tcp").Add();
      Drop(*sent_away);
    }
  }
}

void TcpEntrance::Drop(int fd) {
  list_.Remove(fd);
  guests_.erase(fd);
}

void TcpEntrance::Refuse(Descriptor fd, HelloStatus status, ExporterIncarnation incarnation) {
  RefusedConnections("tcp", status).Add();
  TcpWelcome welcome{};
  welcome.version = kHelloVersion;
  welcome.status = status;
  welcome.incarnation = incarnation;
  const std::string frame = HandshakeFrame(TcpOp::kWelcome, welcome);
  send(fd.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace tailcast::fabric
