// The client's end of a message channel over shared memory: makes the rings, hands them to the
// server over a unix socket, and reads and writes them on its own loop. The socket's end says that
// the server died or closed its door.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/fabric/channel_session.h"
#include "tailcast/fabric/message_ring.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/shm_greeter.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
// A loop that watches as many words as it can looks for answers so often.
constexpr Duration kPollInterval = Duration::Millis(1);

class ShmChannel;

class ShmChannelSession final : public ChannelSession {
 public:
  ShmChannelSession(const DialContext& context, const Target& target)
      : loop_(context.loop), reactor_(context.reactor), greeter_(context, target, kHelloMessages) {}

  std::unique_ptr<Channel> MakeChannel(std::shared_ptr<Reactor> reactor) override;
  void OnEvents(uint32_t) override;

 private:
  friend class ShmChannel;
  Status Begin() override {
    TAILCAST_RETURN_IF_ERROR(MakeRings());
    return greeter_.Start(rings_.get(), scope().Bind([this](Result<ShmGreeting> greeting) {
      Finish(greeting.ok() ? Open(std::move(greeting).value()) : greeting.status());
    }));
  }
  void End() override {
    greeter_.Stop();
    if (!fd_.valid()) return;
    reactor_->Remove(fd_.get());
    fd_.Close();
  }
  Status MakeRings();
  Status Open(ShmGreeting greeting);

  ThreadLoop* const loop_;
  Reactor* const reactor_;
  // Reactor thread.
  ShmGreeter greeter_;
  Descriptor fd_;
  Descriptor rings_;  // until the server has them

  Mapping memory_;  // handed from the reactor to the channel by the post of `ready`
  std::atomic<bool> dead_{false};
  ShmChannel* channel_ = nullptr;  // loop thread
};

class ShmChannel final : public Channel {
 public:
  ShmChannel(std::shared_ptr<ShmChannelSession> session, std::shared_ptr<Reactor> reactor)
      : session_(std::move(session)),
        reactor_(std::move(reactor)),
        loop_(session_->loop_),
        messages_(RingMemory::Messages(session_->memory_.data())),
        answers_(RingMemory::Answers(session_->memory_.data()), 0, kAnswerBytesMax),
        poll_(*loop_) {
    session_->channel_ = this;
  }
  ~ShmChannel() override {
    loop_->CancelWord(watch_);
    session_->channel_ = nullptr;
    reactor_->Post(session_->scope().Bind([session = session_] { session->Shutdown(); }));
  }

  bool connected() const override { return !broken_; }
  void SetCallbacks(Callbacks callbacks) override {
    callbacks_ = std::move(callbacks);
    Sleep();
    // It may have broken between the server's reply and this turn.
    if (session_->dead_.load(std::memory_order_acquire)) {
      loop_->Post(scope_.Bind([this] { Break(); }));
    }
  }

  bool Send(std::span<const std::string_view> parts, uint64_t token) override {
    const uint32_t bytes = MessageBytes(parts);
    if (broken_ || !window_.HasRoomFor(bytes)) return false;
    window_.Add(token, bytes);
    if (messages_.Put(parts)) messages_.Wake();
    return true;
  }

  // The server's socket closed. Answers that lie in the ring are true ones.
  void OnDead() {
    const Scope::Watcher self = scope_.Watch();
    TakeAnswers();
    if (!self.ended()) Break();
  }

 private:
  void Sleep() {
    answers_.SaySleeps();
    watch_ = loop_->WatchWord(answers_.sleep_word(), answers_.last_seen(),
                              scope_.Bind([this] { OnAnswers(); }));
    if (watch_ == 0) poll_.After(kPollInterval, scope_.Bind([this] { OnAnswers(); }));
  }
  void OnAnswers() {
    watch_ = 0;
    answers_.SayAwake();
    const Scope::Watcher self = scope_.Watch();
    TakeAnswers();
    if (!self.ended() && !broken_) Sleep();
  }
  void TakeAnswers() {
    const Scope::Watcher self = scope_.Watch();
    std::string_view answer;
    while (!broken_) {
      const RingReader::Found found = answers_.Take(&answer);
      if (found == RingReader::Found::kNothing) return;
      if (found == RingReader::Found::kBroken || window_.empty()) {
        BadInput("shm", "client").Add();
        kLog.Warn("closing the channel to ", session_->greeter_.server(),
                  ": its answers do not add up");
        return Break();
      }
      callbacks_.on_answer(window_.Take(), answer);
      if (self.ended()) return;
    }
  }
  void Break() {
    if (std::exchange(broken_, true)) return;
    poll_.Cancel();
    loop_->CancelWord(std::exchange(watch_, 0));
    callbacks_.on_broken();  // may destroy us
  }

  const std::shared_ptr<ShmChannelSession> session_;
  const std::shared_ptr<Reactor> reactor_;
  ThreadLoop* const loop_;
  RingWriter messages_;
  RingReader answers_;
  MessageWindow window_;
  Callbacks callbacks_;
  bool broken_ = false;
  WordWatchId watch_ = 0;
  Timer poll_;
  Scope scope_;
};

std::unique_ptr<Channel> ShmChannelSession::MakeChannel(std::shared_ptr<Reactor> reactor) {
  return std::make_unique<ShmChannel>(
      std::static_pointer_cast<ShmChannelSession>(shared_from_this()), std::move(reactor));
}

Status ShmChannelSession::MakeRings() {
  rings_ = Descriptor(memfd_create("tailcast-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!rings_.valid()) return ErrnoStatus(errno, "make memory for a channel");
  if (ftruncate(rings_.get(), static_cast<off_t>(kChannelBytes)) != 0 ||
      fcntl(rings_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return ErrnoStatus(errno, "seal the memory of a channel");
  }
  TAILCAST_ASSIGN_OR_RETURN(memory_, Mapping::Map(rings_.get(), kChannelBytes, true));
  return OkStatus();
}

Status ShmChannelSession::Open(ShmGreeting greeting) {
  const auto bad = [&](const char* what) {
    BadInput("shm", "client").Add();
    return UnavailableError(greeter_.server() + what);
  };
  if (!greeting.regions.empty()) return bad(" sent a reply that does not add up");
  const int seals = fcntl(rings_.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kChannelSeals) != kChannelSeals) {
    return bad(" did not seal the channel's memory");
  }
  rings_.Close();
  fd_ = std::move(greeting.socket);
  return reactor_->Add(fd_.get(), EPOLLIN, this);
}

void ShmChannelSession::OnEvents(uint32_t) {
  char byte;
  const ssize_t n = recv(fd_.get(), &byte, 1, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) {
    BadInput("shm", "client").Add();
    kLog.Warn("closing the channel: ", greeter_.server(), " sent a packet after its welcome");
  }
  auto self = std::static_pointer_cast<ShmChannelSession>(shared_from_this());
  Shutdown();
  dead_.store(true, std::memory_order_release);
  loop_->Post(scope().Bind([self] {
    if (self->channel_ != nullptr) self->channel_->OnDead();
  }));
}

}  // namespace

std::shared_ptr<ChannelSession> MakeShmChannelSession(const DialContext& context,
                                                      const Target& target) {
  return std::make_shared<ShmChannelSession>(context, target);
}

}  // namespace tailcast::fabric
