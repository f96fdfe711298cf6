#include "tailcast/app/monitor_core.h"

#include <string>

#include "tailcast/base/crc32c.h"

namespace tailcast::app {
namespace {

Hash128Value DigestOf(const consumer::Message& message) {
  Hash128Value digest = Hash128(message.payload, Crc32c(message.headers.bytes()));
  digest.hi ^= static_cast<uint64_t>(message.byte) * 0x9e3779b97f4a7c15ull;
  digest.lo ^= static_cast<uint64_t>(message.time_us) * 0xc2b2ae3d27d4eb4full;
  return digest;
}

std::string NameOf(const consumer::Message& message) {
  return "message " + std::to_string(message.number) + " of shard " + std::to_string(message.shard);
}

}  // namespace

std::string MonitorCore::CheckOrder(Side& side, const consumer::Message& message) {
  std::string wrong;
  if (side.given && (message.number != side.next_number || message.byte != side.next_byte)) {
    wrong = NameOf(message) + " at byte " + std::to_string(message.byte) + " came where message " +
            std::to_string(side.next_number) + " at byte " + std::to_string(side.next_byte) +
            " is next";
  } else if (side.given && message.time_us < side.time_us) {
    wrong = NameOf(message) + " was published before the one before it";
  }
  if (!wrong.empty()) ++counts_.disorderly;
  side.given = true;
  side.next_number = message.number + 1;
  side.next_byte = message.end_byte();
  side.time_us = message.time_us;
  return wrong;
}

std::string MonitorCore::OnMessage(From from, const consumer::Message& message) {
  Shard& shard = shards_[message.shard];
  Side& side = shard.sides[static_cast<size_t>(from)];
  Side& other = shard.sides[1 - static_cast<size_t>(from)];
  std::string wrong = CheckOrder(side, message);
  // The other one gives nothing before this any more, or has given it.
  const auto found = other.waiting.find(message.number);
  if (found == other.waiting.end()) {
    if (other.given && message.number < other.next_number) {
      ++counts_.uncompared;
      return wrong;
    }
    side.waiting[message.number] = DigestOf(message);
    if (side.waiting.size() > kWindowMessages) Forget(side, side.waiting.begin()->first + 1);
    return wrong;
  }
  Forget(other, message.number);
  const bool same = found->second == DigestOf(message);
  other.waiting.erase(found);
  ++(same ? counts_.compared : counts_.different);
  if (!same && wrong.empty()) wrong = NameOf(message) + " is not what it is at the source";
  return wrong;
}

void MonitorCore::Forget(Side& side, int64_t below) {
  const auto end = side.waiting.lower_bound(below);
  for (auto it = side.waiting.begin(); it != end; it = side.waiting.erase(it)) ++counts_.uncompared;
}

void MonitorCore::OnSeek(From from, int32_t shard) {
  shards_[shard].sides[static_cast<size_t>(from)].given = false;
}

}  // namespace tailcast::app
