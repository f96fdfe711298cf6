// The message channel of the fabric: a client's messages to one server, each of which is answered.
// Mutations of the cache travel over it (spec Channel). Over shm it is two rings in memory that the
// client owns, over tcp frames on a socket of its own, over verbs SENDs.
//
// A message is handled once at most and in the order of sending; its answer comes back in that
// order, too. What has no answer when the connection breaks may have been handled or not: nothing
// is sent again. Credits bound what is under way, and return with the answers: a server never waits
// for a client.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tailcast/base/callback.h"
#include "tailcast/base/check.h"

namespace tailcast::fabric {

inline constexpr uint32_t kMessageBytesMax = 128 << 10;
// With its header an answer then takes 4 KiB of the ring at most.
inline constexpr uint32_t kAnswerBytesMax = (4 << 10) - 8;
// Credits: messages of one channel without an answer, and the bytes of them (message_window.h).
inline constexpr uint32_t kMessageWindow = 64;
inline constexpr uint32_t kMessageWindowBytes = 1 << 20;

// The length of a message of these parts; another one than a message may have is our bug.
inline uint32_t MessageBytes(std::span<const std::string_view> parts) {
  size_t bytes = 0;
  for (const std::string_view part : parts) bytes += part.size();
  TAILCAST_CHECK(bytes > 0 && bytes <= kMessageBytesMax, "a message of no such length");
  return static_cast<uint32_t>(bytes);
}

// The client's end. All calls and callbacks on the connector's loop.
class Channel {
 public:
  // What was sent may still be handled. No callback after it.
  virtual ~Channel() = default;
  // False for ever once the connection broke: open a new one.
  virtual bool connected() const = 0;
  // Sends the bytes of `parts`, one behind the other, as one message; they are copied inside the
  // call. False, and nothing was sent: no credit (then an answer will come that returns some), or
  // not connected. More than kMessageBytesMax, or nothing, is our bug.
  virtual bool Send(std::span<const std::string_view> parts, uint64_t token) = 0;

  struct Callbacks {
    // Many times, in the order of sending; the answer's bytes are gone after the call. It may send,
    // and may destroy the channel.
    Callback<void(uint64_t token, std::string_view answer)> on_answer;
    // Once: what was not answered never will be. It may destroy the channel.
    Callback<void()> on_broken;
  };
  // Both, in the turn in which the channel was obtained.
  virtual void SetCallbacks(Callbacks callbacks) = 0;
};

// Called for each message, many times; it fills `answer` (which is empty), kAnswerBytesMax at most.
// The message's bytes are private to this process and gone after the call. Not inside it:
// Invalidate and the end of the exporter.
using MessageHandler = Callback<void(std::string_view message, std::string& answer)>;

}  // namespace tailcast::fabric
