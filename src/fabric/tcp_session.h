// The reader's connection of the tcp driver, from the look-up of the host's name on: what the
// loop's thread (tcp_endpoint.cc) and the connector's engine thread share. The engine connects,
// says hello and pings. After that the loop's thread sends requests and receives answers, straight
// into the readers' memory. A loop that does not turn receives nothing: then the engine does, as
// often as it looks whether the server lives.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/client_session.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/tcp_greeter.h"
#include "tailcast/fabric/tcp_wire.h"

namespace tailcast::fabric {

class TcpEndpoint;

// Who owns what:
//   * A read lives in one of slots_ from its submission to its answer; slots are numbered by tags
//     that grow. The loop fills slot tail_ and publishes it; who receives frees slots at base_.
//   * Who receives holds receive_mutex_; only he writes to destinations, and only to those of slots
//     that are not abandoned. The loop takes the mutex to abandon a slot (time-out, end of the
//     endpoint), so that when it has the mutex the engine is not inside recv, and later bytes go to
//     a sink. The same holds for a scan's destinations, which may also be released, and for the
//     ScanRead.
//   * Completions and notifications pass to the endpoint under done_mutex_.
//   * Both threads send, under send_mutex_. The socket is closed with the session: the loop may
//     wait for it until its endpoint has gone.
class TcpSession final : public ClientSession {
 public:
  TcpSession(const DialContext& context, HostPort where, ExporterIncarnation expected_incarnation)
      : loop_(context.loop),
        reactor_(context.reactor),
        read_timeout_(context.read_timeout),
        greeter_(context, std::move(where), 0, expected_incarnation),
        in_(kInBytes) {}

  std::unique_ptr<Endpoint> MakeEndpoint(std::shared_ptr<Reactor> reactor) override;
  void OnEvents(uint32_t events) override;

  // For the verbs driver, whose connections begin as one of tcp. Engine.

  // Asks for the server's offer, after `ready`, once; `answered` gets the frame's body and its
  // count. From then on nobody pings: the kernel finds out that the other host is gone.
  void AskForVerbs(Callback<void(const std::string& body, size_t count)> answered);
  // Called once, with what was wrong, if the connection breaks after `ready`.
  void SetOnDead(Callback<void(const std::string& why)> on_dead) { on_dead_ = std::move(on_dead); }
  // As if it broke.
  void Hangup(const std::string& why) {
    if (state_ == State::kOpen) Die(why);
  }

 private:
  friend class TcpEndpoint;
  // Holds any frame but for an answer's payload. Payload bytes that land in it are copied once
  // more, so it is not larger.
  static constexpr size_t kInBytes = 8192;
  static_assert(sizeof(TcpFrame) + kTcpReplyBodyMax <= kInBytes);
  enum class State : uint8_t { kGreeting, kOpen, kClosed };
  enum class SlotState : uint8_t { kWaiting, kArriving, kDone };
  struct Slot {
    uint64_t token = 0;
    char* destination = nullptr;  // of a read
    ScanRead* scan = nullptr;     // null: a read; not to be looked into once it is abandoned
    MonotonicTime deadline;       // loop
    uint32_t length = 0;
    SlotState state = SlotState::kDone;  // engine, under receive_mutex_
    bool abandoned = false;              // loop, under receive_mutex_
  };
  // Payload that is on its way: a read's, or ranges of a scan that go to one place.
  struct Segment {
    uint64_t tag = 0;
    char* destination = nullptr;
    uint32_t got = 0;
    uint32_t length = 0;  // without padding
    bool last = true;     // of its slot
  };
  struct Notification {
    uint64_t id;
    WatchOutcome outcome;
  };
  std::string name() const { return greeter_.name(); }
  // Of the engine, which receives while it waits for the answer to AskForVerbs.
  uint32_t WantedEvents() const { return on_offer_ ? uint32_t{EPOLLIN} : 0u; }
  Status Begin() override;
  void End() override;
  Status Open(TcpGreeting greeting);
  void Die(const std::string& why);
  void OnTick();
  // Loop thread, while there is an endpoint: waits for answers there.
  Status Attend();
  void Leave();
  void OnReadable();
  // Any thread. Receives what is there; `news` if the endpoint should look. "" or what was wrong.
  std::string Take(bool* news);
  // Any thread. What does not go out at once is sent by the engine.
  void Send(const std::string& bytes);
  void FlushOut();

  Slot& SlotOf(uint64_t tag) { return slots_[tag % slots_.size()]; }
  // The receiving end, under receive_mutex_. Each returns "" or what was wrong.
  std::string Receive();
  std::string TakeBuffered();
  std::string TakeFrame(const TcpFrame& frame, const char* body);
  std::string TakeAnswers(const TcpFrame& frame, const char* body);
  std::string TakeScanned(const TcpFrame& frame, const char* body);
  // The slot of a tag that waits for an answer; null if there is none.
  Slot* WaitingSlot(uint64_t tag);
  // The slot's answer has come to its end.
  void Complete(Slot& slot, ReadStatus status);
  // After slots were completed: frees those that come first.
  void AdvanceBase();
  // Whether nobody wants the bytes any more.
  static bool IsSunk(const Slot& slot) {
    return slot.abandoned || (slot.scan != nullptr && slot.scan->released);
  }
  size_t Distribute(size_t bytes);
  void CompleteSegment(const Segment& segment);

  // Has the endpoint look at what is new, on its loop. Any thread.
  void Notice();

  ThreadLoop* const loop_;
  Reactor* const reactor_;
  const Duration read_timeout_;

  // Changed by the engine thread.
  std::atomic<State> state_{State::kGreeting};
  TcpGreeter greeter_;
  uint64_t tick_timer_ = 0;
  Duration peer_timeout_;
  Callback<void(const std::string&, size_t)> on_offer_;
  std::pair<std::string, size_t> offered_;
  Callback<void(const std::string&)> on_dead_;

  // Set before `ready`, constant after.
  std::vector<RegionInfo> infos_;
  bool scans_ = false;  // the server answers scans
  std::vector<Slot> slots_;

  std::mutex receive_mutex_;
  // All down to sink_ is guarded by receive_mutex_.
  bool closed_ = false;  // no destination may be written any more
  MonotonicTime heard_;
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

  std::atomic<bool> spoke_{false};  // since the last tick, without its ping
  std::mutex send_mutex_;
  Descriptor fd_;    // set under send_mutex_, before the hello
  std::string out_;  // guarded by send_mutex_

  TcpEndpoint* endpoint_ = nullptr;  // loop thread
};

}  // namespace tailcast::fabric
