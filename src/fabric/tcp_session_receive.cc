// The receiving end of a TcpSession: frames, and payload straight to where it belongs.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tailcast/base/log.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/tcp_session.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
constexpr size_t kSinkBytes = 64 << 10;
constexpr size_t kPartsMax = 512;
// Receive calls before the thread looks at its other endpoints.
constexpr int kReceivesPerTurn = 8;

}  // namespace

std::string TcpSession::Receive() {
  std::array<iovec, kPartsMax + 1> parts;
  for (int round = 0; round < kReceivesPerTurn; ++round) {
    if (closed_) return "";
    // Missing payload first, straight to where it belongs; then the frames after it.
    size_t count = 0;
    size_t wanted = 0;
    bool sunk = false;
    for (size_t i = segment_; i < segments_.size() && count + 2 <= kPartsMax; ++i) {
      const Segment& segment = segments_[i];
      const Slot& slot = SlotOf(segment.tag);
      const uint32_t padded = PaddedLength(segment.length);
      if (segment.got < segment.length) {
        const size_t missing = segment.length - segment.got;
        if (IsSunk(slot)) {
          if (sink_.empty()) sink_.resize(kSinkBytes);
          const size_t piece = std::min(missing, kSinkBytes);
          parts[count++] = {sink_.data(), piece};
          wanted += piece;
          if (piece < missing) {
            sunk = true;
            break;
          }
        } else {
          parts[count++] = {segment.destination + segment.got, missing};
          wanted += missing;
        }
      }
      const size_t padding = padded - std::max(segment.got, segment.length);
      if (padding != 0) {
        static thread_local char ignored[8];
        parts[count++] = {ignored, padding};
        wanted += padding;
      }
      sunk = i + 1 < segments_.size() && count + 2 > kPartsMax;
    }
    if (!sunk) {
      parts[count++] = {in_.data() + in_end_, in_.size() - in_end_};
      wanted += in_.size() - in_end_;
    }
    msghdr message{.msg_iov = parts.data(), .msg_iovlen = count};
    const ssize_t n = recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return "";
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::string("the connection broke: ") + std::strerror(errno);
    if (n == 0) return "the server closed the connection";
    heard_ = ReadMonotonicClock();
    in_end_ += Distribute(static_cast<size_t>(n));
    if (std::string wrong = TakeBuffered(); !wrong.empty()) return wrong;
    if (state_ == State::kClosed) return "";
    if (static_cast<size_t>(n) < wanted) return "";  // that was all there is
  }
  return "";
}

// Counts `bytes` received into segments; returns how many lie in in_ instead.
size_t TcpSession::Distribute(size_t bytes) {
  while (bytes > 0 && segment_ < segments_.size()) {
    Segment& segment = segments_[segment_];
    const uint32_t padded = PaddedLength(segment.length);
    const size_t take = std::min<size_t>(bytes, padded - segment.got);
    segment.got += static_cast<uint32_t>(take);
    bytes -= take;
    if (segment.got < padded) break;
    CompleteSegment(segment);
    ++segment_;
  }
  return bytes;
}

void TcpSession::CompleteSegment(const Segment& segment) {
  if (!segment.last) return;
  Complete(SlotOf(segment.tag), ReadStatus::kOk);
  AdvanceBase();
}

void TcpSession::Complete(Slot& slot, ReadStatus status) {
  slot.state = SlotState::kDone;
  if (slot.abandoned) {
    freed_abandoned_ = true;
  } else {
    fresh_.push_back({slot.token, status});
  }
}

void TcpSession::AdvanceBase() {
  uint64_t base = base_.load(std::memory_order_relaxed);
  const uint64_t tail = tail_.load(std::memory_order_acquire);
  while (base < tail && SlotOf(base).state == SlotState::kDone) ++base;
  base_.store(base, std::memory_order_release);
}

std::string TcpSession::TakeBuffered() {
  for (;;) {
    const size_t buffered = in_end_ - in_begin_;
    if (segment_ < segments_.size()) {
      Segment& segment = segments_[segment_];
      const uint32_t padded = PaddedLength(segment.length);
      const size_t take = std::min<size_t>(buffered, padded - segment.got);
      if (take == 0 && padded != segment.got) break;
      if (segment.got < segment.length && !IsSunk(SlotOf(segment.tag))) {
        std::memcpy(segment.destination + segment.got, in_.data() + in_begin_,
                    std::min<size_t>(take, segment.length - segment.got));
      }
      segment.got += static_cast<uint32_t>(take);
      in_begin_ += take;
      if (segment.got < padded) break;
      CompleteSegment(segment);
      ++segment_;
      continue;
    }
    if (buffered < sizeof(TcpFrame)) break;
    const auto frame = TakeFrom<TcpFrame>(in_.data() + in_begin_);
    if (frame.body_bytes > kTcpReplyBodyMax || frame.body_bytes % 8 != 0 || frame.flags != 0) {
      BadInput("tcp", "client").Add();
      return "a frame of " + std::to_string(frame.body_bytes) + " bytes";
    }
    if (buffered < sizeof(frame) + frame.body_bytes) break;
    const char* body = in_.data() + in_begin_ + sizeof(frame);
    in_begin_ += sizeof(frame) + frame.body_bytes;
    if (std::string wrong = TakeFrame(frame, body); !wrong.empty()) {
      BadInput("tcp", "client").Add();
      kLog.Warn("closing the connection to ", name(), ": ", wrong);
      return wrong;
    }
  }
  if (in_begin_ > 0) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  return "";
}

std::string TcpSession::TakeFrame(const TcpFrame& frame, const char* body) {
  switch (frame.op) {
    case TcpOp::kAnswer:
      return TakeAnswers(frame, body);
    case TcpOp::kScanned:
      return TakeScanned(frame, body);
    case TcpOp::kNotify: {
      if (frame.body_bytes != 0 || frame.count > static_cast<uint16_t>(WatchOutcome::kRefused)) {
        return "a notification that does not add up";
      }
      std::lock_guard lock(done_mutex_);
      notifications_.push_back({frame.argument, static_cast<WatchOutcome>(frame.count)});
      return "";
    }
    case TcpOp::kPong:
      return frame.body_bytes == 0 ? "" : "a pong that does not add up";
    case TcpOp::kVerbsOffer:
      if (!on_offer_) return "an offer that nobody asked for";
      offered_ = {std::string(body, frame.body_bytes), frame.count};
      return "";
    default:
      return "an unknown frame, number " + std::to_string(static_cast<int>(frame.op));
  }
}

TcpSession::Slot* TcpSession::WaitingSlot(uint64_t tag) {
  if (tag < base_.load(std::memory_order_relaxed) || tag >= tail_.load(std::memory_order_acquire)) {
    return nullptr;
  }
  Slot& slot = SlotOf(tag);
  return slot.state == SlotState::kWaiting ? &slot : nullptr;
}

std::string TcpSession::TakeAnswers(const TcpFrame& frame, const char* body) {
  if (frame.count == 0 || frame.count > kTcpBatchMax ||
      frame.body_bytes != frame.count * sizeof(TcpAnswer)) {
    return "an answer that does not add up";
  }
  segments_.clear();
  segment_ = 0;
  uint64_t payload = 0;
  for (uint16_t i = 0; i < frame.count; ++i) {
    const auto answer = TakeFrom<TcpAnswer>(body + i * sizeof(TcpAnswer));
    Slot* const slot = WaitingSlot(answer.tag);
    if (slot == nullptr || slot->scan != nullptr) return "an answer to a read that does not wait";
    if (answer.status > ReadStatus::kOverloaded ||
        answer.length != (answer.status == ReadStatus::kOk ? slot->length : 0)) {
      return "an answer of the wrong length";
    }
    if (answer.status != ReadStatus::kOk) {
      Complete(*slot, answer.status);
      continue;
    }
    slot->state = SlotState::kArriving;
    segments_.push_back(
        {.tag = answer.tag, .destination = slot->destination, .length = answer.length});
    payload += PaddedLength(answer.length);
  }
  if (payload != frame.argument) return "an answer whose payload does not add up";
  AdvanceBase();
  return "";
}

std::string TcpSession::TakeScanned(const TcpFrame& frame, const char* body) {
  if (frame.count == 0 || frame.count > kTcpScansMax ||
      frame.body_bytes != frame.count * sizeof(TcpScanned)) {
    return "an answer to scans that does not add up";
  }
  segments_.clear();
  segment_ = 0;
  uint64_t payload = 0;
  for (uint16_t i = 0; i < frame.count; ++i) {
    const auto answer = TakeFrom<TcpScanned>(body + i * sizeof(TcpScanned));
    Slot* const slot = WaitingSlot(answer.tag);
    if (slot == nullptr || slot->scan == nullptr) return "an answer to a scan that does not wait";
    const bool ok = answer.status == ReadStatus::kOk;
    if (answer.status > ReadStatus::kOverloaded || answer.ranges > (ok ? kScanRangesMax : 0)) {
      return "an answer to a scan of too many ranges";
    }
    if (!ok) {
      Complete(*slot, answer.status);
      continue;
    }
    slot->state = SlotState::kArriving;
    // Of an abandoned one nobody knows what it had room for: its bytes go nowhere.
    ScanRead* const scan = slot->abandoned ? nullptr : slot->scan;
    ScanPlan found{.ranges = {}, .count = answer.ranges};
    const size_t first = segments_.size();
    for (uint8_t r = 0; r < answer.ranges; ++r) {
      const TcpScanned::Part& part = answer.parts[r];
      if (part.length > (scan != nullptr ? scan->parts[r].capacity : kReadBytesMax)) {
        return "an answer to a scan that is longer than there is room for";
      }
      found.ranges[r] = {.region = part.region, .length = part.length, .offset = part.offset};
      payload += PaddedLength(part.length);
      char* const destination = scan != nullptr ? scan->parts[r].destination : nullptr;
      Segment* const before = segments_.size() > first ? &segments_.back() : nullptr;
      if (before != nullptr && before->length % 8 == 0 &&
          (scan == nullptr || before->destination + before->length == destination)) {
        before->length += part.length;
      } else {
        segments_.push_back({.tag = answer.tag,
                             .destination = destination,
                             .got = 0,
                             .length = part.length,
                             .last = false});
      }
    }
    if (segments_.size() == first) segments_.push_back({.tag = answer.tag});
    segments_.back().last = true;
    if (scan != nullptr) scan->found = found;
  }
  if (payload != frame.argument) return "an answer whose payload does not add up";
  AdvanceBase();
  return "";
}

}  // namespace tailcast::fabric
