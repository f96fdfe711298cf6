#include "tailcast/fabric/verbs_channel.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/base/scope.h"
#include "tailcast/fabric/message_window.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/tcp_dialer.h"
#include "tailcast/fabric/tcp_greeter.h"
#include "tailcast/fabric/tcp_wire.h"
#include "tailcast/fabric/verbs_dialer.h"
#include "tailcast/fabric/verbs_link.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");

class VerbsChannel;

// Shared by the loop, which sends and takes, and the reactor, which has the connection manager's
// and the socket's events and destroys the queue pair.
class VerbsChannelSession final : public ChannelSession, private VerbsDialer::Owner {
 public:
  VerbsChannelSession(const DialContext& context, HostPort where,
                      ExporterIncarnation expected_incarnation)
      : loop_(context.loop),
        reactor_(context.reactor),
        greeter_(context, std::move(where), kHelloMessages, expected_incarnation),
        dialer_(reactor_, this, greeter_.name()) {}

  std::unique_ptr<Channel> MakeChannel(std::shared_ptr<Reactor> reactor) override;
  // The tcp connection's.
  void OnEvents(uint32_t events) override;

 private:
  friend class VerbsChannel;
  Status Begin() override;
  void End() override;
  Status Ask(TcpGreeting greeting);
  // Of the answer to that. Ok: it has all come, or more is to come.
  Status TakeOffer();
  Status OnOffer(const TcpFrame& frame, std::string_view body);
  Status Prepare(rdma_cm_id* id, rdma_conn_param* connect) override;
  void Discard() override {
    if (link_ != nullptr) link_->Close();
  }
  void OnConnected(Status status) override;
  void OnDisconnected(const std::string& why) override { Die(why); }
  std::shared_ptr<void> Hold() override { return shared_from_this(); }
  void Die(const std::string& why);

  ThreadLoop* const loop_;
  Reactor* const reactor_;

  // Reactor.
  TcpGreeter greeter_;
  Descriptor fd_;
  char in_[sizeof(TcpFrame) + sizeof(VerbsChannelOffer)];
  size_t in_used_ = 0;
  bool dials_ = false;  // the offer has come
  bool open_ = false;
  Duration stall_timeout_;  // constant from `ready` on, as what follows
  // In the order of making: each is destroyed before what it is made of.
  VerbsOwned<ibv_pd> pd_;
  VerbsOwned<ibv_comp_channel> completions_;  // its events are taken by the loop
  std::shared_ptr<VerbsLink> link_;
  VerbsDialer dialer_;  // with the queue pair

  std::atomic<bool> dead_{false};
  VerbsChannel* channel_ = nullptr;  // loop
};

class VerbsChannel final : public Channel {
 public:
  VerbsChannel(std::shared_ptr<VerbsChannelSession> session, std::shared_ptr<Reactor> reactor)
      : session_(std::move(session)),
        reactor_(std::move(reactor)),
        loop_(session_->loop_),
        link_(session_->link_) {
    session_->channel_ = this;
    const Status watched =
        loop_->WatchDescriptor(session_->completions_->fd, scope_.Bind([this] { OnEvents(); }));
    if (!watched.ok()) {
      kLog.Error("the channel to ", session_->greeter_.name(), ": ", watched.message());
      session_->dead_ = true;
      loop_->Post(scope_.Bind([this] { OnNews(); }));
    }
  }
  ~VerbsChannel() override {
    session_->channel_ = nullptr;
    LetGo();
  }

  bool connected() const override { return !broken_; }
  void SetCallbacks(Callbacks callbacks) override { callbacks_ = std::move(callbacks); }

  bool Send(std::span<const std::string_view> parts, uint64_t token) override {
    const uint32_t bytes = MessageBytes(parts);
    if (broken_ || !window_.HasRoomFor(bytes)) return false;
    window_.Add(token, bytes);
    link_->Send(parts);
    if (!stall_.armed()) LookLater();
    return true;
  }

  // Messages have come, or the connection broke.
  void OnNews() {
    const Scope::Watcher self = scope_.Watch();
    for (bool armed = false;;) {
      std::vector<std::string> answers;
      bool more = false;
      const std::string wrong = link_->Take(&answers, &more);
      for (const std::string& answer : answers) {
        if (window_.empty()) {
          BadInput("verbs", "client").Add();
          return Break("an answer to nothing");
        }
        callbacks_.on_answer(window_.Take(), answer);
        if (self.ended() || broken_) return;
      }
      if (!wrong.empty()) return Break(wrong);
      if (!answers.empty() || more) continue;
      if (armed) break;
      link_->Arm();
      armed = true;
    }
    if (session_->dead_.load(std::memory_order_acquire)) Break("");
  }

 private:
  void OnEvents() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(session_->completions_.get(), &cq, &context) == 0) {
      ibv_ack_cq_events(cq, 1);  // at once: who destroys the queue waits for it
    }
    OnNews();
  }
  // Whether what was sent arrives: some devices never say that it did not.
  void LookLater() {
    stall_.After(session_->stall_timeout_, scope_.Bind([this] {
      const MonotonicTime since = link_->stuck_since();
      if (since == MonotonicTime::Max()) return;
      if (since + session_->stall_timeout_ <= ReadMonotonicClock()) {
        SilentPeers("verbs", "client").Add();
        return Break("what was sent does not arrive");
      }
      LookLater();
    }));
  }
  void Break(const std::string& why) {
    if (std::exchange(broken_, true)) return;
    if (!why.empty()) kLog.Info("the channel to ", session_->greeter_.name(), " ended: ", why);
    LetGo();
    callbacks_.on_broken();  // may destroy us
  }
  void LetGo() {
    if (std::exchange(let_go_, true)) return;
    stall_.Cancel();
    loop_->CancelDescriptor(session_->completions_->fd);
    reactor_->Post(session_->scope().Bind([session = session_] { session->Shutdown(); }));
  }

  const std::shared_ptr<VerbsChannelSession> session_;
  const std::shared_ptr<Reactor> reactor_;
  ThreadLoop* const loop_;
  const std::shared_ptr<VerbsLink> link_;
  MessageWindow window_;
  Callbacks callbacks_;
  bool broken_ = false;
  bool let_go_ = false;
  Timer stall_{*loop_};
  Scope scope_;
};

std::unique_ptr<Channel> VerbsChannelSession::MakeChannel(std::shared_ptr<Reactor> reactor) {
  return std::make_unique<VerbsChannel>(
      std::static_pointer_cast<VerbsChannelSession>(shared_from_this()), std::move(reactor));
}

Status VerbsChannelSession::Begin() {
  TAILCAST_RETURN_IF_ERROR(dialer_.Open());
  greeter_.Start(scope().Bind([this](Result<TcpGreeting> greeting) {
    Status status = greeting.ok() ? Ask(std::move(greeting).value()) : greeting.status();
    if (!status.ok()) Finish(std::move(status));
  }));
  return OkStatus();
}

Status VerbsChannelSession::Ask(TcpGreeting greeting) {
  if (greeting.frame.count != 0 || greeting.body.size() != sizeof(TcpWelcome)) {
    BadInput("verbs", "client").Add();
    return UnavailableError(greeter_.server() + " sent a welcome that does not add up");
  }
  fd_ = std::move(greeting.fd);
  std::string ask;
  AppendTo(
      ask,
      TcpFrame{.body_bytes = 0, .op = TcpOp::kVerbsAsk, .flags = 0, .count = 0, .argument = 0});
  if (send(fd_.get(), ask.data(), ask.size(), MSG_DONTWAIT | MSG_NOSIGNAL) !=
      static_cast<ssize_t>(ask.size())) {
    return UnavailableError("can't ask " + greeter_.server() + " for RDMA");
  }
  return reactor_->Add(fd_.get(), EPOLLIN, this);
}

void VerbsChannelSession::OnEvents(uint32_t) {
  const auto self = shared_from_this();  // dying may let go of us
  if (!dials_) {
    if (Status status = TakeOffer(); !status.ok()) Finish(std::move(status));
    return;
  }
  // Nothing is said here any more.
  char byte;
  const ssize_t n = recv(fd_.get(), &byte, 1, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) BadInput("verbs", "client").Add();
  Die(n > 0    ? "it broke the protocol"
      : n == 0 ? "the server closed the connection"
               : std::string("the connection broke: ") + std::strerror(errno));
}

Status VerbsChannelSession::TakeOffer() {
  const ssize_t n = recv(fd_.get(), in_ + in_used_, sizeof(in_) - in_used_, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return OkStatus();
  if (n <= 0) return UnavailableError(greeter_.server() + " closed the connection");
  in_used_ += static_cast<size_t>(n);
  if (in_used_ < sizeof(in_)) return OkStatus();
  return OnOffer(TakeFrom<TcpFrame>(in_), {in_ + sizeof(TcpFrame), sizeof(VerbsChannelOffer)});
}

Status VerbsChannelSession::OnOffer(const TcpFrame& frame, std::string_view body) {
  const auto offer = DecodeVerbsChannelOffer(body, frame.count);
  if (frame.op != TcpOp::kVerbsOffer || frame.body_bytes != body.size() || !offer.has_value()) {
    BadInput("verbs", "client").Add();
    return UnavailableError(greeter_.server() + " made an offer of RDMA that does not add up");
  }
  if (frame.count == 0) {
    return UnavailableError(greeter_.server() + " offers no RDMA: " + offer->host);
  }
  dials_ = true;
  stall_timeout_ = Duration::Micros(static_cast<int64_t>(offer->stall_timeout_us));
  KeepAlive(fd_, stall_timeout_);
  return dialer_.Start(offer->host, static_cast<uint16_t>(offer->port), offer->token);
}

Status VerbsChannelSession::Prepare(rdma_cm_id* id, rdma_conn_param* connect) {
  link_ = nullptr;  // of a port that was in use
  if (pd_ == nullptr) {
    pd_.reset(ibv_alloc_pd(id->verbs));
    if (pd_ == nullptr) return UnavailableError("no more RDMA protection domains");
    completions_.reset(ibv_create_comp_channel(id->verbs));
    if (completions_ == nullptr) return UnavailableError("no more RDMA event channels");
    SetNonBlocking(completions_->fd);
  }
  TAILCAST_ASSIGN_OR_RETURN(link_, VerbsLink::Make(VerbsMessagesCore::Side::kClient, id, pd_.get(),
                                                   completions_.get(), nullptr));
  *connect = link_->ConnectionParameters();
  return OkStatus();
}

void VerbsChannelSession::OnConnected(Status status) {
  open_ = status.ok();
  Finish(std::move(status));
}

void VerbsChannelSession::End() {
  greeter_.Stop();
  if (link_ != nullptr) link_->Close();  // before its queue pair goes
  dialer_.Stop();
  if (!fd_.valid()) return;
  reactor_->Remove(fd_.get());
  fd_.Close();
}

void VerbsChannelSession::Die(const std::string& why) {
  if (!open_) {
    Finish(UnavailableError(greeter_.server() + ": " + why));
    return;
  }
  if (dead_.exchange(true, std::memory_order_acq_rel)) return;
  kLog.Debug(greeter_.server(), ": ", why);
  Shutdown();
  loop_->Post(
      scope().Bind([self = std::static_pointer_cast<VerbsChannelSession>(shared_from_this())] {
        if (self->channel_ != nullptr) self->channel_->OnNews();
      }));
}

}  // namespace

std::shared_ptr<ChannelSession> MakeVerbsChannelSession(const DialContext& context, HostPort where,
                                                        ExporterIncarnation expected_incarnation) {
  return std::make_shared<VerbsChannelSession>(context, std::move(where), expected_incarnation);
}

}  // namespace tailcast::fabric
