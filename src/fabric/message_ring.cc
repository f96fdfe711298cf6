#include "tailcast/fabric/message_ring.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

namespace tailcast::fabric {
namespace {

// In front of each message.
struct RecordHeader {
  uint32_t bytes;   // of the message, without padding
  uint32_t number;  // of the messages of this ring, from 0
};
static_assert(sizeof(RecordHeader) == 8);

}  // namespace

void RingWriter::Copy(uint64_t at, std::string_view bytes) {
  if (bytes.empty()) return;
  const uint64_t place = at % ring_.size;
  const uint64_t first = std::min<uint64_t>(bytes.size(), ring_.size - place);
  std::memcpy(ring_.bytes + place, bytes.data(), first);
  std::memcpy(ring_.bytes, bytes.data() + first, bytes.size() - first);
}

bool RingWriter::Put(std::span<const std::string_view> parts) {
  uint64_t at = written_ + sizeof(RecordHeader);
  uint64_t bytes = 0;
  for (const std::string_view part : parts) {
    Copy(at + bytes, part);
    bytes += part.size();
  }
  const RecordHeader header{static_cast<uint32_t>(bytes), number_++};
  Copy(written_, {reinterpret_cast<const char*>(&header), sizeof(header)});
  written_ += RecordBytes(bytes);
  ring_.words->written.store(written_, std::memory_order_release);
  // The message before the look at who sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Who is woken once for several messages is woken well.
  return ring_.words->reader_sleeps.load(std::memory_order_relaxed) != 0 &&
         ring_.words->reader_sleeps.exchange(0, std::memory_order_relaxed) != 0;
}

void RingWriter::Wake() const {
  syscall(SYS_futex, ring_.words->sleep_word(), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void RingReader::Copy(uint64_t at, char* to, uint64_t size) const {
  const uint64_t place = at % ring_.size;
  const uint64_t first = std::min(size, ring_.size - place);
  std::memcpy(to, ring_.bytes + place, first);
  std::memcpy(to + first, ring_.bytes, size - first);
}

RingReader::Found RingReader::Take(std::string_view* message) {
  const uint64_t written = ring_.words->written.load(std::memory_order_acquire);
  if (written == read_) return Found::kNothing;
  const uint64_t there = written - read_;
  RecordHeader header;
  if (there > ring_.size || there < sizeof(header)) return Found::kBroken;
  Copy(read_, reinterpret_cast<char*>(&header), sizeof(header));
  if (header.bytes < bytes_min_ || header.bytes > bytes_max_ || RecordBytes(header.bytes) > there ||
      header.number != number_) {
    return Found::kBroken;
  }
  Copy(read_ + sizeof(header), copy_.get(), header.bytes);
  *message = {copy_.get(), header.bytes};
  read_ += RecordBytes(header.bytes);
  ++number_;
  return Found::kMessage;
}

void RingReader::SaySleeps() {
  ring_.words->reader_sleeps.store(1, std::memory_order_relaxed);
  // Saying so before the second look, which is that of whoever sleeps on the word.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace tailcast::fabric
