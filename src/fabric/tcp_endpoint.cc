#include "tailcast/fabric/tcp_endpoint.h"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/log.h"
#include "tailcast/base/metrics.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/tcp_wire.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
// Holds any frame but for an answer's payload. Payload bytes that land in it are copied once more,
// so it is not larger.
constexpr size_t kInBytes = 4096;
constexpr size_t kSinkBytes = 64 << 10;
constexpr size_t kPartsMax = 512;
// Receive calls before the engine looks at its other endpoints.
constexpr int kReceivesPerTurn = 8;
constexpr uint32_t kReadsMaxOfPeer = 1 << 16;

Counter& BadInput() {
  static Counter& counter =
      ProcessMetrics().GetCounter("tailcast_fabric_bad_input_total",
                                  "Connections closed because the other end broke the protocol.",
                                  {{"driver", "tcp"}, {"side", "client"}});
  return counter;
}
Counter& SilentPeers() {
  static Counter& counter = ProcessMetrics().GetCounter(
      "tailcast_fabric_silent_peers_total", "Connections closed because the other end fell silent.",
      {{"driver", "tcp"}, {"side", "client"}});
  return counter;
}
Counter& Timeouts() {
  static Counter& counter =
      ProcessMetrics().GetCounter("tailcast_fabric_read_timeouts_total",
                                  "Reads without an answer in time.", {{"driver", "tcp"}});
  return counter;
}

// Where the name service is asked, for as long as it takes; it may outlive who asked.
struct ResolveJob {
  std::mutex mutex;
  Reactor* reactor = nullptr;  // guarded; null when nobody waits any more
};

class TcpEndpoint;

// Who owns what:
//   * A read lives in one of slots_ from its submission to its answer; slots are numbered by tags
//     that grow. The loop fills slot tail_ and publishes it; the engine frees slots at base_.
//   * A destination belongs to the engine only while the engine holds receive_mutex_ and the slot
//     is not abandoned. The loop takes the mutex to abandon a slot (time-out, end of the endpoint),
//     so that when it has the mutex the engine is not inside recv, and later bytes go to a sink.
//   * Completions and notifications pass from engine to loop under done_mutex_.
//   * Both threads send, under send_mutex_.
class TcpSession final : public ClientSession {
 public:
  TcpSession(EventLoop* loop, Reactor* reactor, HostPort where,
             ExporterIncarnation expected_incarnation, Duration read_timeout)
      : loop_(loop),
        reactor_(reactor),
        where_(std::move(where)),
        expected_incarnation_(expected_incarnation),
        read_timeout_(read_timeout),
        in_(kInBytes) {}
  ~TcpSession() override { StopResolving(); }

  void Start(Callback<void(Status)> ready) override;
  void Shutdown() override;
  std::unique_ptr<Endpoint> MakeEndpoint(std::shared_ptr<Reactor> reactor) override;
  void OnEvents(uint32_t events) override;

 private:
  friend class TcpEndpoint;
  enum class State : uint8_t { kResolving, kConnecting, kHello, kOpen, kClosed };
  enum class SlotState : uint8_t { kWaiting, kArriving, kDone };
  struct Slot {
    uint64_t token = 0;
    char* destination = nullptr;
    MonotonicTime deadline;  // loop
    uint32_t length = 0;
    SlotState state = SlotState::kDone;  // engine, under receive_mutex_
    bool abandoned = false;              // loop, under receive_mutex_
  };
  // Payload that is on its way.
  struct Segment {
    uint64_t tag = 0;
    uint32_t got = 0;
    uint32_t length = 0;  // without padding
  };
  struct Notification {
    uint64_t id;
    WatchOutcome outcome;
  };

  std::string name() const { return where_.host + ":" + std::to_string(where_.port); }
  void Connect(const SocketAddress& address);
  void StopResolving();
  void SayHello();
  Status TakeWelcome(const TcpFrame& frame, const char* body);
  void Finish(Status status);
  void Die(const std::string& why);
  void OnTick();
  // Any thread. What does not go out at once is sent by the engine.
  void Send(const std::string& bytes);
  void FlushOut();

  Slot& SlotOf(uint64_t tag) { return slots_[tag % slots_.size()]; }
  // The engine's receiving end. Each returns "" or what was wrong.
  std::string Receive();
  std::string TakeBuffered();
  std::string TakeFrame(const TcpFrame& frame, const char* body);
  std::string TakeAnswer(const TcpFrame& frame, const char* body);
  size_t Distribute(size_t bytes);
  void CompleteSegment(const Segment& segment);
  void Notice();

  EventLoop* const loop_;
  Reactor* const reactor_;
  const HostPort where_;
  const ExporterIncarnation expected_incarnation_;
  const Duration read_timeout_;

  // Engine thread.
  State state_ = State::kResolving;
  Callback<void(Status)> ready_;
  std::shared_ptr<ResolveJob> resolve_;
  MonotonicTime heard_;
  uint64_t tick_timer_ = 0;
  Duration peer_timeout_;

  // Set before `ready`, constant after.
  std::vector<RegionInfo> infos_;
  std::vector<Slot> slots_;

  std::mutex receive_mutex_;
  bool closed_ = false;  // guarded by receive_mutex_: no destination may be written any more
  std::atomic<uint64_t> base_{0};
  std::atomic<uint64_t> tail_{0};
  std::vector<char> in_;
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  std::vector<Segment> segments_;
  size_t segment_ = 0;
  std::vector<Completion> fresh_;
  bool freed_abandoned_ = false;  // an abandoned read was answered: there is credit for another
  std::vector<char> sink_;

  std::mutex done_mutex_;
  std::vector<Completion> completions_;      // guarded by done_mutex_
  std::vector<Notification> notifications_;  // guarded by done_mutex_
  std::atomic<bool> notice_pending_{false};
  std::atomic<bool> dead_{false};

  std::mutex send_mutex_;
  Descriptor fd_;    // closed under send_mutex_
  std::string out_;  // guarded by send_mutex_

  TcpEndpoint* endpoint_ = nullptr;  // loop thread
};

class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(std::shared_ptr<TcpSession> session, std::shared_ptr<Reactor> reactor)
      : session_(std::move(session)),
        reactor_(std::move(reactor)),
        loop_(session_->loop_),
        read_timeout_(session_->read_timeout_) {
    session_->endpoint_ = this;
  }
  ~TcpEndpoint() override {
    {
      std::lock_guard lock(session_->receive_mutex_);
      session_->closed_ = true;
    }
    session_->endpoint_ = nullptr;
    reactor_->Post(session_->scope().Bind([session = session_] { session->Shutdown(); }));
  }

  Capabilities capabilities() const override {
    return {.immediate = false, .watch = true, .cross_host = true};
  }
  std::span<const RegionInfo> regions() const override {
    return connected() ? std::span<const RegionInfo>(session_->infos_)
                       : std::span<const RegionInfo>();
  }
  bool connected() const override { return !session_->dead_.load(std::memory_order_acquire); }
  void set_read_timeout(Duration timeout) override { read_timeout_ = timeout; }

  void Read(std::span<const ReadDescriptor> reads) override {
    const bool up = connected() && !failed_;
    const MonotonicTime deadline = loop_->Now() + read_timeout_;
    const size_t before = polled_.size();
    for (const ReadDescriptor& read : reads) {
      const ReadStatus status = Admit(read, up);
      ++started_;
      if (status == ReadStatus::kOk) {
        backlog_.push_back({read, deadline});
      } else {
        polled_.push_back({read.token, status});
      }
    }
    Submit();
    if (polled_.size() > before) session_->Notice();
    if (started_ > returned_ && (!timeout_.armed() || deadline < timeout_.when())) {
      ArmTimeout(deadline);
    }
  }

  size_t Poll(std::span<Completion> completions) override {
    if (polled_begin_ == polled_.size()) {
      polled_.clear();
      polled_begin_ = 0;
      {
        std::lock_guard lock(session_->done_mutex_);
        polled_.swap(session_->completions_);
      }
      if (!backlog_.empty()) Submit();
    }
    const size_t n = std::min(completions.size(), polled_.size() - polled_begin_);
    std::copy_n(polled_.begin() + static_cast<ptrdiff_t>(polled_begin_), n, completions.begin());
    polled_begin_ += n;
    returned_ += n;
    // Fewer than asked for must mean that there are no more.
    if (n > 0 && n < completions.size()) return n + Poll(completions.subspan(n));
    return n;
  }
  void SetReadyCallback(Callback<void()> ready) override {
    ready_ = std::make_shared<Callback<void()>>(std::move(ready));
  }

  uint64_t Watch(RegionId region, uint64_t offset, uint32_t last_seen, Duration timeout,
                 Callback<void(WatchOutcome)> done) override {
    const uint64_t id = next_watch_++;
    WatchState& watch = watches_.try_emplace(id, *loop_).first->second;
    watch.done = std::move(done);
    const auto answer_soon = [&](WatchOutcome outcome) {
      watch.timer.After(Duration(), scope_.Bind([this, id, outcome] { Answer(id, outcome); }));
    };
    const std::vector<RegionInfo>& infos = session_->infos_;
    if (!connected()) {
      answer_soon(WatchOutcome::kUnreachable);
    } else if (region >= infos.size() || offset % 8 != 0 || offset >= infos[region].size) {
      answer_soon(WatchOutcome::kRefused);
    } else {
      std::string frame;
      AppendTo(frame, TcpFrame{.body_bytes = sizeof(TcpWatch),
                               .op = TcpOp::kWatch,
                               .flags = 0,
                               .count = 0,
                               .argument = id});
      AppendTo(frame, TcpWatch{.offset = offset, .region = region, .last_seen = last_seen});
      session_->Send(frame);
      watch.timer.After(timeout, scope_.Bind([this, id] {
        SendCancel(id);
        Answer(id, WatchOutcome::kTimeout);
      }));
    }
    return id;
  }
  void CancelWatch(uint64_t id) override {
    auto node = watches_.extract(id);
    if (node) SendCancel(id);
  }

  // Something arrived, or the connection broke.
  void OnNotice() {
    const Scope::Watcher self = scope_.Watch();
    std::vector<TcpSession::Notification> notifications;
    {
      std::lock_guard lock(session_->done_mutex_);
      notifications.swap(session_->notifications_);
    }
    for (const TcpSession::Notification& notification : notifications) {
      Answer(notification.id, notification.outcome);
      if (self.ended()) return;
    }
    if (!connected() && !failed_) {
      failed_ = true;
      FailReads();
      std::vector<uint64_t> ids;
      for (const auto& [id, watch] : watches_) ids.push_back(id);
      std::sort(ids.begin(), ids.end());
      for (const uint64_t id : ids) {
        Answer(id, WatchOutcome::kUnreachable);
        if (self.ended()) return;
      }
    }
    Submit();
    CallReady();
  }

 private:
  struct WatchState {
    explicit WatchState(EventLoop& loop) : timer(loop) {}
    Callback<void(WatchOutcome)> done;
    Timer timer;
  };
  struct Waiting {
    ReadDescriptor read;
    MonotonicTime deadline;
  };

  ReadStatus Admit(const ReadDescriptor& read, bool up) const {
    if (started_ - returned_ >= kQueuedReadsMax) return ReadStatus::kOverloaded;
    const std::vector<RegionInfo>& infos = session_->infos_;
    if (read.region >= infos.size() || read.length > kReadBytesMax ||
        read.offset > infos[read.region].size ||
        read.length > infos[read.region].size - read.offset) {
      return ReadStatus::kOutOfRange;
    }
    return up ? ReadStatus::kOk : ReadStatus::kUnreachable;
  }

  // Sends waiting reads as far as the server's credit goes.
  void Submit() {
    if (backlog_.empty() || failed_) return;
    const uint64_t capacity = session_->slots_.size();
    uint64_t tail = session_->tail_.load(std::memory_order_relaxed);
    uint64_t room = capacity - (tail - session_->base_.load(std::memory_order_acquire));
    if (room == 0) return;
    request_.clear();
    while (room > 0 && !backlog_.empty()) {
      const uint16_t count =
          static_cast<uint16_t>(std::min<uint64_t>({kTcpBatchMax, room, backlog_.size()}));
      AppendTo(request_, TcpFrame{.body_bytes = static_cast<uint32_t>(count * sizeof(TcpRead)),
                                  .op = TcpOp::kRead,
                                  .flags = 0,
                                  .count = count,
                                  .argument = 0});
      for (uint16_t i = 0; i < count; ++i) {
        const Waiting& waiting = backlog_.front();
        const ReadDescriptor& read = waiting.read;
        session_->SlotOf(tail) = {.token = read.token,
                                  .destination = read.destination,
                                  .deadline = waiting.deadline,
                                  .length = read.length,
                                  .state = TcpSession::SlotState::kWaiting,
                                  .abandoned = false};
        AppendTo(
            request_,
            TcpRead{
                .offset = read.offset, .length = read.length, .region = read.region, .tag = tail});
        ++tail;
        backlog_.pop_front();
      }
      room -= count;
    }
    session_->tail_.store(tail, std::memory_order_release);
    session_->Send(request_);
  }

  void ArmTimeout(MonotonicTime when) {
    timeout_.At(when, scope_.Bind([this] { OnTimeout(); }));
  }
  void OnTimeout() {
    const MonotonicTime now = loop_->Now();
    MonotonicTime next = MonotonicTime::Max();
    const size_t before = polled_.size();
    const auto expired = [&](MonotonicTime deadline) {
      if (deadline <= now) return true;
      next = std::min(next, deadline);
      return false;
    };
    {
      std::lock_guard lock(session_->receive_mutex_);
      const uint64_t tail = session_->tail_.load(std::memory_order_relaxed);
      for (uint64_t tag = session_->base_.load(std::memory_order_relaxed); tag < tail; ++tag) {
        TcpSession::Slot& slot = session_->SlotOf(tag);
        if (slot.state == TcpSession::SlotState::kDone || slot.abandoned) continue;
        if (!expired(slot.deadline)) continue;
        slot.abandoned = true;
        polled_.push_back({slot.token, ReadStatus::kTimeout});
      }
    }
    std::erase_if(backlog_, [&](const Waiting& waiting) {
      if (!expired(waiting.deadline)) return false;
      polled_.push_back({waiting.read.token, ReadStatus::kTimeout});
      return true;
    });
    if (next != MonotonicTime::Max()) ArmTimeout(next);
    if (polled_.size() == before) return;
    Timeouts().Add(static_cast<int64_t>(polled_.size() - before));
    CallReady();
  }

  // The engine has shut the session down: it touches no slot any more.
  void FailReads() {
    {
      std::lock_guard lock(session_->receive_mutex_);
      const uint64_t tail = session_->tail_.load(std::memory_order_relaxed);
      for (uint64_t tag = session_->base_.load(std::memory_order_relaxed); tag < tail; ++tag) {
        TcpSession::Slot& slot = session_->SlotOf(tag);
        if (slot.state == TcpSession::SlotState::kDone || slot.abandoned) continue;
        slot.abandoned = true;
        polled_.push_back({slot.token, ReadStatus::kUnreachable});
      }
    }
    for (const Waiting& waiting : backlog_) {
      polled_.push_back({waiting.read.token, ReadStatus::kUnreachable});
    }
    backlog_.clear();
  }

  void CallReady() {
    if (ready_ == nullptr || !*ready_) return;
    if (polled_begin_ == polled_.size()) {
      std::lock_guard lock(session_->done_mutex_);
      if (session_->completions_.empty()) return;
    }
    const std::shared_ptr<Callback<void()>> ready = ready_;
    (*ready)();  // may destroy us
  }
  void SendCancel(uint64_t id) {
    std::string frame;
    AppendTo(
        frame,
        TcpFrame{
            .body_bytes = 0, .op = TcpOp::kCancelWatch, .flags = 0, .count = 0, .argument = id});
    session_->Send(frame);
  }
  void Answer(uint64_t id, WatchOutcome outcome) {
    auto node = watches_.extract(id);
    if (!node) return;
    node.mapped().done(outcome);  // may destroy us
  }

  const std::shared_ptr<TcpSession> session_;
  const std::shared_ptr<Reactor> reactor_;
  EventLoop* const loop_;
  Duration read_timeout_;
  bool failed_ = false;
  std::shared_ptr<Callback<void()>> ready_;  // shared: it may destroy us while it runs
  std::deque<Waiting> backlog_;              // beyond the server's credit
  std::string request_;
  std::vector<Completion> polled_;  // polled_[polled_begin_...] wait for Poll
  size_t polled_begin_ = 0;
  uint64_t started_ = 0;
  uint64_t returned_ = 0;
  Timer timeout_{*loop_};
  std::unordered_map<uint64_t, WatchState> watches_;
  uint64_t next_watch_ = 1;
  Scope scope_;
};

std::unique_ptr<Endpoint> TcpSession::MakeEndpoint(std::shared_ptr<Reactor> reactor) {
  return std::make_unique<TcpEndpoint>(std::static_pointer_cast<TcpSession>(shared_from_this()),
                                       std::move(reactor));
}

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
    BadInput().Add();
    return UnavailableError("the server at " + name() + " sent " + what);
  };
  if (frame.op != TcpOp::kWelcome || frame.argument != kTcpMagic ||
      frame.body_bytes < sizeof(TcpWelcome)) {
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
    SilentPeers().Add();
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

void TcpSession::Notice() {
  if (notice_pending_.exchange(true, std::memory_order_acq_rel)) return;
  loop_->Post(scope().Bind([self = std::static_pointer_cast<TcpSession>(shared_from_this())] {
    // An exchange, not a store: whoever found the notice pending has written its news before, and
    // we must see them below.
    self->notice_pending_.exchange(false, std::memory_order_acq_rel);
    if (self->endpoint_ != nullptr) self->endpoint_->OnNotice();
  }));
}

std::string TcpSession::Receive() {
  std::lock_guard lock(receive_mutex_);
  std::array<iovec, kPartsMax + 1> parts;
  for (int round = 0; round < kReceivesPerTurn; ++round) {
    if (closed_) return "";
    // Missing payload first, straight to where it belongs; then the frames after it.
    size_t count = 0;
    size_t wanted = 0;
    bool sunk = false;
    for (size_t i = segment_; i < segments_.size() && count + 2 <= kPartsMax; ++i) {
      Segment& segment = segments_[i];
      Slot& slot = SlotOf(segment.tag);
      const uint32_t padded = PaddedLength(segment.length);
      if (segment.got < segment.length) {
        const size_t missing = segment.length - segment.got;
        if (slot.abandoned) {
          if (sink_.empty()) sink_.resize(kSinkBytes);
          const size_t piece = std::min(missing, kSinkBytes);
          parts[count++] = {sink_.data(), piece};
          wanted += piece;
          if (piece < missing) {
            sunk = true;
            break;
          }
        } else {
          parts[count++] = {slot.destination + segment.got, missing};
          wanted += missing;
        }
      }
      const size_t padding = padded - std::max(segment.got, segment.length);
      if (padding != 0) {
        static thread_local char ignored[8];
        parts[count++] = {ignored, padding};
        wanted += padding;
      }
      sunk = i + 1 < segments_.size() && count + 2 > kPartsMax;
    }
    if (!sunk) {
      parts[count++] = {in_.data() + in_end_, in_.size() - in_end_};
      wanted += in_.size() - in_end_;
    }
    msghdr message{.msg_iov = parts.data(), .msg_iovlen = count};
    const ssize_t n = recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return "";
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::string("the connection broke: ") + std::strerror(errno);
    if (n == 0) return "the server closed the connection";
    heard_ = reactor_->Now();
    in_end_ += Distribute(static_cast<size_t>(n));
    if (std::string wrong = TakeBuffered(); !wrong.empty()) return wrong;
    if (state_ == State::kClosed) return "";
    if (static_cast<size_t>(n) < wanted) return "";  // that was all there is
  }
  return "";
}

// Counts `bytes` received into segments; returns how many lie in in_ instead.
size_t TcpSession::Distribute(size_t bytes) {
  while (bytes > 0 && segment_ < segments_.size()) {
    Segment& segment = segments_[segment_];
    const uint32_t padded = PaddedLength(segment.length);
    const size_t take = std::min<size_t>(bytes, padded - segment.got);
    segment.got += static_cast<uint32_t>(take);
    bytes -= take;
    if (segment.got < padded) break;
    CompleteSegment(segment);
    ++segment_;
  }
  return bytes;
}

void TcpSession::CompleteSegment(const Segment& segment) {
  Slot& slot = SlotOf(segment.tag);
  slot.state = SlotState::kDone;
  if (slot.abandoned) {
    freed_abandoned_ = true;
  } else {
    fresh_.push_back({slot.token, ReadStatus::kOk});
  }
  uint64_t base = base_.load(std::memory_order_relaxed);
  const uint64_t tail = tail_.load(std::memory_order_acquire);
  while (base < tail && SlotOf(base).state == SlotState::kDone) ++base;
  base_.store(base, std::memory_order_release);
}

std::string TcpSession::TakeBuffered() {
  for (;;) {
    const size_t buffered = in_end_ - in_begin_;
    if (segment_ < segments_.size()) {
      Segment& segment = segments_[segment_];
      const uint32_t padded = PaddedLength(segment.length);
      const size_t take = std::min<size_t>(buffered, padded - segment.got);
      if (take == 0 && padded != segment.got) break;
      Slot& slot = SlotOf(segment.tag);
      if (!slot.abandoned && segment.got < segment.length) {
        std::memcpy(slot.destination + segment.got, in_.data() + in_begin_,
                    std::min<size_t>(take, segment.length - segment.got));
      }
      segment.got += static_cast<uint32_t>(take);
      in_begin_ += take;
      if (segment.got < padded) break;
      CompleteSegment(segment);
      ++segment_;
      continue;
    }
    if (buffered < sizeof(TcpFrame)) break;
    const auto frame = TakeFrom<TcpFrame>(in_.data() + in_begin_);
    if (frame.body_bytes > kTcpReplyBodyMax || frame.body_bytes % 8 != 0 || frame.flags != 0) {
      BadInput().Add();
      return "a frame of " + std::to_string(frame.body_bytes) + " bytes";
    }
    if (buffered < sizeof(frame) + frame.body_bytes) break;
    const char* body = in_.data() + in_begin_ + sizeof(frame);
    in_begin_ += sizeof(frame) + frame.body_bytes;
    if (state_ == State::kHello) {
      Finish(TakeWelcome(frame, body));
      if (state_ == State::kClosed) return "";
      continue;
    }
    if (std::string wrong = TakeFrame(frame, body); !wrong.empty()) {
      BadInput().Add();
      kLog.Warn("closing the connection to ", name(), ": ", wrong);
      return wrong;
    }
  }
  if (in_begin_ > 0) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  return "";
}

std::string TcpSession::TakeFrame(const TcpFrame& frame, const char* body) {
  switch (frame.op) {
    case TcpOp::kAnswer:
      return TakeAnswer(frame, body);
    case TcpOp::kNotify: {
      if (frame.body_bytes != 0 || frame.count > static_cast<uint16_t>(WatchOutcome::kRefused)) {
        return "a notification that does not add up";
      }
      std::lock_guard lock(done_mutex_);
      notifications_.push_back({frame.argument, static_cast<WatchOutcome>(frame.count)});
      return "";
    }
    case TcpOp::kPong:
      return frame.body_bytes == 0 ? "" : "a pong that does not add up";
    default:
      return "an unknown frame, number " + std::to_string(static_cast<int>(frame.op));
  }
}

std::string TcpSession::TakeAnswer(const TcpFrame& frame, const char* body) {
  if (frame.count == 0 || frame.count > kTcpBatchMax ||
      frame.body_bytes != frame.count * sizeof(TcpAnswer)) {
    return "an answer that does not add up";
  }
  const uint64_t base = base_.load(std::memory_order_relaxed);
  const uint64_t tail = tail_.load(std::memory_order_acquire);
  segments_.clear();
  segment_ = 0;
  uint64_t payload = 0;
  bool failed = false;
  for (uint16_t i = 0; i < frame.count; ++i) {
    const auto answer = TakeFrom<TcpAnswer>(body + i * sizeof(TcpAnswer));
    if (answer.tag < base || answer.tag >= tail) return "an answer to a read that nobody made";
    Slot& slot = SlotOf(answer.tag);
    if (slot.state != SlotState::kWaiting) return "a second answer to a read";
    if (answer.status > ReadStatus::kOverloaded ||
        answer.length != (answer.status == ReadStatus::kOk ? slot.length : 0)) {
      return "an answer of the wrong length";
    }
    if (answer.status == ReadStatus::kOk) {
      slot.state = SlotState::kArriving;
      segments_.push_back({.tag = answer.tag, .got = 0, .length = answer.length});
      payload += PaddedLength(answer.length);
    } else {
      slot.state = SlotState::kDone;
      failed = true;
      if (slot.abandoned) {
        freed_abandoned_ = true;
      } else {
        fresh_.push_back({slot.token, answer.status});
      }
    }
  }
  if (payload != frame.argument) return "an answer whose payload does not add up";
  if (failed && segments_.empty()) {
    uint64_t first = base;
    while (first < tail && SlotOf(first).state == SlotState::kDone) ++first;
    base_.store(first, std::memory_order_release);
  }
  return "";
}

}  // namespace

std::shared_ptr<ClientSession> MakeTcpSession(EventLoop* loop, Reactor* reactor, HostPort where,
                                              ExporterIncarnation expected_incarnation,
                                              Duration read_timeout) {
  return std::make_shared<TcpSession>(loop, reactor, std::move(where), expected_incarnation,
                                      read_timeout);
}

}  // namespace tailcast::fabric
