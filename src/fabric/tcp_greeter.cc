#include "tailcast/fabric/tcp_greeter.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tailcast/fabric/metrics.h"

namespace tailcast::fabric {

TcpGreeter::TcpGreeter(const DialContext& context, HostPort where, uint32_t flags,
                       ExporterIncarnation expected_incarnation)
    : reactor_(context.reactor),
      key_(context.key),
      handshake_(key_.get(), "tcp", flags, expected_incarnation, RandomBytes()),
      dialer_(context.reactor, std::move(where)) {}

void TcpGreeter::Start(Callback<void(Result<TcpGreeting>)> done) {
  done_ = std::move(done);
  dialer_.Start(scope_.Bind([this](Result<Descriptor> fd) { OnDialled(std::move(fd)); }));
}

void TcpGreeter::Stop() {
  done_ = nullptr;
  dialer_.Stop();
  if (!fd_.valid()) return;
  reactor_->Remove(fd_.get());
  fd_.Close();
}

void TcpGreeter::OnDialled(Result<Descriptor> fd) {
  if (!fd.ok()) return Finish(fd.status());
  fd_ = std::move(fd).value();
  Status status = reactor_->Add(fd_.get(), EPOLLIN, this);
  if (status.ok()) status = Send(HandshakeFrame(TcpOp::kHello, handshake_.hello()));
  if (!status.ok()) Finish(std::move(status));
}

// The first bytes on a new socket fit.
Status TcpGreeter::Send(const std::string& frame) {
  if (send(fd_.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
      static_cast<ssize_t>(frame.size())) {
    return OkStatus();
  }
  return UnavailableError(server() + " closed the connection");
}

void TcpGreeter::Finish(Result<TcpGreeting> greeting) {
  Callback<void(Result<TcpGreeting>)> done = std::exchange(done_, nullptr);
  if (fd_.valid()) reactor_->Remove(fd_.get());
  if (greeting.ok()) {
    greeting->fd = std::move(fd_);
  } else {
    fd_.Close();
  }
  if (done) done(std::move(greeting));  // may destroy us
}

Status TcpGreeter::Bad(const std::string& what) const {
  BadInput("tcp", "client").Add();
  return UnavailableError(server() + " sent " + what);
}

void TcpGreeter::OnEvents(uint32_t) {
  size_t wanted = sizeof(TcpFrame);
  if (used_ >= wanted) wanted += TakeFrom<TcpFrame>(in_.data()).body_bytes;
  const ssize_t n = recv(fd_.get(), in_.data() + used_, wanted - used_, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n < 0) {
    return Finish(UnavailableError(server() + ": the connection broke: " + std::strerror(errno)));
  }
  if (n == 0) return Finish(UnavailableError(server() + " closed the connection"));
  used_ += static_cast<size_t>(n);
  if (used_ < sizeof(TcpFrame)) return;
  const auto frame = TakeFrom<TcpFrame>(in_.data());
  if (frame.argument != kTcpMagic || frame.body_bytes % 8 != 0 || frame.body_bytes > kBodyMax) {
    return Finish(Bad("no welcome of this protocol"));
  }
  if (used_ < sizeof(frame) + frame.body_bytes) return;
  used_ = 0;
  const char* const body = in_.data() + sizeof(frame);
  if (frame.op == TcpOp::kChallenge && frame.body_bytes == sizeof(Challenge)) {
    const Result<CellKey::Proof> proof = handshake_.OnChallenge(TakeFrom<Challenge>(body));
    Status status = proof.status().WithContext(server());
    if (status.ok()) status = Send(HandshakeFrame(TcpOp::kProof, *proof));
    if (!status.ok()) Finish(std::move(status));
    return;
  }
  if (frame.op != TcpOp::kWelcome || frame.body_bytes < sizeof(TcpWelcome)) {
    return Finish(Bad("no welcome of this protocol"));
  }
  const auto welcome = TakeFrom<TcpWelcome>(body);
  if (Status status = handshake_.OnReply(welcome.status, welcome.version, welcome.incarnation);
      !status.ok()) {
    return Finish(status.WithContext(server()));
  }
  Finish(TcpGreeting{.fd = {}, .frame = frame, .body = std::string(body, frame.body_bytes)});
}

}  // namespace tailcast::fabric
