#include "tailcast/fabric/tcp_message_door.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/fabric/message_window.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/tcp_dialer.h"
#include "tailcast/fabric/tcp_wire.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
constexpr size_t kReceiveBytes = 256 << 10;
// Answers that a client with its credits may leave untaken; the credits return when a message was
// handled, whether its answer has left or not.
constexpr size_t kAnswersMax = kMessageWindow * (sizeof(TcpFrame) + kAnswerBytesMax + 8);
static_assert(kReceiveBytes >= sizeof(TcpFrame) + kMessageBytesMax &&
              kReceiveBytes <= kMessageWindowBytes);

}  // namespace

// Shared by the loop, which receives, handles and answers, and the reactor, which does the rest. A
// task on either side keeps it; its socket is closed with it, when both have let go.
class TcpMessageDoor::Connection final : public Reactor::Handler,
                                         public std::enable_shared_from_this<Connection> {
 public:
  Connection(TcpMessageDoor* door, Descriptor fd, std::string peer, MessageService::Life life)
      : door_(door), peer_(std::move(peer)), life_(life), fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  const std::string& peer() const { return peer_; }
  // Reactor.
  bool by_verbs() const { return verbs_ticket_ != 0; }
  uint32_t WantedEvents() const { return by_verbs() ? uint32_t{EPOLLRDHUP} : 0u; }
  // Since when a message has begun and not ended, or, by RDMA, an answer is not taken; Max:
  // neither. Reactor.
  MonotonicTime stuck_since() const {
    return by_verbs() ? door_->verbs_->StuckSince(verbs_ticket_)
                      : begun_.load(std::memory_order_relaxed);
  }
  // Either thread. What does not go out at once is sent by the reactor.
  void Send(std::string_view bytes);
  // Reactor. The other end sees it now.
  void Close();
  // Reactor.
  void OnEvents(uint32_t events) override;
  // Loop: waits for messages; and does so no more.
  void Attend();
  void Leave();
  // Loop: if a message began before `limit` and has still not ended.
  void HangUpIfStuck(MonotonicTime limit);

 private:
  // Loop.
  void OnReadable();
  // "" or what was wrong.
  std::string Receive();
  std::string HandleMessages();
  // Either thread: the reactor hangs up; `why`: "": not for bad input.
  void HangUp(std::string why);
  // Reactor.
  void AnswerVerbsAsk();
  void Fail(const std::string& why, const char* driver = "tcp");
  void FlushOut();

  TcpMessageDoor* const door_;
  const std::string peer_;
  const MessageService::Life life_;
  const Descriptor fd_;
  std::atomic<bool> closed_{false};

  // Loop.
  const std::unique_ptr<char[]> in_{new char[kReceiveBytes]};
  size_t in_used_ = 0;
  bool begins_ = true;       // nothing has come yet
  bool asks_verbs_ = false;  // it has asked: nothing more is to come
  uint64_t handled_ = 0;
  std::string answer_, answers_;

  std::atomic<MonotonicTime> begun_{MonotonicTime::Max()};  // written by the loop

  // Reactor.
  uint64_t verbs_ticket_ = 0;  // of its queue pair, see VerbsChannelOffers
  Scope scope_;

  std::mutex send_mutex_;
  std::string out_;  // guarded by send_mutex_
};

void TcpMessageDoor::Connection::Close() {
  if (verbs_ticket_ != 0) door_->verbs_->Forget(verbs_ticket_);
  door_->reactor_.Remove(fd_.get());
  closed_.store(true, std::memory_order_release);
  shutdown(fd_.get(), SHUT_RDWR);
  door_->service_->loop()->Post(
      door_->loop_scope_.Bind([self = shared_from_this()] { self->Leave(); }));
}

// A hang-up, or room for what is to be sent; what comes is taken by the loop. By RDMA nothing more
// comes, and the end of the connection is that of the channel.
void TcpMessageDoor::Connection::OnEvents(uint32_t events) {
  const auto self = shared_from_this();  // dropping lets go of us
  if ((events & EPOLLOUT) != 0) FlushOut();
  if ((events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) != 0) door_->Drop(fd_.get());
}

void TcpMessageDoor::Connection::Attend() {
  if (closed_.load(std::memory_order_acquire)) return;
  const Status status = door_->service_->loop()->WatchDescriptor(
      fd_.get(), door_->loop_scope_.Bind([this] { OnReadable(); }));
  if (!status.ok()) {
    kLog.Error(door_->name_, ": no channel for ", peer_, ": ", status);
    return HangUp("");
  }
  door_->attended_.insert(shared_from_this());
}

void TcpMessageDoor::Connection::Leave() {
  const auto self = shared_from_this();
  if (door_->attended_.erase(self) > 0) door_->service_->loop()->CancelDescriptor(fd_.get());
}

void TcpMessageDoor::Connection::OnReadable() {
  const auto self = shared_from_this();
  std::string wrong = Receive();
  if (wrong.empty()) return;
  Leave();
  HangUp(std::move(wrong));
}

void TcpMessageDoor::Connection::HangUpIfStuck(MonotonicTime limit) {
  if (closed_) return;
  const auto self = shared_from_this();
  OnReadable();  // it may be this loop that was late
  if (!door_->attended_.contains(self)) return;
  if (begun_.load(std::memory_order_relaxed) >= limit) return;
  door_->SayStuck(peer_);
  HangUp("");
}

void TcpMessageDoor::Connection::HangUp(std::string why) {
  door_->reactor_.Post(door_->scope_.Bind([self = shared_from_this(), why = std::move(why)] {
    if (self->closed_) return;
    if (!why.empty()) return self->Fail(why);
    self->door_->Drop(self->fd_.get());
  }));
}

void TcpMessageDoor::Connection::Fail(const std::string& why, const char* driver) {
  BadInput(driver, "server").Add();
  kLog.Warn(door_->name_, ": closing the channel of ", peer_, ": ", why);
  door_->Drop(fd_.get());
}

std::string TcpMessageDoor::Connection::Receive() {
  const ssize_t n = recv(fd_.get(), in_.get() + in_used_, kReceiveBytes - in_used_, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return "";
  if (n <= 0) {
    Leave();  // it would say so again and again
    HangUp("");
    return "";
  }
  in_used_ += static_cast<size_t>(n);
  if (asks_verbs_) return "it says something beside its queue pair";
  if (begins_ && in_used_ == sizeof(TcpFrame)) {
    const auto frame = TakeFrom<TcpFrame>(in_.get());
    if (frame.op == TcpOp::kVerbsAsk && frame.body_bytes == 0 && frame.flags == 0 &&
        frame.count == 0 && frame.argument == 0) {
      begins_ = false;
      asks_verbs_ = true;
      in_used_ = 0;
      door_->reactor_.Post(door_->scope_.Bind([self = shared_from_this()] {
        if (!self->closed_) self->AnswerVerbsAsk();
      }));
      return "";
    }
  }
  return HandleMessages();
}

// All that came whole, then the answers: they return the credits, so of what came more can't be
// unanswered than there are.
std::string TcpMessageDoor::Connection::HandleMessages() {
  size_t at = 0;
  uint64_t messages = 0;
  std::string wrong;
  answers_.clear();
  while (in_used_ - at >= sizeof(TcpFrame)) {
    const auto frame = TakeFrom<TcpFrame>(in_.get() + at);
    if (frame.op != TcpOp::kMessage || !MessageFits(frame, kMessageBytesMax) ||
        MessageBytes(frame) == 0) {
      wrong = "a frame that is no message";
      break;
    }
    if (in_used_ - at - sizeof(frame) < frame.body_bytes) break;
    if (++messages > kMessageWindow) {
      wrong = "more messages than it has credits for";
      break;
    }
    if (frame.argument != handled_) {
      wrong = "a message out of turn";
      break;
    }
    const std::string_view message(in_.get() + at + sizeof(frame), MessageBytes(frame));
    at += sizeof(frame) + frame.body_bytes;
    answer_.clear();
    // The gate is closed: the connection goes, too.
    if (!door_->service_->Handle(life_, message, answer_)) {
      Leave();
      HangUp("");
      return "";
    }
    AppendMessage(answers_, TcpOp::kMessageAnswer, handled_++, answer_);
  }
  if (at > 0) {
    begins_ = false;
    in_used_ -= at;
    std::memmove(in_.get(), in_.get() + at, in_used_);
  }
  const MonotonicTime begun = begun_.load(std::memory_order_relaxed);
  if (in_used_ == 0) {
    if (begun != MonotonicTime::Max())
      begun_.store(MonotonicTime::Max(), std::memory_order_relaxed);
  } else if (messages > 0 || begun == MonotonicTime::Max()) {
    begun_.store(door_->service_->loop()->Now(), std::memory_order_relaxed);
  }
  Send(answers_);
  return wrong;
}

void TcpMessageDoor::Connection::AnswerVerbsAsk() {
  const VerbsOffers::Made made =
      door_->verbs_ == nullptr
          ? VerbsChannelOffers::None("it has no RDMA door")
          : door_->verbs_->Offer(life_, scope_.Bind([this](const std::string& why) {
              if (closed_) return;
              if (!why.empty()) return Fail(why, "verbs");
              door_->Drop(fd_.get());
            }));
  verbs_ticket_ = made.ticket;
  door_->reactor_.Modify(fd_.get(), WantedEvents());
  std::string answer;
  AppendTo(answer, TcpFrame{.body_bytes = static_cast<uint32_t>(made.body.size()),
                            .op = TcpOp::kVerbsOffer,
                            .flags = 0,
                            .count = static_cast<uint16_t>(made.regions),
                            .argument = 0});
  Send(answer + made.body);
}

void TcpMessageDoor::Connection::Send(std::string_view bytes) {
  std::lock_guard lock(send_mutex_);
  if (bytes.empty()) return;
  size_t sent = 0;
  if (out_.empty()) {
    const ssize_t n = send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) sent = static_cast<size_t>(n);
    // Any error but a full buffer shows where it is received or in the reactor, too.
    if (sent == bytes.size() || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
    door_->reactor_.Post(door_->scope_.Bind([self = shared_from_this()] {
      if (self->closed_) return;
      self->door_->reactor_.Modify(self->fd_.get(), EPOLLOUT | self->WantedEvents());
    }));
  }
  if (out_.size() + bytes.size() - sent > 2 * kAnswersMax) {
    return HangUp("it does not take its answers");
  }
  out_.append(bytes.substr(sent));
}

void TcpMessageDoor::Connection::FlushOut() {
  std::lock_guard lock(send_mutex_);
  if (!out_.empty()) {
    const ssize_t n = send(fd_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) out_.erase(0, static_cast<size_t>(n));
  }
  if (out_.empty()) door_->reactor_.Modify(fd_.get(), WantedEvents());
}

TcpMessageDoor::TcpMessageDoor(MessageService* service, std::string name, Duration peer_timeout)
    : service_(service),
      name_(std::move(name)),
      peer_timeout_(peer_timeout),
      reactor_("fabric-writes") {}

TcpMessageDoor::~TcpMessageDoor() {
  reactor_.Call([this] {
    reactor_.Cancel(tick_timer_);
    scope_.End();
    while (!connections_.empty()) Drop(connections_.begin()->first);
  });
  loop_scope_.End();
  while (!attended_.empty()) (*attended_.begin())->Leave();
}

void TcpMessageDoor::Adopt(Descriptor fd, std::string peer, MessageService::Life life,
                           std::string welcome) {
  KeepAlive(fd, peer_timeout_);
  auto connection = std::make_shared<Connection>(this, std::move(fd), std::move(peer), life);
  channels_.fetch_add(1, std::memory_order_relaxed);
  reactor_.Post(scope_.Bind([this, connection, life, welcome = std::move(welcome)] {
    // Invalidated meanwhile: the client finds a closed connection.
    if (service_->life() != life || !reactor_.Add(connection->fd(), 0, connection.get()).ok()) {
      channels_.fetch_sub(1, std::memory_order_relaxed);
      return;
    }
    connections_[connection->fd()] = connection;
    connection->Send(welcome);
    service_->loop()->Post(loop_scope_.Bind([connection] { connection->Attend(); }));
    if (tick_timer_ == 0) OnTick();
  }));
}

void TcpMessageDoor::OnTick() {
  tick_timer_ = 0;
  const MonotonicTime limit = reactor_.Now() - peer_timeout_;
  std::vector<int> slow;
  for (const auto& [fd, connection] : connections_) {
    if (connection->stuck_since() < limit) slow.push_back(fd);
  }
  for (const int fd : slow) {
    const std::shared_ptr<Connection> connection = connections_[fd];
    if (!connection->by_verbs()) {
      service_->loop()->Post(
          loop_scope_.Bind([connection, limit] { connection->HangUpIfStuck(limit); }));
      continue;
    }
    SayStuck(connection->peer());
    Drop(fd);
  }
  if (connections_.empty()) return;
  tick_timer_ = reactor_.At(reactor_.Now() + peer_timeout_ / 3, scope_.Bind([this] { OnTick(); }));
}

void TcpMessageDoor::SayStuck(const std::string& peer) const {
  SilentPeers("tcp", "server").Add();
  kLog.Info(name_, ": the channel of ", peer,
            " does not end a message that it began, or takes no answers; hanging up");
}

void TcpMessageDoor::CloseConnections() {
  reactor_.Call([this] {
    while (!connections_.empty()) Drop(connections_.begin()->first);
  });
}

void TcpMessageDoor::Drop(int fd) {
  auto node = connections_.extract(fd);
  if (!node) return;
  node.mapped()->Close();
  channels_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace tailcast::fabric
