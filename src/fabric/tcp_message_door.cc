#include "tailcast/fabric/tcp_message_door.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
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
static_assert(kReceiveBytes >= sizeof(TcpFrame) + kMessageBytesMax);

}  // namespace

// Shared by the reactor, which receives, and the loop, which handles and answers. A task on either
// side keeps it.
class TcpMessageDoor::Connection final : public Reactor::Handler,
                                         public std::enable_shared_from_this<Connection> {
 public:
  Connection(TcpMessageDoor* door, Descriptor fd, std::string peer, MessageService::Life life)
      : door_(door), peer_(std::move(peer)), life_(life), fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  const std::string& peer() const { return peer_; }
  // Since when a message has begun and not ended, or, by RDMA, an answer is not taken; Max:
  // neither. Reactor.
  MonotonicTime stuck_since() const {
    return verbs_ticket_ == 0 ? begun_ : door_->verbs_->StuckSince(verbs_ticket_);
  }
  // Either thread. What does not go out at once is sent by the reactor.
  void Send(std::string_view bytes);
  // Reactor.
  void Close() {
    if (verbs_ticket_ != 0) door_->verbs_->Forget(verbs_ticket_);
    std::lock_guard lock(send_mutex_);
    if (fd_.valid()) door_->reactor_.Remove(fd_.get());
    fd_.Close();
  }
  void OnEvents(uint32_t events) override;

 private:
  // Whole frames, as they came, checked.
  struct Block {
    std::unique_ptr<char[]> bytes;
    size_t size = 0;
    uint64_t messages = 0, records = 0;  // how many, and the window's bytes of them
  };
  // "" or what was wrong.
  std::string Receive();
  // How much of in_ is whole frames.
  std::string CountFrames(Block* block) const;
  void AnswerVerbsAsk();
  void Fail(const std::string& why, const char* driver = "tcp");
  void Serve();  // loop
  void FlushOut();

  TcpMessageDoor* const door_;
  const std::string peer_;
  const MessageService::Life life_;

  // Reactor.
  const std::unique_ptr<char[]> in_{new char[kReceiveBytes]};
  size_t in_used_ = 0;
  MonotonicTime begun_ = MonotonicTime::Max();
  bool begins_ = true;         // nothing has come yet
  uint64_t verbs_ticket_ = 0;  // of its queue pair, see VerbsChannelOffers
  Scope scope_;

  std::mutex received_mutex_;
  std::vector<Block> received_;  // guarded
  uint64_t open_messages_ = 0;   // guarded: received, and not answered yet
  uint64_t open_records_ = 0;    // guarded: their bytes
  bool serve_posted_ = false;    // guarded

  // Loop.
  uint64_t handled_ = 0;
  std::string answer_, answers_;

  std::mutex send_mutex_;
  Descriptor fd_;    // closed under send_mutex_
  std::string out_;  // guarded by send_mutex_
};

void TcpMessageDoor::Connection::OnEvents(uint32_t events) {
  const auto self = shared_from_this();  // dropping lets go of us
  if ((events & EPOLLOUT) != 0) FlushOut();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  if (const std::string wrong = Receive(); !wrong.empty()) Fail(wrong);
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
    door_->Drop(fd_.get());
    return "";
  }
  in_used_ += static_cast<size_t>(n);
  if (verbs_ticket_ != 0) return "it says something beside its queue pair";
  if (begins_ && in_used_ == sizeof(TcpFrame)) {
    const auto frame = TakeFrom<TcpFrame>(in_.get());
    if (frame.op == TcpOp::kVerbsAsk && frame.body_bytes == 0 && frame.flags == 0 &&
        frame.count == 0 && frame.argument == 0) {
      begins_ = false;
      in_used_ = 0;
      AnswerVerbsAsk();
      return "";
    }
  }
  Block block;
  if (std::string wrong = CountFrames(&block); !wrong.empty()) return wrong;
  if (block.size == in_used_) {
    begun_ = MonotonicTime::Max();
  } else if (block.messages > 0 || begun_ == MonotonicTime::Max()) {
    begun_ = door_->reactor_.Now();
  }
  if (block.messages == 0) return "";  // not a whole one yet
  begins_ = false;
  block.bytes.reset(new char[block.size]);
  std::memcpy(block.bytes.get(), in_.get(), block.size);
  std::memmove(in_.get(), in_.get() + block.size, in_used_ - block.size);
  in_used_ -= block.size;
  std::lock_guard lock(received_mutex_);
  open_messages_ += block.messages;
  open_records_ += block.records;
  if (open_messages_ > kMessageWindow || open_records_ > kMessageWindowBytes) {
    return "more messages than it has credits for";
  }
  received_.push_back(std::move(block));
  if (!std::exchange(serve_posted_, true)) {
    door_->service_->loop()->Post(
        door_->service_->scope().Bind([self = shared_from_this()] { self->Serve(); }));
  }
  return "";
}

void TcpMessageDoor::Connection::AnswerVerbsAsk() {
  const VerbsOffers::Made made =
      door_->verbs_ == nullptr
          ? VerbsChannelOffers::None("it has no RDMA door")
          : door_->verbs_->Offer(life_, scope_.Bind([this](const std::string& why) {
              if (!fd_.valid()) return;
              if (!why.empty()) return Fail(why, "verbs");
              door_->Drop(fd_.get());
            }));
  verbs_ticket_ = made.ticket;
  std::string answer;
  AppendTo(answer, TcpFrame{.body_bytes = static_cast<uint32_t>(made.body.size()),
                            .op = TcpOp::kVerbsOffer,
                            .flags = 0,
                            .count = static_cast<uint16_t>(made.regions),
                            .argument = 0});
  Send(answer + made.body);
}

std::string TcpMessageDoor::Connection::CountFrames(Block* block) const {
  size_t at = 0;
  while (in_used_ - at >= sizeof(TcpFrame)) {
    const auto frame = TakeFrom<TcpFrame>(in_.get() + at);
    if (frame.op != TcpOp::kMessage || !MessageFits(frame, kMessageBytesMax) ||
        MessageBytes(frame) == 0) {
      return "a frame that is no message";
    }
    if (in_used_ - at - sizeof(frame) < frame.body_bytes) break;
    at += sizeof(frame) + frame.body_bytes;
    ++block->messages;
    block->records += RecordBytes(MessageBytes(frame));
  }
  block->size = at;
  return "";
}

void TcpMessageDoor::Connection::Serve() {
  std::vector<Block> blocks;
  {
    std::lock_guard lock(received_mutex_);
    blocks.swap(received_);
    serve_posted_ = false;
  }
  uint64_t messages = 0, records = 0;
  answers_.clear();
  for (const Block& block : blocks) {
    for (size_t at = 0; at < block.size;) {
      const auto frame = TakeFrom<TcpFrame>(block.bytes.get() + at);
      const char* const body = block.bytes.get() + at + sizeof(frame);
      at += sizeof(frame) + frame.body_bytes;
      if (frame.argument != handled_) {
        door_->reactor_.Post(door_->scope_.Bind([self = shared_from_this()] {
          if (self->fd_.valid()) self->Fail("a message out of turn");
        }));
        return;
      }
      answer_.clear();
      // The gate is closed: the connection goes, too.
      if (!door_->service_->Handle(life_, {body, MessageBytes(frame)}, answer_)) return;
      AppendMessage(answers_, TcpOp::kMessageAnswer, handled_++, answer_);
    }
    messages += block.messages;
    records += block.records;
  }
  {
    // Before the answers, which return the credits.
    std::lock_guard lock(received_mutex_);
    open_messages_ -= messages;
    open_records_ -= records;
  }
  Send(answers_);
}

void TcpMessageDoor::Connection::Send(std::string_view bytes) {
  std::lock_guard lock(send_mutex_);
  if (!fd_.valid() || bytes.empty()) return;
  size_t sent = 0;
  if (out_.empty()) {
    const ssize_t n = send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) sent = static_cast<size_t>(n);
    // Any error but a full buffer shows in the reactor, too.
    if (sent == bytes.size() || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
    door_->reactor_.Post(door_->scope_.Bind([self = shared_from_this()] {
      if (self->fd_.valid()) self->door_->reactor_.Modify(self->fd_.get(), EPOLLIN | EPOLLOUT);
    }));
  }
  if (out_.size() + bytes.size() - sent > 2 * kAnswersMax) {
    door_->reactor_.Post(door_->scope_.Bind([self = shared_from_this()] {
      if (self->fd_.valid()) self->Fail("it does not take its answers");
    }));
    return;
  }
  out_.append(bytes.substr(sent));
}

void TcpMessageDoor::Connection::FlushOut() {
  std::lock_guard lock(send_mutex_);
  if (!out_.empty()) {
    const ssize_t n = send(fd_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) out_.erase(0, static_cast<size_t>(n));
  }
  if (out_.empty()) door_->reactor_.Modify(fd_.get(), EPOLLIN);
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
}

void TcpMessageDoor::Adopt(Descriptor fd, std::string peer, MessageService::Life life,
                           std::string welcome) {
  KeepAlive(fd, peer_timeout_);
  auto connection = std::make_shared<Connection>(this, std::move(fd), std::move(peer), life);
  channels_.fetch_add(1, std::memory_order_relaxed);
  reactor_.Post(scope_.Bind([this, connection, life, welcome = std::move(welcome)] {
    // Invalidated meanwhile: the client finds a closed connection.
    if (service_->life() != life ||
        !reactor_.Add(connection->fd(), EPOLLIN, connection.get()).ok()) {
      channels_.fetch_sub(1, std::memory_order_relaxed);
      return;
    }
    connections_[connection->fd()] = connection;
    connection->Send(welcome);
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
    SilentPeers("tcp", "server").Add();
    kLog.Info(name_, ": the channel of ", connections_[fd]->peer(),
              " does not end a message that it began, or takes no answers; hanging up");
    Drop(fd);
  }
  if (connections_.empty()) return;
  tick_timer_ = reactor_.At(reactor_.Now() + peer_timeout_ / 3, scope_.Bind([this] { OnTick(); }));
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
