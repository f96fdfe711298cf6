// A client's way to write to one replica: a message channel (spec Channel), opened when there is
// something to write and again, with back-off, when it broke; and calls, while no channel can be
// had.
//
//            the first write               opened
//   kClosed ──────────────────▶ kOpening ──────────▶ kOpen
//     ▲ ▲    (not before retry_at)  │                  │
//     │ └──────── not opened ───────┘      broken      │
//     └────────────────────────────────────────────────┘
//
// A channel on which nothing was answered for kSilenceMax while writes were given up is as good as
// broken, and is left: who is cut off or stopped is not found out by its connection for seconds.
// In kOpening writes wait; in kOpen they wait for credits; in kClosed, before it is opened again,
// they are calls. What was sent over a channel that broke has an unknown outcome and is not sent
// again.
//
// Threads: the loop's. Bounded: by the caller, who looks at `bytes`.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/client_context.h"
#include "tailcast/cache/mutate_message.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/rpc/rpc.h"

namespace tailcast::cache {

class WriteLink {
 public:
  // Everything but the client outlives it. `rpc`: null: there are no calls.
  WriteLink(ClientContext& context, fabric::Connector& fabric, rpc::Client* rpc,
            const Replica& replica);
  ~WriteLink();
  WriteLink(const WriteLink&) = delete;
  WriteLink& operator=(const WriteLink&) = delete;

  // Why a write brought no answer.
  enum class Failure : uint8_t {
    kNone,
    kNoAddress,
    kTimeout,
    kUnreachable,
    kChannelBroken,
    kBadReply
  };
  struct Outcome {
    Failure failure = Failure::kNone;
    MutateAnswer answer;  // unless there was a failure; its bytes are gone after the call
  };
  using Done = Callback<void(const Outcome&)>;

  // Writes by `deadline`. The message, and what its values view, stays until `done`, which is
  // called once, on a later turn, or until Cancel. Returns the number of the write.
  uint64_t Write(MutateMessage* message, MonotonicTime deadline, Done done);
  // Gives up waiting: `done` is not called. It may have been written, or still be.
  void Cancel(uint64_t write);
  static constexpr Duration kSilenceMax = Duration::Millis(250);

  // Of the channel that is open; without one its address is empty.
  fabric::Way way() const { return state_ == State::kOpen ? way_ : fabric::Way{}; }

  // Of the writes that have no outcome.
  uint64_t bytes() const { return bytes_; }

 private:
  enum class State : uint8_t { kClosed, kOpening, kOpen };
  struct Pending {
    MutateMessage* message = nullptr;
    MonotonicTime deadline;
    bool sent = false;  // over the channel: if that breaks, nobody knows
    MonotonicTime sent_at;
    Done done;
  };

  void Open();
  void OnOpened(Result<fabric::BestChannel> best);
  void SetCallbacks(fabric::Channel* channel);
  void Adopt(fabric::BestChannel best);
  // Open by less than the best address: sees now and then whether a better one works, and moves to
  // it between two writes, so that the outcome of none is lost.
  void LookForBetter();
  void OnAnswer(uint64_t write, std::string_view answer);
  void OnBroken();
  // One that was sent at `sent` is given up.
  void OnSilence(MonotonicTime sent);
  // Sends what waits, as far as there are credits.
  void SendWaiting();
  void Call(uint64_t write);
  void OnReply(uint64_t write, const Result<std::string>& reply);
  void Finish(uint64_t write, const Outcome& outcome);

  ClientContext& context_;
  fabric::Connector& fabric_;
  rpc::Client* const rpc_;
  const std::vector<std::string> addresses_;
  State state_ = State::kClosed;
  ReplicaHealth health_;  // of its channels
  std::map<uint64_t, Pending> pending_;
  std::deque<uint64_t> waiting_;  // for the channel, in order
  uint64_t next_write_ = 1;
  uint64_t bytes_ = 0;
  std::unique_ptr<fabric::Channel> channel_;
  fabric::Way way_;                            // of it
  std::optional<fabric::BestChannel> better_;  // to be moved to
  MonotonicTime look_better_at_;
  // Since when nothing was answered, as writes that were given up show; reset by each answer.
  std::optional<MonotonicTime> silent_since_;
  Timer silence_;
  Scope scope_;
};

}  // namespace tailcast::cache
