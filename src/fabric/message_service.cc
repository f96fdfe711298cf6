#include "tailcast/fabric/message_service.h"

#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/fabric/metrics.h"

namespace tailcast::fabric {
namespace {

// Of one channel before the loop's other work has its turn.
constexpr uint64_t kTurnBytesMax = 256 << 10;
// A loop that watches as many words as it can looks at the others so often.
constexpr Duration kPollInterval = Duration::Millis(1);

}  // namespace

// One client's rings: sleeps on the word of its messages.
class MessageService::Rings {
 public:
  Rings(MessageService& service, uint64_t id, Life life, Mapping memory,
        Callback<void(uint64_t)> broke)
      : service_(service),
        id_(id),
        life_(life),
        memory_(std::move(memory)),
        messages_(RingMemory::Messages(memory_.data()), 1, kMessageBytesMax),
        answers_(RingMemory::Answers(memory_.data())),
        broke_(std::move(broke)),
        poll_(*service.loop_) {}
  ~Rings() { service_.loop_->CancelWord(watch_); }

  void Serve() {
    watch_ = 0;
    messages_.SayAwake();
    uint64_t bytes = 0;
    bool wake = false;
    auto found = RingReader::Found::kNothing;
    std::string_view message;
    // More than a window of messages can't honestly be there.
    for (uint32_t i = 0; i < kMessageWindow && bytes < kTurnBytesMax; ++i) {
      found = messages_.Take(&message);
      if (found != RingReader::Found::kMessage) break;
      bytes += RecordBytes(message.size());
      answer_.clear();
      if (!service_.Handle(life_, message, answer_)) return;  // and its connection goes
      const std::string_view part = answer_;
      wake |= answers_.Put(std::span(&part, 1));
    }
    if (wake) answers_.Wake();
    if (found == RingReader::Found::kBroken) {
      BadInput("shm", "server").Add();
      broke_(id_);
      return;
    }
    messages_.SaySleeps();
    const Scope& scope = scope_;
    watch_ = service_.loop_->WatchWord(messages_.sleep_word(), messages_.last_seen(),
                                       scope.Bind([this] { Serve(); }));
    if (watch_ == 0) poll_.After(kPollInterval, scope.Bind([this] { Serve(); }));
  }

 private:
  MessageService& service_;
  const uint64_t id_;
  const Life life_;
  const Mapping memory_;
  RingReader messages_;
  RingWriter answers_;
  Callback<void(uint64_t)> broke_;
  std::string answer_;
  WordWatchId watch_ = 0;
  Timer poll_;
  Scope scope_;
};

MessageService::MessageService(ThreadLoop* loop, MessageHandler handler)
    : loop_(loop), handler_(std::move(handler)) {}
MessageService::~MessageService() = default;

MessageService::Life MessageService::life() const {
  std::lock_guard lock(gate_);
  return open_ ? life_ : 0;
}

void MessageService::Close() {
  std::lock_guard lock(gate_);
  if (open_) ++life_;
  open_ = false;
}

void MessageService::Open() {
  std::lock_guard lock(gate_);
  open_ = true;
}

bool MessageService::Handle(Life life, std::string_view message, std::string& answer) {
  std::lock_guard lock(gate_);
  // An ended handler has handled nothing.
  if (!open_ || life != life_ || handler_.dropped()) return false;
  handler_(message, answer);
  TAILCAST_CHECK(answer.size() <= kAnswerBytesMax, "an answer is too long for its channel");
  return true;
}

uint64_t MessageService::AddRings(Life life, Mapping memory, Callback<void(uint64_t)> broke) {
  const uint64_t id = next_rings_++;
  loop_->Post(
      scope_.Bind([this, id, life, memory = std::move(memory), broke = std::move(broke)]() mutable {
        auto rings = std::make_unique<Rings>(*this, id, life, std::move(memory), std::move(broke));
        rings_.emplace(id, std::move(rings)).first->second->Serve();
      }));
  return id;
}

void MessageService::RemoveRings(uint64_t id) {
  loop_->Post(scope_.Bind([this, id] { rings_.erase(id); }));
}

}  // namespace tailcast::fabric
