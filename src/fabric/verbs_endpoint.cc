// The reader's end of the verbs driver, on its loop: carries out what VerbsReadsCore decides.
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/fabric/verbs_reads_core.h"
#include "tailcast/fabric/verbs_session.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");

Counter& Timeouts() {
  static Counter& counter =
      ProcessMetrics().GetCounter("tailcast_fabric_read_timeouts_total",
                                  "Reads without an answer in time.", {{"driver", "verbs"}});
  return counter;
}

}  // namespace

class VerbsEndpoint final : public Endpoint {
 public:
  VerbsEndpoint(std::shared_ptr<VerbsSession> session, std::shared_ptr<Reactor> reactor)
      : session_(std::move(session)),
        reactor_(std::move(reactor)),
        loop_(session_->loop_),
        tcp_(session_->tcp_->MakeEndpoint(reactor_)),
        queue_(session_->queue_.get()),
        read_timeout_(session_->read_timeout_),
        core_({.regions = {tcp_->regions().begin(), tcp_->regions().end()},
               .works_max = session_->works_max_,
               .beat_timeout =
                   Duration::Micros(static_cast<int64_t>(session_->offer_.head.beat_timeout_us)),
               .stall_timeout =
                   Duration::Micros(static_cast<int64_t>(session_->offer_.head.stall_timeout_us))},
              session_->arena_) {
    session_->endpoint_ = this;
    const Status watched = loop_->WatchDescriptor(session_->completions_->fd,
                                                  scope_.Bind([this] { OnCompletionEvent(); }));
    if (watched.ok()) return;
    kLog.Error("the RDMA connection to ", session_->name(), ": ", watched.message());
    LetGo();
  }
  ~VerbsEndpoint() override {
    session_->endpoint_ = nullptr;
    LetGo();
  }

  Capabilities capabilities() const override {
    return {.immediate = false,
            .watch = true,
            .cross_host = true,
            .scan = false,
            .word_atomic_bytes_max = kVerbsWordAtomicBytesMax,
            .registers_memory = true};
  }
  std::span<const RegionInfo> regions() const override {
    return connected() ? tcp_->regions() : std::span<const RegionInfo>();
  }
  bool connected() const override {
    return !core_.broken() && !session_->dead_.load(std::memory_order_acquire) && tcp_->connected();
  }
  void set_read_timeout(Duration timeout) override { read_timeout_ = timeout; }
  std::shared_ptr<char[]> Allocate(size_t bytes) override {
    if (queue_ == nullptr) return nullptr;
    const Result<std::span<char>> registered = session_->Register(bytes);
    if (!registered.ok()) {
      kLog.Warn("the RDMA connection to ", session_->name(), ": ", registered.status());
      return nullptr;
    }
    core_.AddMemory(*registered);
    return {session_->registered_.back().memory, registered->data()};
  }

  void Read(std::span<const ReadDescriptor> reads) override {
    if (!connected()) Break();
    const MonotonicTime now = loop_->Now();
    core_.Read(now, read_timeout_, reads);
    Send();
    ArmLater();
    if (core_.has_completions()) session_->Notice();
    const MonotonicTime deadline = now + read_timeout_;
    if (core_.has_reads() && (!timeout_.armed() || deadline < timeout_.when())) {
      ArmTimeout(deadline);
    }
  }
  size_t Poll(std::span<Completion> completions) override {
    const size_t n = core_.Poll(completions);
    if (n == completions.size()) return n;
    while (TakeSome()) {
    }
    ArmLater();
    return n + core_.Poll(completions.subspan(n));
  }
  void SetReadyCallback(Callback<void()> ready) override {
    ready_ = std::make_shared<Callback<void()>>(std::move(ready));
  }

  // The server sends the answer over the tcp connection: a reader that waits reads nothing.
  uint64_t Watch(RegionId region, uint64_t offset, uint32_t last_seen, Duration timeout,
                 Callback<void(WatchOutcome)> done) override {
    return tcp_->Watch(region, offset, last_seen, timeout, std::move(done));
  }
  void CancelWatch(uint64_t id) override { tcp_->CancelWatch(id); }

  // Completions wait for Poll, or the connection broke.
  void OnNotice() {
    TakeDone();
    if (!connected()) Break();
    CallReady();
  }

 private:
  void Send() {
    while (queue_ != nullptr && core_.waits()) {
      // The loop's time may be that of a turn which began long ago: too old for the heartbeat.
      const std::span<const VerbsWork> batch = core_.NextBatch(ReadMonotonicClock());
      if (batch.empty()) return;
      if (!queue_->Post(batch)) return Break();
    }
  }
  // In the loop's next turn, whether it would sleep after it or not. Nothing makes an event for who
  // polls without turning it: one costs two calls of the kernel and, on the device, an interrupt.
  void ArmLater() {
    if (queue_ == nullptr || armed_ || core_.outstanding() == 0) return;
    if (std::exchange(arms_later_, true)) return;
    loop_->Post(scope_.Bind([this] {
      arms_later_ = false;
      TakeDone();
      CallReady();
    }));
  }
  // The one that was armed for.
  void OnCompletionEvent() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(session_->completions_.get(), &cq, &context) != 0) return;
    ibv_ack_cq_events(cq, 1);  // at once: who destroys the queue waits for it
    armed_ = false;
    TakeDone();
    CallReady();
  }
  // Afterwards the next completion makes an event, if there is anything to wait for.
  void TakeDone() {
    for (;;) {
      while (TakeSome()) {
      }
      if (queue_ == nullptr || armed_ || core_.outstanding() == 0) return;
      // What came before this makes no event.
      armed_ = true;
      queue_->Arm();
    }
  }
  // False: there was nothing.
  bool TakeSome() {
    if (queue_ == nullptr) return false;
    VerbsDone done[16];
    const size_t n = queue_->Poll(done);
    const MonotonicTime now = n > 0 ? ReadMonotonicClock() : MonotonicTime();
    for (size_t i = 0; i < n; ++i) {
      if (done[i].status != VerbsStatus::kOk && done[i].id == ~uint64_t{0}) core_.Break();
      core_.OnDone(now, done[i]);
    }
    if (core_.broken()) {
      Break();
    } else if (n > 0) {
      Send();
    }
    return n > 0;
  }

  void Break() {
    core_.Break();
    LetGo();
  }
  // The engine destroys the queue pair, and ends the tcp connection, whose watches answer.
  void LetGo() {
    if (std::exchange(queue_, nullptr) == nullptr) return;
    loop_->CancelDescriptor(session_->completions_->fd);
    session_->dead_.store(true, std::memory_order_release);
    reactor_->Post(session_->scope().Bind([session = session_] {
      session->tcp_->Hangup("its queue pair ended");
      session->Shutdown();
    }));
  }

  void ArmTimeout(MonotonicTime when) {
    timeout_.At(when, scope_.Bind([this] { OnTimeout(); }));
  }
  void OnTimeout() {
    TakeDone();
    const uint64_t before = core_.timeouts();
    const MonotonicTime next = core_.OnTime(loop_->Now());
    Timeouts().Add(static_cast<int64_t>(core_.timeouts() - before));
    if (core_.broken()) Break();
    if (core_.has_reads()) ArmTimeout(next);
    CallReady();
  }
  void CallReady() {
    if (ready_ == nullptr || !*ready_ || !core_.has_completions()) return;
    const std::shared_ptr<Callback<void()>> ready = ready_;
    (*ready)();  // may destroy us
  }

  const std::shared_ptr<VerbsSession> session_;
  const std::shared_ptr<Reactor> reactor_;
  ThreadLoop* const loop_;
  const std::unique_ptr<Endpoint> tcp_;  // of the same connection: regions, watches
  VerbsQueue* queue_;                    // null: let go
  Duration read_timeout_;
  VerbsReadsCore core_;
  bool armed_ = false;                       // an event will come, or waits on the descriptor
  bool arms_later_ = false;                  // a task that does so has been posted
  std::shared_ptr<Callback<void()>> ready_;  // shared: it may destroy us while it runs
  Timer timeout_{*loop_};
  Scope scope_;
};

void VerbsSession::Notice() {
  if (notice_pending_.exchange(true, std::memory_order_acq_rel)) return;
  loop_->Post(scope().Bind([self = std::static_pointer_cast<VerbsSession>(shared_from_this())] {
    // An exchange, not a store: see TcpSession.
    self->notice_pending_.exchange(false, std::memory_order_acq_rel);
    if (self->endpoint_ != nullptr) self->endpoint_->OnNotice();
  }));
}

std::unique_ptr<Endpoint> VerbsSession::MakeEndpoint(std::shared_ptr<Reactor> reactor) {
  return std::make_unique<VerbsEndpoint>(std::static_pointer_cast<VerbsSession>(shared_from_this()),
                                         std::move(reactor));
}

}  // namespace tailcast::fabric
