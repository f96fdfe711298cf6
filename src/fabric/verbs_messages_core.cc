#include "tailcast/fabric/verbs_messages_core.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tailcast/base/check.h"

namespace tailcast::fabric {

VerbsMessagesCore::VerbsMessagesCore(Side side, uint32_t slots)
    : side_(side), slots_(slots), credits_(side == Side::kClient ? kVerbsServerReceives : 0) {
  TAILCAST_CHECK(slots >= 2, "a channel that could send nothing");
}

void VerbsMessagesCore::Send(std::span<const std::string_view> parts) {
  size_t bytes = 0;
  for (const std::string_view part : parts) bytes += part.size();
  Queued& message = queue_.emplace_back();
  message.bytes.reserve(bytes);
  for (const std::string_view part : parts) message.bytes.append(part);
  message.number = queued_++;
}

bool VerbsMessagesCore::HasNext() const {
  return !queue_.empty() && (side_ == Side::kServer || credits_ > 0);
}

std::optional<VerbsMessagesCore::Out> VerbsMessagesCore::Next(std::span<char> memory) {
  if (posted_ - done_ == slots_ || !HasNext()) return std::nullopt;
  Out out{.slot = static_cast<uint32_t>(posted_ % slots_)};
  char* const packet = memory.data() + size_t{out.slot} * kVerbsPacketBytes;
  Queued& message = queue_.front();
  const auto bytes = static_cast<uint32_t>(
      std::min<size_t>(message.bytes.size() - message.sent, kVerbsPayloadBytes));
  std::memcpy(packet + sizeof(VerbsPacket), message.bytes.data() + message.sent, bytes);
  message.sent += bytes;
  const VerbsPacket head{.bytes = bytes,
                         .credits = static_cast<uint16_t>(std::exchange(owed_, 0)),
                         .last = static_cast<uint8_t>(message.sent == message.bytes.size()),
                         .reserved = 0,
                         .number = message.number};
  if (side_ == Side::kClient) --credits_;
  out.solicited = head.last != 0;
  if (head.last != 0) queue_.pop_front();
  std::memcpy(packet, &head, sizeof(head));
  out.bytes = static_cast<uint32_t>(sizeof(head)) + head.bytes;
  ++posted_;
  // The last one that goes out now, and one of each half of the slots.
  out.signaled = signal_all_ || posted_ - done_ == slots_ || !HasNext() ||
                 posted_ - last_signaled_ >= slots_ / 2;
  if (out.signaled) {
    last_signaled_ = posted_;
    signaled_.push_back(posted_);
  }
  return out;
}

void VerbsMessagesCore::OnSent() {
  if (signaled_.empty()) return;
  done_ = signaled_.front();
  signaled_.pop_front();
}

const char* VerbsMessagesCore::OnPacket(std::span<const char> packet) {
  VerbsPacket head;
  if (packet.size() < sizeof(head)) return "a packet without a head";
  std::memcpy(&head, packet.data(), sizeof(head));
  if (head.bytes != packet.size() - sizeof(head) || head.last > 1 || head.reserved != 0) {
    return "a packet that does not add up";
  }
  if (side_ == Side::kServer) {
    if (head.credits != 0) return "credits that nobody needs";
    if (++owed_ > kVerbsServerReceives) return "more packets than it has credits for";
  } else {
    if (head.credits > kVerbsServerReceives - credits_) return "more credits than it has buffers";
    credits_ += head.credits;
  }
  if (head.number != received_) return "a message out of turn";
  const bool server = side_ == Side::kServer;
  if (message_.size() + head.bytes > (server ? kMessageBytesMax : kAnswerBytesMax) ||
      (head.last == 0 && head.bytes != kVerbsPayloadBytes) ||
      (server && message_.size() + head.bytes == 0)) {
    return "a message of no such length";
  }
  message_.append(packet.data() + sizeof(head), head.bytes);
  begun_ = head.last == 0;
  if (begun_) return nullptr;
  messages_.push_back(std::exchange(message_, {}));
  ++received_;
  return nullptr;
}

}  // namespace tailcast::fabric
