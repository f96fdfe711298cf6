// A connection between two simulated processes, as TCP keeps one below gRPC: all calls and streams
// of a client to one address travel on it. Internal to the module.
//
//   message ──► link open ─────────────────► arrives after delay, jitter and its turn on the wire
//          └──► link cut: kept, in order ──► link mended: sent again, some time later
//                                       └──► cut for too long: the connection breaks, both ends are
//                                            told, and what it kept is gone
//
// So a stream never has a gap: it stalls, or it ends. An end that is idle in an open direction
// breaks all the same, because nobody acknowledges what it sends. Side 0 is the client's.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/sim/sim_rpc.h"

namespace tailcast::sim {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // A call or a stream.
  struct Exchange {
    virtual ~Exchange() = default;
    // On the loop of that side: there is no connection any more. At most once for each side.
    virtual void OnBroken(int side, const Status& why) = 0;
  };
  // Messages of one lane arrive in the order of sending; others overtake each other.
  struct Lane {
    MonotonicTime last_arrival;
  };
  struct Message {
    size_t bytes = 0;
    uint32_t digest = 0;   // of what it carries, for the trace
    Lane* lane = nullptr;  // lives as long as the task; null: on its own
    bool last = false;     // arrives after everything else
    Task arrived;          // on the receiver's loop
    Task left;             // on the sender's loop, when the link has taken it; may be empty
  };

  // Side 1 is whoever serves `address` now; nobody: the client is refused.
  Connection(Network& network, Network::End client, std::string address);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  // After the constructor, once there is a shared_ptr.
  void Start();

  void Add(std::weak_ptr<Exchange> exchange);
  void Send(int from, Message message);
  const Network::End& end(int side) const { return ends_[side]; }
  const std::string& address() const { return address_; }
  // The client knows that it is gone: the next call needs a new one.
  bool over() const { return gone_[0]; }

  size_t kept() const { return kept_[0].size() + kept_[1].size(); }

  // A link or a process was cut off or is back.
  void OnCuts();
  // Both ends are told after a delay of the link's: somebody on the way has reset it.
  void Reset();
  // The process of that side has ended; the other one hears of it after all that was sent.
  void OnDeath(int side);
  // The network ends: it keeps nothing.
  void Drop() {
    kept_[0].clear();
    kept_[1].clear();
  }

 private:
  bool Blocked(int from) const { return cut_[from] || (!established_ && (cut_[0] || cut_[1])); }
  void Transmit(int from, Message message);
  void Arrive(int to, MonotonicTime when, Task task);
  void Flush(int from);
  void Refuse();
  void GiveUp();
  void BreakAt(int side, Duration after, Status why);
  void Break(int side, const Status& why);

  Network& network_;
  Network::End ends_[2];
  const std::string address_;
  Network::LinkState* links_[2];  // from that side
  bool established_ = false;
  bool cut_[2] = {false, false};
  bool gone_[2] = {false, false};  // that side knows that it is over, or has died itself
  bool dying_ = false;             // one end has died, or a break is on its way to both
  MonotonicTime cut_since_;
  MonotonicTime last_arrival_[2];  // of anything from that side
  std::deque<Message> kept_[2];    // while cut
  std::vector<std::weak_ptr<Exchange>> exchanges_;
  TimerId break_timer_ = 0;  // on the network's loop
  TimerId flush_timers_[2] = {0, 0};
  Scope scope_;
};

}  // namespace tailcast::sim
