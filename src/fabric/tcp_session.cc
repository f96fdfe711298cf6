#include "tailcast/fabric/tcp_session.h"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/fabric/metrics.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
constexpr uint32_t kReadsMaxOfPeer = 1 << 16;

}  // namespace

void TcpSession::Start(Callback<void(Status)> ready) {
  ready_ = std::move(ready);
  if (Result<SocketAddress> number = ResolveNumber(where_); number.ok()) {
    Connect(*number);
    return;
  }
  resolve_ = std::make_shared<ResolveJob>();
  resolve_->reactor = reactor_;
  Callback<void(Result<SocketAddress>)> resolved =
      scope().Bind([this](Result<SocketAddress> address) {
        if (state_ != State::kResolving) return;
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

void TcpSession::StopResolving() {
  if (resolve_ == nullptr) return;
  std::lock_guard lock(resolve_->mutex);
  resolve_->reactor = nullptr;
}

void TcpSession::Connect(const SocketAddress& address) {
  fd_ = Descriptor(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_.valid()) {
    Finish(ErrnoStatus(errno, "make a tcp socket"));
    return;
  }
  const int one = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  if (connect(fd_.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
    Finish(UnavailableError("connect to " + name() + ": " + std::strerror(errno)));
    return;
  }
  state_ = State::kConnecting;
  if (Status s = reactor_->Add(fd_.get(), EPOLLOUT, this); !s.ok()) Finish(std::move(s));
}

void TcpSession::SayHello() {
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) {
    Finish(UnavailableError("connect to " + name() + ": " + std::strerror(error)));
    return;
  }
  state_ = State::kHello;
  heard_ = reactor_->Now();
  reactor_->Modify(fd_.get(), EPOLLIN);
  std::string hello;
  AppendTo(hello, TcpFrame{.body_bytes = sizeof(TcpHello),
                           .op = TcpOp::kHello,
                           .flags = 0,
                           .count = 0,
                           .argument = kTcpMagic});
  AppendTo(hello, TcpHello{.version = kTcpVersion,
                           .flags = 0,
                           .expected_incarnation = expected_incarnation_,
                           .credential_bytes = 0,
                           .reserved = 0});
  Send(hello);
}

Status TcpSession::TakeWelcome(const TcpFrame& frame, const char* body) {
  const auto bad = [&](const std::string& what) {
    BadInput("tcp", "client").Add();
    return UnavailableError("the server at " + name() + " sent " + what);
  };
  if (frame.op != TcpOp::kWelcome || frame.argument != kTcpMagic ||
      (frame.flags & ~kTcpFlagScans) != 0 || frame.body_bytes < sizeof(TcpWelcome)) {
    return bad("no welcome of this protocol");
  }
  const auto welcome = TakeFrom<TcpWelcome>(body);
  if (welcome.status != HelloStatus::kWelcome) {
    return UnavailableError("the server at " + name() +
                            " refused: " + HelloStatusText(welcome.status));
  }
  if (welcome.version != kTcpVersion) {
    return bad("a welcome of version " + std::to_string(welcome.version));
  }
  if (frame.count == 0 || frame.count > kRegionsMax ||
      frame.body_bytes != sizeof(TcpWelcome) + frame.count * sizeof(TcpRegion) ||
      welcome.reads_max == 0 || welcome.reads_max > kReadsMaxOfPeer ||
      welcome.peer_timeout_us < 1000 || welcome.peer_timeout_us > 3'600'000'000) {
    return bad("a welcome that does not add up");
  }
  for (uint16_t i = 0; i < frame.count; ++i) {
    const auto region = TakeFrom<TcpRegion>(body + sizeof(TcpWelcome) + i * sizeof(TcpRegion));
    if (region.generation == Generation::kNone) return bad("a region that nobody may read");
    infos_.push_back({region.size, region.generation});
  }
  scans_ = (frame.flags & kTcpFlagScans) != 0;
  slots_.resize(welcome.reads_max);
  peer_timeout_ = Duration::Micros(static_cast<int64_t>(welcome.peer_timeout_us));
  state_ = State::kOpen;
  tick_timer_ =
      reactor_->At(reactor_->Now() + peer_timeout_ / 4, scope().Bind([this] { OnTick(); }));
  return OkStatus();
}

void TcpSession::Finish(Status status) {
  Callback<void(Status)> ready = std::exchange(ready_, nullptr);
  if (!status.ok()) Shutdown();
  if (ready) ready(std::move(status));
}

void TcpSession::Shutdown() {
  ready_ = nullptr;
  state_ = State::kClosed;
  StopResolving();
  reactor_->Cancel(tick_timer_);
  tick_timer_ = 0;
  if (!fd_.valid()) return;
  reactor_->Remove(fd_.get());
  std::lock_guard lock(send_mutex_);
  fd_.Close();
}

void TcpSession::Die(const std::string& why) {
  if (state_ != State::kOpen) {
    Finish(UnavailableError("the server at " + name() + ": " + why));
    return;
  }
  Shutdown();
  dead_.store(true, std::memory_order_release);
  Notice();
}

void TcpSession::OnTick() {
  tick_timer_ = 0;
  if (reactor_->Now() - heard_ > peer_timeout_) {
    SilentPeers("tcp", "client").Add();
    kLog.Info("server ", name(), " fell silent; hanging up");
    Die("fell silent");
    return;
  }
  std::string ping;
  AppendTo(ping,
           TcpFrame{.body_bytes = 0, .op = TcpOp::kPing, .flags = 0, .count = 0, .argument = 0});
  Send(ping);
  tick_timer_ =
      reactor_->At(reactor_->Now() + peer_timeout_ / 4, scope().Bind([this] { OnTick(); }));
}

void TcpSession::Send(const std::string& bytes) {
  std::lock_guard lock(send_mutex_);
  if (!fd_.valid()) return;  // everything outstanding fails by the notice of that
  size_t sent = 0;
  if (out_.empty()) {
    const ssize_t n = send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    // Any error but a full buffer shows in the engine, too.
    if (n > 0) sent = static_cast<size_t>(n);
    if (sent == bytes.size() || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
    reactor_->Post(scope().Bind([self = std::static_pointer_cast<TcpSession>(shared_from_this())] {
      if (self->fd_.valid()) self->reactor_->Modify(self->fd_.get(), EPOLLIN | EPOLLOUT);
    }));
  }
  // Bounded by the server's credits: reads and watches outstanding.
  out_.append(bytes, sent);
}

void TcpSession::FlushOut() {
  std::lock_guard lock(send_mutex_);
  if (!out_.empty()) {
    const ssize_t n = send(fd_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) out_.erase(0, static_cast<size_t>(n));
  }
  if (out_.empty()) reactor_->Modify(fd_.get(), EPOLLIN);
}

void TcpSession::OnEvents(uint32_t events) {
  auto self = shared_from_this();  // dying may let go of us
  if (state_ == State::kConnecting) {
    SayHello();
    return;
  }
  if ((events & EPOLLOUT) != 0) FlushOut();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  const std::string wrong = Receive();
  if (state_ == State::kClosed) return;
  // Reads may wait for the credit, also when nobody waits for an answer.
  bool news = std::exchange(freed_abandoned_, false) || !fresh_.empty();
  {
    std::lock_guard lock(done_mutex_);
    completions_.insert(completions_.end(), fresh_.begin(), fresh_.end());
    news |= !notifications_.empty();
  }
  fresh_.clear();
  if (!wrong.empty()) {
    Die(wrong);
  } else if (news) {
    Notice();
  }
}

}  // namespace tailcast::fabric
