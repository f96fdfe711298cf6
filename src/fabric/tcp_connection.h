// One reader's connection at the tcp door. Only tcp_*.cc of the server's end include it.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/tcp_door.h"
#include "tailcast/fabric/tcp_wire.h"

namespace tailcast::fabric {

// Of one that was let in. Requests are parsed as they come and queued; answers go out in order, one
// frame at a time, with control frames between them.
class TcpDoor::Connection final : public Reactor::Handler {
 public:
  Connection(TcpDoor* door, Descriptor fd, std::string peer);
  ~Connection();

  void OnEvents(uint32_t events) override;
  // Tells the reader the regions, and binds it to their generations. Once, before all else.
  void Welcome(TcpWelcome welcome);
  // Since when nothing comes of it: no byte at all, or no end of a frame that began, or no byte is
  // taken of what waits for it. Max: it may go on like that.
  MonotonicTime stuck_since() const {
    return std::min({silent() ? MonotonicTime::Max() : heard_, frame_since_, taken_});
  }
  const std::string& peer() const { return peer_; }
  int fd() const { return fd_.get(); }
  // It reads by verbs, and says nothing for as long as it likes.
  bool silent() const { return verbs_ticket_ != 0; }

  // An answer to a watch, now or later. Call Send after it; the connection may be gone then.
  void QueueNotification(uint64_t id, WatchOutcome outcome);
  // Sends what can be sent now; the rest when it is this connection's turn. May destroy this.
  void Send();
  // Of what waits, sends as much as the socket takes, or as much as others can wait for: more if it
  // stood in line for it (TcpDoor::StandInLine). May destroy this.
  void TakeTurn();

 private:
  struct Watch {
    WordKey key;
    WatcherPlace place;
  };

  // False if the connection is gone.
  bool Receive();
  bool TakeFrames();
  bool TakeFrame(const TcpFrame& frame, const char* body);
  bool TakeWatch(uint64_t id, const TcpWatch& watch);
  bool TakeVerbsAsk();
  bool HasCreditFor(size_t count);  // else it is closed
  bool Fail(const std::string& why);
  // Of ranges that are of the regions.
  ReadStatus Check(const Range& range, bool stopped) const;
  ReadStatus Check(const ScanPlan& plan, bool stopped) const;
  // Makes the frame that goes out next. False: there is none.
  bool NextFrame();
  // As sendmsg.
  ssize_t SendParts(size_t bytes_max);
  // Each makes the frame that goes out next of those that have waited longest.
  void BuildAnswers();
  void BuildScanned();
  // The answers lie in frame_head_, behind room for the header; ranges_ follow them.
  void FinishFrame(TcpOp op, size_t count);

  TcpDoor* const door_;
  Descriptor fd_;
  const std::string peer_;
  MonotonicTime heard_;
  MonotonicTime frame_since_ = MonotonicTime::Max();  // Max: no frame has begun
  MonotonicTime taken_ = MonotonicTime::Max();        // Max: nothing waits
  bool wants_out_ = false;
  bool in_line_ = false;  // for its next turn, see TcpDoor::StandInLine
  std::vector<Generation> generations_;
  uint64_t verbs_ticket_ = 0;  // of its queue pair, see VerbsOffers

  std::vector<char> in_;
  size_t in_used_ = 0;
  std::deque<TcpRead> reads_;
  std::deque<TcpScan> scans_;
  bool scans_next_ = false;  // reads and scans take turns
  std::unordered_map<uint64_t, Watch> watches_;

  std::string control_;  // frames that go before the next answer frame
  // The frame that is going out: parts_[part_...] are left. They point into frame_head_, inline_
  // and the regions.
  std::string frame_head_;
  std::vector<char> inline_;
  std::vector<Range> ranges_;
  std::vector<iovec> parts_;
  size_t part_ = 0;
};

}  // namespace tailcast::fabric
