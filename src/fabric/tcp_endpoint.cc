#include "tailcast/fabric/tcp_endpoint.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/log.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/fabric/tcp_session.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");

Counter& Timeouts() {
  static Counter& counter =
      ProcessMetrics().GetCounter("tailcast_fabric_read_timeouts_total",
                                  "Reads without an answer in time.", {{"driver", "tcp"}});
  return counter;
}

}  // namespace

class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(std::shared_ptr<TcpSession> session, std::shared_ptr<Reactor> reactor)
      : session_(std::move(session)),
        reactor_(std::move(reactor)),
        loop_(session_->loop_),
        read_timeout_(session_->read_timeout_) {
    session_->endpoint_ = this;
    if (const Status status = session_->Attend(); !status.ok()) {
      kLog.Error("reads of ", session_->name(), " will be slow: ", status.message());
    }
  }
  ~TcpEndpoint() override {
    session_->Leave();
    {
      std::lock_guard lock(session_->receive_mutex_);
      session_->closed_ = true;
    }
    session_->endpoint_ = nullptr;
    reactor_->Post(session_->scope().Bind([session = session_] { session->Shutdown(); }));
  }

  Capabilities capabilities() const override {
    return {.immediate = false,
            .watch = true,
            .cross_host = true,
            .scan = session_->scans_,
            .word_atomic_bytes_max = kTcpWordAtomicBytesMax};
  }
  std::span<const RegionInfo> regions() const override {
    return connected() ? std::span<const RegionInfo>(session_->infos_)
                       : std::span<const RegionInfo>();
  }
  bool connected() const override { return !session_->dead_.load(std::memory_order_acquire); }
  void set_read_timeout(Duration timeout) override { read_timeout_ = timeout; }

  void Read(std::span<const ReadDescriptor> reads) override {
    Start(reads, [this](const ReadDescriptor& read, bool up) {
      const ReadStatus status = Admit(read, up);
      if (status == ReadStatus::kOk) backlog_.push_back({.read = read});
      return std::pair(status, read.token);
    });
  }

  void Scan(std::span<ScanRead* const> scans) override {
    TAILCAST_CHECK(session_->scans_, "the server does not scan");
    Start(scans, [this](ScanRead* scan, bool up) {
      const ReadStatus status = started_ - returned_ >= kQueuedReadsMax ? ReadStatus::kOverloaded
                                : up                                    ? ReadStatus::kOk
                                                                        : ReadStatus::kUnreachable;
      if (status == ReadStatus::kOk) {
        backlog_.push_back({.read = {.token = scan->token}, .scan = scan});
      }
      return std::pair(status, scan->token);
    });
  }

  void Release(ScanRead& scan) override {
    std::lock_guard lock(session_->receive_mutex_);
    scan.released = true;
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
    ReadDescriptor read;  // of a scan: its token
    ScanRead* scan = nullptr;
    MonotonicTime deadline;
  };

  // `admit` puts what may be sent into the backlog, and says what became of it.
  template <typename Batch, typename Admit>
  void Start(Batch batch, Admit admit) {
    const bool up = connected() && !failed_;
    const MonotonicTime deadline = loop_->Now() + read_timeout_;
    const size_t before = polled_.size();
    for (const auto& one : batch) {
      const auto [status, token] = admit(one, up);
      ++started_;
      if (status == ReadStatus::kOk) {
        backlog_.back().deadline = deadline;
      } else {
        polled_.push_back({token, status});
      }
    }
    Submit();
    if (polled_.size() > before) session_->Notice();
    if (started_ > returned_ && (!timeout_.armed() || deadline < timeout_.when())) {
      ArmTimeout(deadline);
    }
  }

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
      // A frame has reads or scans.
      const bool scans = backlog_.front().scan != nullptr;
      const size_t head = request_.size();
      TcpFrame frame{.body_bytes = 0,
                     .op = scans ? TcpOp::kScanAndRead : TcpOp::kRead,
                     .flags = 0,
                     .count = 0,
                     .argument = 0};
      AppendTo(request_, frame);
      while (room > 0 && !backlog_.empty() && (backlog_.front().scan != nullptr) == scans &&
             frame.count < (scans ? kTcpScansMax : kTcpBatchMax)) {
        const Waiting& waiting = backlog_.front();
        const ReadDescriptor& read = waiting.read;
        session_->SlotOf(tail) = {.token = read.token,
                                  .destination = read.destination,
                                  .scan = waiting.scan,
                                  .deadline = waiting.deadline,
                                  .length = read.length,
                                  .state = TcpSession::SlotState::kWaiting,
                                  .abandoned = false};
        if (scans) {
          AppendTo(request_, TcpScan{.tag = tail, .request = waiting.scan->request});
        } else {
          AppendTo(request_, TcpRead{.offset = read.offset,
                                     .length = read.length,
                                     .region = read.region,
                                     .tag = tail});
        }
        ++tail;
        --room;
        ++frame.count;
        backlog_.pop_front();
      }
      frame.body_bytes = static_cast<uint32_t>(request_.size() - head - sizeof(frame));
      std::memcpy(request_.data() + head, &frame, sizeof(frame));
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

Status TcpSession::Attend() {
  return loop_->WatchDescriptor(
      fd_.get(), scope().Bind([self = std::static_pointer_cast<TcpSession>(shared_from_this())] {
        self->OnReadable();
      }));
}

void TcpSession::Leave() { loop_->CancelDescriptor(fd_.get()); }

void TcpSession::OnReadable() {
  bool news = false;
  const std::string wrong = Take(&news);
  if (!wrong.empty()) {
    Leave();
    reactor_->Post(
        scope().Bind([self = std::static_pointer_cast<TcpSession>(shared_from_this()), wrong] {
          if (self->state_ == State::kOpen) self->Die(wrong);
        }));
  }
  if (news) endpoint_->OnNotice();  // may destroy the endpoint
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

std::unique_ptr<Endpoint> TcpSession::MakeEndpoint(std::shared_ptr<Reactor> reactor) {
  return std::make_unique<TcpEndpoint>(std::static_pointer_cast<TcpSession>(shared_from_this()),
                                       std::move(reactor));
}

std::shared_ptr<ClientSession> MakeTcpSession(const DialContext& context, HostPort where,
                                              ExporterIncarnation expected_incarnation) {
  return std::make_shared<TcpSession>(context, std::move(where), expected_incarnation);
}

}  // namespace tailcast::fabric
