// The client's end of a message channel over tcp. The loop sends messages and receives answers, so
// that no other thread is woken for them unless it waits for words, too (base/thread_loop.h); the
// reactor connects, sends what the socket does not take at once, and sees that the other end is
// gone.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/fabric/channel_session.h"
#include "tailcast/fabric/message_window.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/tcp_dialer.h"
#include "tailcast/fabric/tcp_greeter.h"
#include "tailcast/fabric/tcp_wire.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
constexpr size_t kReceiveBytes = 64 << 10;
static_assert(kReceiveBytes >= 2 * (sizeof(TcpFrame) + kAnswerBytesMax));
constexpr Duration kPeerTimeout = Duration::Seconds(6);
// A message of more parts is put together first.
constexpr size_t kPartsMax = 128;

class TcpChannel;

// Its socket is closed with it: the loop may wait for it until its channel has gone.
class TcpChannelSession final : public ChannelSession {
 public:
  TcpChannelSession(const DialContext& context, HostPort where,
                    ExporterIncarnation expected_incarnation)
      : loop_(context.loop),
        reactor_(context.reactor),
        greeter_(context, std::move(where), kHelloMessages, expected_incarnation) {}

  std::unique_ptr<Channel> MakeChannel(std::shared_ptr<Reactor> reactor) override;
  void OnEvents(uint32_t events) override;

 private:
  friend class TcpChannel;
  Status Begin() override;
  void End() override;
  Status Open(TcpGreeting greeting);
  // Loop. What does not go out at once is sent by the reactor.
  void Send(std::span<const iovec> parts, size_t bytes);
  void FlushOut();

  ThreadLoop* const loop_;
  Reactor* const reactor_;
  TcpGreeter greeter_;  // reactor
  bool ended_ = false;  // reactor
  Descriptor fd_;       // set before `ready`

  std::mutex send_mutex_;
  std::string out_;  // guarded by send_mutex_

  TcpChannel* channel_ = nullptr;  // loop thread
};

class TcpChannel final : public Channel {
 public:
  TcpChannel(std::shared_ptr<TcpChannelSession> session, std::shared_ptr<Reactor> reactor)
      : session_(std::move(session)), reactor_(std::move(reactor)) {
    session_->channel_ = this;
    const Status status =
        session_->loop_->WatchDescriptor(fd(), scope_.Bind([this] { Receive(); }));
    if (status.ok()) return;
    kLog.Error("no channel to ", session_->greeter_.name(), ": ", status);
    session_->loop_->Post(scope_.Bind([this] { Break(); }));
  }
  ~TcpChannel() override {
    session_->channel_ = nullptr;
    LetGo();
  }

  bool connected() const override { return !broken_; }
  void SetCallbacks(Callbacks callbacks) override { callbacks_ = std::move(callbacks); }

  bool Send(std::span<const std::string_view> parts, uint64_t token) override {
    const uint32_t bytes = MessageBytes(parts);
    if (broken_ || !window_.HasRoomFor(bytes)) return false;
    window_.Add(token, bytes);
    const TcpFrame frame = MessageFrame(TcpOp::kMessage, sent_++, bytes);
    if (parts.size() <= kPartsMax) {
      SendFrame(frame, parts);
      return true;
    }
    std::string together;
    together.reserve(bytes);
    for (const std::string_view part : parts) together.append(part);
    const std::string_view one = together;
    SendFrame(frame, std::span(&one, 1));
    return true;
  }

  // Takes the answers that have come, and sees whether the connection broke. May destroy this.
  void Receive() {
    if (broken_) return;
    const ssize_t n = recv(fd(), in_.get() + in_used_, kReceiveBytes - in_used_, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return Break();
    in_used_ += static_cast<size_t>(n);
    const Scope::Watcher self = scope_.Watch();
    size_t used = 0;
    while (in_used_ - used >= sizeof(TcpFrame)) {
      const auto frame = TakeFrom<TcpFrame>(in_.get() + used);
      if (frame.op != TcpOp::kMessageAnswer || !MessageFits(frame, kAnswerBytesMax) ||
          frame.argument != answered_) {
        return Distrust("a frame that is no answer");
      }
      if (in_used_ - used - sizeof(frame) < frame.body_bytes) break;
      if (window_.empty()) return Distrust("an answer to nothing");
      const std::string_view answer(in_.get() + used + sizeof(frame), MessageBytes(frame));
      used += sizeof(frame) + frame.body_bytes;
      ++answered_;
      callbacks_.on_answer(window_.Take(), answer);
      if (self.ended()) return;
    }
    std::memmove(in_.get(), in_.get() + used, in_used_ - used);
    in_used_ -= used;
  }
  // The reactor saw that nothing more comes than what is there. May destroy this.
  void OnHangup() {
    const Scope::Watcher self = scope_.Watch();
    while (!self.ended() && !broken_) Receive();
  }

 private:
  int fd() const { return session_->fd_.get(); }

  void Distrust(const char* what) {
    BadInput("tcp", "client").Add();
    kLog.Warn("closing the channel to ", session_->greeter_.name(), ": ", what);
    Break();
  }
  // The other end sees it, and the socket is not waited for any more.
  void LetGo() {
    if (std::exchange(let_go_, true)) return;
    session_->loop_->CancelDescriptor(fd());
    reactor_->Post(session_->scope().Bind([session = session_] { session->Shutdown(); }));
  }
  void Break() {
    LetGo();
    if (std::exchange(broken_, true)) return;
    callbacks_.on_broken();  // may destroy us
  }
  void SendFrame(const TcpFrame& frame, std::span<const std::string_view> parts) {
    static constexpr char kPadding[8] = {};
    iovec all[kPartsMax + 2];
    size_t count = 0;
    size_t bytes = sizeof(frame);
    all[count++] = {const_cast<TcpFrame*>(&frame), sizeof(frame)};
    for (const std::string_view part : parts) {
      all[count++] = {const_cast<char*>(part.data()), part.size()};
      bytes += part.size();
    }
    if (frame.count > 0) all[count++] = {const_cast<char*>(kPadding), frame.count};
    session_->Send(std::span(all, count), bytes + frame.count);
  }

  const std::shared_ptr<TcpChannelSession> session_;
  const std::shared_ptr<Reactor> reactor_;
  MessageWindow window_;
  Callbacks callbacks_;
  const std::unique_ptr<char[]> in_{new char[kReceiveBytes]};
  size_t in_used_ = 0;
  uint64_t sent_ = 0, answered_ = 0;
  bool broken_ = false, let_go_ = false;
  Scope scope_;
};

std::unique_ptr<Channel> TcpChannelSession::MakeChannel(std::shared_ptr<Reactor> reactor) {
  return std::make_unique<TcpChannel>(
      std::static_pointer_cast<TcpChannelSession>(shared_from_this()), std::move(reactor));
}

Status TcpChannelSession::Begin() {
  greeter_.Start(scope().Bind([this](Result<TcpGreeting> greeting) {
    Finish(greeting.ok() ? Open(std::move(greeting).value()) : greeting.status());
  }));
  return OkStatus();
}

Status TcpChannelSession::Open(TcpGreeting greeting) {
  if (greeting.frame.count != 0 || greeting.body.size() != sizeof(TcpWelcome)) {
    BadInput("tcp", "client").Add();
    return UnavailableError(greeter_.server() + " sent a welcome that does not add up");
  }
  KeepAlive(greeting.fd, kPeerTimeout);
  fd_ = std::move(greeting.fd);
  // A hang-up is reported all the same; what comes is taken by the loop.
  return reactor_->Add(fd_.get(), 0, this);
}

void TcpChannelSession::End() {
  greeter_.Stop();
  if (!fd_.valid() || std::exchange(ended_, true)) return;
  reactor_->Remove(fd_.get());
  shutdown(fd_.get(), SHUT_RDWR);
}

void TcpChannelSession::OnEvents(uint32_t events) {
  const auto self = std::static_pointer_cast<TcpChannelSession>(shared_from_this());
  if ((events & EPOLLOUT) != 0) FlushOut();
  if ((events & (EPOLLHUP | EPOLLERR)) == 0) return;
  Shutdown();
  loop_->Post(scope().Bind([self] {
    if (self->channel_ != nullptr) self->channel_->OnHangup();
  }));
}

void TcpChannelSession::Send(std::span<const iovec> parts, size_t bytes) {
  std::lock_guard lock(send_mutex_);
  size_t sent = 0;
  if (out_.empty()) {
    msghdr message{.msg_iov = const_cast<iovec*>(parts.data()), .msg_iovlen = parts.size()};
    const ssize_t n = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) sent = static_cast<size_t>(n);
    // Any error but a full buffer shows where answers are received, too.
    if (sent == bytes || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
    reactor_->Post(
        scope().Bind([self = std::static_pointer_cast<TcpChannelSession>(shared_from_this())] {
          if (!self->ended_) self->reactor_->Modify(self->fd_.get(), EPOLLOUT);
        }));
  }
  for (const iovec& part : parts) {  // bounded by the credits
    const size_t skip = std::min(sent, part.iov_len);
    out_.append(static_cast<const char*>(part.iov_base) + skip, part.iov_len - skip);
    sent -= skip;
  }
}

void TcpChannelSession::FlushOut() {
  std::lock_guard lock(send_mutex_);
  if (!out_.empty()) {
    const ssize_t n = send(fd_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) out_.erase(0, static_cast<size_t>(n));
  }
  if (out_.empty()) reactor_->Modify(fd_.get(), 0);
}

}  // namespace

std::shared_ptr<ChannelSession> MakeTcpChannelSession(const DialContext& context, HostPort where,
                                                      ExporterIncarnation expected_incarnation) {
  return std::make_shared<TcpChannelSession>(context, std::move(where), expected_incarnation);
}

}  // namespace tailcast::fabric
