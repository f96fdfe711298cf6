#include "tailcast/fabric/tcp_session.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/fabric/metrics.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
constexpr uint32_t kReadsMaxOfPeer = 1 << 16;

}  // namespace

Status TcpSession::Begin() {
  greeter_.Start(scope().Bind([this](Result<TcpGreeting> greeting) {
    Finish(greeting.ok() ? Open(std::move(greeting).value()) : greeting.status());
  }));
  return OkStatus();
}

Status TcpSession::Open(TcpGreeting greeting) {
  const TcpFrame& frame = greeting.frame;
  const auto welcome = TakeFrom<TcpWelcome>(greeting.body.data());
  const auto bad = [&](const std::string& what) {
    BadInput("tcp", "client").Add();
    return UnavailableError(greeter_.server() + " sent " + what);
  };
  if (frame.count == 0 || frame.count > kRegionsMax || (frame.flags & ~kTcpFlagScans) != 0 ||
      greeting.body.size() != sizeof(TcpWelcome) + frame.count * sizeof(TcpRegion) ||
      welcome.reads_max == 0 || welcome.reads_max > kReadsMaxOfPeer ||
      welcome.peer_timeout_us < 1000 || welcome.peer_timeout_us > 3'600'000'000) {
    return bad("a welcome that does not add up");
  }
  for (uint16_t i = 0; i < frame.count; ++i) {
    const auto region =
        TakeFrom<TcpRegion>(greeting.body.data() + sizeof(TcpWelcome) + i * sizeof(TcpRegion));
    if (region.generation == Generation::kNone) return bad("a region that nobody may read");
    infos_.push_back({region.size, region.generation});
  }
  scans_ = (frame.flags & kTcpFlagScans) != 0;
  slots_.resize(welcome.reads_max);
  peer_timeout_ = Duration::Micros(static_cast<int64_t>(welcome.peer_timeout_us));
  {
    std::lock_guard lock(send_mutex_);
    fd_ = std::move(greeting.fd);
  }
  // A hang-up is reported all the same; what comes is taken by the loop.
  TAILCAST_RETURN_IF_ERROR(reactor_->Add(fd_.get(), 0, this));
  {
    std::lock_guard lock(receive_mutex_);
    heard_ = ReadMonotonicClock();
  }
  state_ = State::kOpen;
  tick_timer_ =
      reactor_->At(reactor_->Now() + peer_timeout_ / 4, scope().Bind([this] { OnTick(); }));
  return OkStatus();
}

void TcpSession::End() {
  state_ = State::kClosed;
  greeter_.Stop();
  reactor_->Cancel(tick_timer_);
  tick_timer_ = 0;
  if (!fd_.valid()) return;
  reactor_->Remove(fd_.get());
  shutdown(fd_.get(), SHUT_RDWR);
}

void TcpSession::Die(const std::string& why) {
  kLog.Debug(greeter_.server(), ": ", why);
  Shutdown();
  dead_.store(true, std::memory_order_release);
  Notice();
  if (on_dead_) std::exchange(on_dead_, nullptr)(why);
}

void TcpSession::AskForVerbs(Callback<void(const std::string& body, size_t count)> answered) {
  if (state_ != State::kOpen) return;
  on_offer_ = std::move(answered);
  reactor_->Cancel(tick_timer_);
  tick_timer_ = 0;
  KeepAlive(fd_, peer_timeout_);
  reactor_->Modify(fd_.get(), WantedEvents());
  std::string ask;
  AppendTo(
      ask,
      TcpFrame{.body_bytes = 0, .op = TcpOp::kVerbsAsk, .flags = 0, .count = 0, .argument = 0});
  Send(ask);
}

void TcpSession::OnTick() {
  tick_timer_ = 0;
  bool news = false;
  const std::string wrong = Take(&news);  // nobody else may have
  if (!wrong.empty()) return Die(wrong);
  if (news) Notice();
  const Duration interval = peer_timeout_ / 4;
  Duration silence;
  {
    std::lock_guard lock(receive_mutex_);
    silence = ReadMonotonicClock() - heard_;
  }
  if (silence > peer_timeout_) {
    SilentPeers("tcp", "client").Add();
    kLog.Info("server ", name(), " fell silent; hanging up");
    Die("fell silent");
    return;
  }
  // Requests and their answers say as much.
  if (!spoke_.exchange(false, std::memory_order_relaxed) || silence > interval) {
    std::string ping;
    AppendTo(ping,
             TcpFrame{.body_bytes = 0, .op = TcpOp::kPing, .flags = 0, .count = 0, .argument = 0});
    Send(ping);
    spoke_.store(false, std::memory_order_relaxed);
  }
  tick_timer_ = reactor_->At(reactor_->Now() + interval, scope().Bind([this] { OnTick(); }));
}

void TcpSession::Send(const std::string& bytes) {
  spoke_.store(true, std::memory_order_relaxed);
  std::lock_guard lock(send_mutex_);
  if (!fd_.valid()) return;  // everything outstanding fails by the notice of that
  size_t sent = 0;
  if (out_.empty()) {
    const ssize_t n = send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    // Any error but a full buffer shows in the engine, too.
    if (n > 0) sent = static_cast<size_t>(n);
    if (sent == bytes.size() || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
    reactor_->Post(scope().Bind([self = std::static_pointer_cast<TcpSession>(shared_from_this())] {
      if (self->state_ == State::kOpen) self->reactor_->Modify(self->fd_.get(), EPOLLOUT);
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
  if (out_.empty()) reactor_->Modify(fd_.get(), WantedEvents());
}

// Of what could not be sent at once, of a broken connection, and of the answer to AskForVerbs.
void TcpSession::OnEvents(uint32_t events) {
  auto self = shared_from_this();  // dying may let go of us
  if ((events & EPOLLOUT) != 0) FlushOut();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  bool news = false;
  const std::string wrong = Take(&news);
  if (state_ == State::kClosed) return;
  // An offer that came before what was wrong leads nowhere.
  if (!wrong.empty()) return Die(wrong);
  if (news) Notice();
  if (!offered_.first.empty()) {
    const auto [body, count] = std::exchange(offered_, {});
    if (!on_offer_) return;
    Callback<void(const std::string&, size_t)> answered = std::exchange(on_offer_, nullptr);
    reactor_->Modify(fd_.get(), WantedEvents());
    answered(body, count);
  }
}

std::string TcpSession::Take(bool* news) {
  std::lock_guard lock(receive_mutex_);
  std::string wrong = Receive();
  // Reads may wait for the credit, also when nobody waits for an answer.
  *news = std::exchange(freed_abandoned_, false) || !fresh_.empty();
  std::lock_guard done_lock(done_mutex_);
  completions_.insert(completions_.end(), fresh_.begin(), fresh_.end());
  *news |= !notifications_.empty();
  fresh_.clear();
  return wrong;
}

}  // namespace tailcast::fabric
