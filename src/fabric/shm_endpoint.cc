#include "tailcast/fabric/shm_endpoint.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/base/prefetch.h"
#include "tailcast/fabric/control_page.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/shm_greeter.h"
#include "tailcast/fabric/shm_wire.h"
#include "tailcast/fabric/unmapping.h"
#include "tailcast/fabric/word_copy.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");

struct SharedRegion {
  RegionInfo info;
  Mapping mapping;
};

class ShmEndpoint;

class ShmSession final : public ClientSession {
 public:
  ShmSession(const DialContext& context, const Target& target)
      : loop_(context.loop), reactor_(context.reactor), greeter_(context, target, 0) {}

  std::unique_ptr<Endpoint> MakeEndpoint(std::shared_ptr<Reactor> reactor) override;
  void OnEvents(uint32_t) override;

 private:
  friend class ShmEndpoint;
  Status Begin() override {
    return greeter_.Start(-1, scope().Bind([this](Result<ShmGreeting> greeting) {
      Finish(greeting.ok() ? Open(std::move(greeting).value()) : greeting.status());
    }));
  }
  void End() override {
    greeter_.Stop();
    if (!fd_.valid()) return;
    reactor_->Remove(fd_.get());
    fd_.Close();
  }
  // Reactor thread. The endpoint is gone: nobody reads the memory.
  void Unmap() {
    std::vector<Mapping> mappings;
    for (SharedRegion& region : regions_) mappings.push_back(std::move(region.mapping));
    regions_.clear();
    UnmapSlowly(*reactor_, std::move(mappings));
  }
  Status Open(ShmGreeting greeting);
  // Takes the memory that the server handed over.
  Status Adopt(const std::vector<ShmRegion>& regions, std::vector<Descriptor> fds,
               ExporterIncarnation incarnation);

  ThreadLoop* const loop_;
  Reactor* const reactor_;
  ShmGreeter greeter_;  // reactor thread
  Descriptor fd_;       // the same

  // Handed from the reactor to the endpoint by the post of `ready`.
  Mapping control_;
  std::vector<SharedRegion> regions_;

  std::atomic<bool> dead_{false};
  ShmEndpoint* endpoint_ = nullptr;  // loop thread
};

class ShmEndpoint final : public Endpoint {
 public:
  ShmEndpoint(std::shared_ptr<ShmSession> session, std::shared_ptr<Reactor> reactor)
      : session_(std::move(session)),
        reactor_(std::move(reactor)),
        loop_(session_->loop_),
        control_(reinterpret_cast<const ControlPage*>(session_->control_.data())) {
    for (const SharedRegion& region : session_->regions_) {
      infos_.push_back(region.info);
      views_.emplace_back(region.mapping.data(), region.info.size);
    }
    session_->endpoint_ = this;
  }
  ~ShmEndpoint() override {
    for (auto& [id, watch] : watches_) loop_->CancelWord(watch.word);
    session_->endpoint_ = nullptr;
    reactor_->Post(session_->scope().Bind([session = session_] {
      session->Shutdown();
      session->Unmap();
    }));
  }

  Capabilities capabilities() const override {
    return {.immediate = true,
            .watch = true,
            .cross_host = false,
            .scan = false,
            .word_atomic_bytes_max = kReadBytesMax};
  }
  std::span<const RegionInfo> regions() const override {
    return connected() ? std::span<const RegionInfo>(infos_) : std::span<const RegionInfo>();
  }
  bool connected() const override {
    if (session_->dead_.load(std::memory_order_acquire)) return false;
    return control_->generations[0].load(std::memory_order_acquire) == infos_[0].generation;
  }
  void set_read_timeout(Duration) override {}

  void Read(std::span<const ReadDescriptor> reads) override {
    const bool reachable = !session_->dead_.load(std::memory_order_acquire) &&
                           !HeartbeatStopped(*control_, loop_->Now());
    if (polled_ >= 4096) {  // a user that always leaves some for later
      completions_.erase(completions_.begin(),
                         completions_.begin() + static_cast<ptrdiff_t>(polled_));
      polled_ = 0;
    }
    for (const ReadDescriptor& read : reads)
      completions_.push_back({read.token, ReadOne(read, reachable)});
  }

  void Prefetch(RegionId region, uint64_t offset, uint32_t length) override {
    if (region >= infos_.size() || offset > infos_[region].size ||
        length > infos_[region].size - offset) {
      return;
    }
    tailcast::Prefetch(session_->regions_[region].mapping.data() + offset, length);
  }

  void Prefetch(const ScanPrefetch& prefetch, const ScanRequest& request, int step) override {
    prefetch(request, views_, step);
  }

  size_t Poll(std::span<Completion> completions) override {
    const size_t n = std::min(completions.size(), completions_.size() - polled_);
    std::copy_n(completions_.begin() + static_cast<ptrdiff_t>(polled_), n, completions.begin());
    polled_ += n;
    if (polled_ == completions_.size()) {
      completions_.clear();
      polled_ = 0;
    }
    return n;
  }
  void SetReadyCallback(Callback<void()>) override {}

  uint64_t Watch(RegionId region, uint64_t offset, uint32_t last_seen, Duration timeout,
                 Callback<void(WatchOutcome)> done) override {
    const uint64_t id = next_watch_++;
    WatchState& watch = watches_.try_emplace(id, *loop_).first->second;
    watch.done = std::move(done);
    const auto answer_soon = [&](WatchOutcome outcome) {
      watch.timer.After(Duration(), scope_.Bind([this, id, outcome] { Answer(id, outcome); }));
    };
    if (!connected()) {
      answer_soon(WatchOutcome::kUnreachable);
      return id;
    }
    if (region >= infos_.size() || offset % 8 != 0 || offset + 8 > infos_[region].size ||
        offset + 8 < offset) {
      answer_soon(WatchOutcome::kRefused);
      return id;
    }
    const auto* word = reinterpret_cast<const std::atomic<uint32_t>*>(
        session_->regions_[region].mapping.data() + offset);
    watch.word = loop_->WatchWord(word, last_seen,
                                  scope_.Bind([this, id] { Answer(id, WatchOutcome::kChanged); }));
    if (watch.word == 0) {
      answer_soon(WatchOutcome::kRefused);
      return id;
    }
    watch.timer.After(timeout, scope_.Bind([this, id] {
      Answer(id, HeartbeatStopped(*control_, loop_->Now()) ? WatchOutcome::kUnreachable
                                                           : WatchOutcome::kTimeout);
    }));
    return id;
  }
  void CancelWatch(uint64_t id) override {
    auto node = watches_.extract(id);
    if (node) loop_->CancelWord(node.mapped().word);
  }

  // The server's socket closed: it died, or it invalidated its memory.
  void OnDead() {
    const Scope::Watcher self = scope_.Watch();
    std::vector<uint64_t> ids;
    for (const auto& [id, watch] : watches_) ids.push_back(id);
    std::sort(ids.begin(), ids.end());
    for (const uint64_t id : ids) {
      Answer(id, WatchOutcome::kUnreachable);
      if (self.ended()) return;
    }
  }

 private:
  struct WatchState {
    explicit WatchState(EventLoop& loop) : timer(loop) {}
    Callback<void(WatchOutcome)> done;
    WordWatchId word = 0;
    Timer timer;
  };

  ReadStatus ReadOne(const ReadDescriptor& read, bool reachable) {
    if (completions_.size() - polled_ >= kQueuedReadsMax) return ReadStatus::kOverloaded;
    if (read.region >= infos_.size()) return ReadStatus::kOutOfRange;
    const RegionInfo& info = infos_[read.region];
    if (read.length > kReadBytesMax || read.offset > info.size ||
        read.length > info.size - read.offset) {
      return ReadStatus::kOutOfRange;
    }
    if (reachable) {
      CopyWords(read.destination, session_->regions_[read.region].mapping.data(), read.offset,
                read.length);
      // The owner ends the generation before it writes anything else: if it is still there after
      // the copy, every byte of the copy belongs to it.
      std::atomic_thread_fence(std::memory_order_acquire);
    }
    if (control_->generations[read.region].load(std::memory_order_relaxed) != info.generation) {
      return ReadStatus::kStaleRegion;
    }
    return reachable ? ReadStatus::kOk : ReadStatus::kUnreachable;
  }
  void Answer(uint64_t id, WatchOutcome outcome) {
    auto node = watches_.extract(id);
    if (!node) return;
    loop_->CancelWord(node.mapped().word);  // one that answered is unknown to the loop
    node.mapped().done(outcome);            // may destroy us
  }

  const std::shared_ptr<ShmSession> session_;
  const std::shared_ptr<Reactor> reactor_;
  ThreadLoop* const loop_;
  const ControlPage* const control_;
  std::vector<RegionInfo> infos_;
  std::vector<std::span<const char>> views_;  // of the same
  std::vector<Completion> completions_;
  size_t polled_ = 0;  // how many of completions_ the user has
  std::unordered_map<uint64_t, WatchState> watches_;
  uint64_t next_watch_ = 1;
  Scope scope_;
};

std::unique_ptr<Endpoint> ShmSession::MakeEndpoint(std::shared_ptr<Reactor> reactor) {
  return std::make_unique<ShmEndpoint>(std::static_pointer_cast<ShmSession>(shared_from_this()),
                                       std::move(reactor));
}

void ShmSession::OnEvents(uint32_t) {
  char byte;
  const ssize_t n = recv(fd_.get(), &byte, 1, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) {
    BadInput("shm", "client").Add();
    kLog.Warn("closing the connection: ", greeter_.server(), " sent a packet after its welcome");
  }
  auto self = std::static_pointer_cast<ShmSession>(shared_from_this());
  dead_.store(true, std::memory_order_release);
  Shutdown();
  loop_->Post(scope().Bind([self] {
    if (self->endpoint_ != nullptr) self->endpoint_->OnDead();
  }));
}

Status ShmSession::Open(ShmGreeting greeting) {
  const auto bad = [&](const std::string& what) {
    BadInput("shm", "client").Add();
    return UnavailableError(greeter_.server() + " sent " + what);
  };
  if (greeting.regions.empty()) return bad("a welcome without regions");
  const Status adopted =
      Adopt(greeting.regions, std::move(greeting.fds), greeting.reply.incarnation);
  if (!adopted.ok()) return bad("memory that can't be used: " + adopted.message());
  fd_ = std::move(greeting.socket);
  return reactor_->Add(fd_.get(), EPOLLIN, this);
}

Status ShmSession::Adopt(const std::vector<ShmRegion>& regions, std::vector<Descriptor> fds,
                         ExporterIncarnation incarnation) {
  const auto map = [](const Descriptor& fd, uint64_t size) -> Result<Mapping> {
    // Memory that the server could shrink would kill us with SIGBUS.
    const int seals = fcntl(fd.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
      return InvalidArgumentError("it is not sealed against shrinking");
    }
    struct stat info;
    if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "fstat");
    if (size == 0 || size % 8 != 0 || size > static_cast<uint64_t>(info.st_size)) {
      return InvalidArgumentError("it is smaller than announced");
    }
    return Mapping::Map(fd.get(), static_cast<uint64_t>(info.st_size), false);
  };
  Result<Mapping> control = map(fds[0], kControlBytes);
  if (!control.ok()) return control.status().WithContext("control page");
  const auto* page = reinterpret_cast<const ControlPage*>(control->data());
  if (page->magic != kControlMagic || page->version != kControlVersion ||
      page->incarnation != incarnation || page->region_count != regions.size()) {
    return InvalidArgumentError("its control page is of another kind or version");
  }
  control_ = std::move(control).value();
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i].generation == Generation::kNone) {
      return InvalidArgumentError("nobody may read region " + std::to_string(i));
    }
    Result<Mapping> mapping = map(fds[i + 1], regions[i].size);
    if (!mapping.ok()) return mapping.status().WithContext("region " + std::to_string(i));
    regions_.push_back({{regions[i].size, regions[i].generation}, std::move(mapping).value()});
  }
  return OkStatus();
}

}  // namespace

std::shared_ptr<ClientSession> MakeShmSession(const DialContext& context, const Target& target) {
  return std::make_shared<ShmSession>(context, target);
}

}  // namespace tailcast::fabric
