// One end of a message channel over a queue pair: which packets go out, when, and what comes of
// those that arrive. No I/O. Messages are cut into packets of kVerbsPacketBytes at most, each of
// which is one SEND and takes one receive buffer of the other end.
//
//   client                                            server: kVerbsServerReceives packets
//     [0 ....][0 .. last][1 last]  ──── 3 credits ──▶
//                                  ◀─────────────────  [answer 0, credits 3][answer 1]
//
// What a SEND finds at the other end:
//   * The client has a credit for each of kVerbsServerReceives packets, twice as many as the longest
//     message takes. They come back with answers: who has none left has sent the end of a message
//     that was not answered yet. The server has a buffer for each of them, because a SEND without
//     one ends an iWARP connection; or shares buffers among its clients, where devices repeat such
//     SENDs (verbs_pool_core.h).
//   * The server needs no credits. Of answers that the client has not taken there are as many as it
//     may have unanswered messages, and it has a buffer for each, which it posts again before it
//     makes use of what came in it.
//
// Packets that end a message are marked (`solicited`), for who asks to be woken by these alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/fabric/channel.h"

namespace tailcast::fabric {

inline constexpr uint32_t kVerbsPacketBytes = 4160;
inline constexpr uint32_t kVerbsServerReceives = 64;
inline constexpr uint32_t kVerbsClientReceives = kMessageWindow;

// The head of a packet; `bytes` of the message follow.
struct VerbsPacket {
  uint32_t bytes;
  uint16_t credits;  // the server's: buffers that it has posted again
  uint8_t last;      // 1: the message ends here; a packet before it is full
  uint8_t reserved;  // 0
  uint64_t number;   // of the message, from 0 in each direction
};
static_assert(sizeof(VerbsPacket) == 16);
inline constexpr uint32_t kVerbsPayloadBytes = kVerbsPacketBytes - sizeof(VerbsPacket);
static_assert(kAnswerBytesMax <= kVerbsPayloadBytes);
static_assert(2 * ((kMessageBytesMax + kVerbsPayloadBytes - 1) / kVerbsPayloadBytes) <=
              kVerbsServerReceives);

// Not thread-safe.
class VerbsMessagesCore {
 public:
  enum class Side : uint8_t { kClient, kServer };
  // `slots`: packets that are posted and not sent yet.
  VerbsMessagesCore(Side side, uint32_t slots);

  // Queues a message. The caller bounds how many there are.
  void Send(std::span<const std::string_view> parts);
  struct Out {
    uint32_t slot = 0;
    uint32_t bytes = 0;
    bool solicited = false;
    bool signaled = false;  // its completion is one of all that were posted before it, too
  };
  // The next packet, if one may go out; it lies in `memory` at slot * kVerbsPacketBytes. Call it
  // until there is none whenever something was queued, was sent or has arrived.
  std::optional<Out> Next(std::span<char> memory);
  // One that was signaled, the oldest, is complete.
  void OnSent();
  // Packets wait for a slot: the next completion of a send is news.
  bool waits_for_slot() const { return posted_ - done_ == slots_ && HasNext(); }
  uint64_t outstanding() const { return posted_ - done_; }
  // Messages that have not gone out whole.
  size_t queued() const { return queue_.size(); }

  // A packet arrived, whose buffer will be posted again before Next is called. Null, or what is
  // wrong with it.
  const char* OnPacket(std::span<const char> packet);
  // The whole messages that have arrived, in order. They are the caller's to empty.
  std::vector<std::string>& messages() { return messages_; }
  // A message has begun to arrive and not ended.
  bool begun() const { return begun_; }
  // Every packet is signaled: for devices that go on to read what was sent without (siw).
  void SignalAll() { signal_all_ = true; }

 private:
  struct Queued {
    std::string bytes;
    uint64_t number = 0;
    size_t sent = 0;
  };
  bool HasNext() const;

  const Side side_;
  const uint32_t slots_;
  uint32_t credits_;   // the client's
  uint32_t owed_ = 0;  // the server's
  std::deque<Queued> queue_;
  uint64_t queued_ = 0;  // messages, ever
  uint64_t posted_ = 0, done_ = 0;
  uint64_t last_signaled_ = 0;
  bool signal_all_ = false;
  std::deque<uint64_t> signaled_;  // posted_ after each, of those that are not complete

  std::vector<std::string> messages_;
  std::string message_;  // the one that arrives
  bool begun_ = false;
  uint64_t received_ = 0;
};

}  // namespace tailcast::fabric
