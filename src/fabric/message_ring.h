// The memory of an shm channel: two rings, one for messages and one for answers, each written by
// one side and read by the other, and the words by which who sleeps is woken. It belongs to the
// client; drawn in docs/formats/fabric_shm.md.
//
// Neither side believes the other: a reader looks at the writer's count once, checks it, and checks
// and hands out only its own copies. Room is not a question of the ring: credits see to it
// (message_window.h), and a client that sends without them spoils its own messages.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "tailcast/fabric/channel.h"
#include "tailcast/fabric/message_window.h"

namespace tailcast::fabric {

// Bytes ever written to a ring; the low half is the word that its reader sleeps on. Whether it
// sleeps: then the writer wakes it.
struct RingWords {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint32_t> reader_sleeps;

  const std::atomic<uint32_t>* sleep_word() const {
    return reinterpret_cast<const std::atomic<uint32_t>*>(&written);
  }
};
struct ChannelPage {
  RingWords messages, answers;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

inline constexpr uint64_t kChannelPageBytes = 4096;
inline constexpr uint64_t kMessageRingBytes = kMessageWindowBytes;
inline constexpr uint64_t kAnswerRingBytes = kMessageWindow * RecordBytes(kAnswerBytesMax);
// The whole of it: page, messages, answers.
inline constexpr uint64_t kChannelBytes = kChannelPageBytes + kMessageRingBytes + kAnswerRingBytes;
static_assert(sizeof(ChannelPage) <= kChannelPageBytes);
// What the server adds to the client's F_SEAL_SHRINK and F_SEAL_GROW when it has mapped it:
// mappings that exist stay writable, no page can be taken out any more.
inline constexpr int kChannelSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
// Positions in a ring are counts modulo its size.
static_assert((kMessageRingBytes & (kMessageRingBytes - 1)) == 0);
static_assert((kAnswerRingBytes & (kAnswerRingBytes - 1)) == 0);

// A ring in somebody's mapping of a channel's memory.
struct RingMemory {
  RingWords* words = nullptr;
  char* bytes = nullptr;
  uint64_t size = 0;

  static RingMemory Messages(char* channel) {
    return {&reinterpret_cast<ChannelPage*>(channel)->messages, channel + kChannelPageBytes,
            kMessageRingBytes};
  }
  static RingMemory Answers(char* channel) {
    return {&reinterpret_cast<ChannelPage*>(channel)->answers,
            channel + kChannelPageBytes + kMessageRingBytes, kAnswerRingBytes};
  }
};

// Threads: one.
class RingWriter {
 public:
  explicit RingWriter(RingMemory ring) : ring_(ring) {}
  // The caller has a credit for it. Returns whether the reader sleeps: then wake it (Wake).
  bool Put(std::span<const std::string_view> parts);
  // Wakes who sleeps on the ring.
  void Wake() const;

 private:
  void Copy(uint64_t at, std::string_view bytes);

  const RingMemory ring_;
  uint64_t written_ = 0;
  uint32_t number_ = 0;
};

// Threads: one.
class RingReader {
 public:
  // `bytes_min`, `bytes_max`: of a message.
  RingReader(RingMemory ring, uint32_t bytes_min, uint32_t bytes_max)
      : ring_(ring), bytes_min_(bytes_min), bytes_max_(bytes_max), copy_(new char[bytes_max]) {}

  enum class Found : uint8_t { kNothing, kMessage, kBroken };
  // kMessage: the next one, in `*message` until the next call. kBroken: the writer broke the
  // protocol; nothing more can be read.
  Found Take(std::string_view* message);

  // To be called after Take found nothing, and before sleeping on `sleep_word` while it is
  // `last_seen`: who does so looks at it once more (ThreadLoop::WatchWord).
  void SaySleeps();
  void SayAwake() { ring_.words->reader_sleeps.store(0, std::memory_order_relaxed); }
  const std::atomic<uint32_t>* sleep_word() const { return ring_.words->sleep_word(); }
  uint32_t last_seen() const { return static_cast<uint32_t>(read_); }

 private:
  void Copy(uint64_t at, char* to, uint64_t size) const;

  const RingMemory ring_;
  const uint32_t bytes_min_, bytes_max_;
  uint64_t read_ = 0;
  uint32_t number_ = 0;
  const std::unique_ptr<char[]> copy_;
};

}  // namespace tailcast::fabric
