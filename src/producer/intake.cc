#include "tailcast/producer/intake.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "tailcast/base/check.h"

namespace tailcast::producer {
namespace {

// Longer waits are waited for in parts: clocks count nanoseconds.
std::chrono::microseconds PartOf(Duration left) {
  return std::chrono::microseconds(std::min(left, Duration::Seconds(3600)).micros());
}

}  // namespace

Status Intake::Room(const Shard& shard, int32_t number, int64_t bytes) const {
  std::string full;
  if (shard.messages >= options_.buffer_messages_max) {
    full = std::to_string(shard.messages) +
           " messages wait for the primary layer, as many as may (buffer_messages_max)";
  } else if (shard.bytes > 0 && shard.bytes + bytes > options_.buffer_bytes_max) {
    full = std::to_string(shard.bytes) + " bytes wait for the primary layer, the limit is " +
           std::to_string(options_.buffer_bytes_max) + " (buffer_bytes_max)";
  } else {
    return OkStatus();
  }
  if (!shard.trouble.ok()) full += ": " + shard.trouble.message();
  return ResourceExhaustedError("shard " + std::to_string(number) + ": " + full);
}

void Intake::SetTrouble(int32_t number, const Status& why) {
  const std::lock_guard lock(mutex_);
  shards_.at(number).trouble = why;
}

Result<bool> Intake::Add(int32_t number, Kind kind, std::string_view headers,
                         std::string_view payload, AckCallback ack, Duration wait) {
  const auto it = shards_.find(number);
  if (it == shards_.end()) {
    return InvalidArgumentError("this producer has no shard " + std::to_string(number));
  }
  TAILCAST_CHECK(kind == Kind::kMessage || headers.empty(), "raw bytes have no headers");
  Shard& shard = it->second;
  if (payload.size() > INT64_MAX / 2) return InvalidArgumentError("a payload of no length");
  const auto size = static_cast<int64_t>(headers.size() + payload.size());
  if (kind == Kind::kMessage && size > options_.message_bytes_max) {
    return InvalidArgumentError(
        "a message of " + std::to_string(size) + " bytes is over the limit of " +
        std::to_string(options_.message_bytes_max) + " bytes (message_bytes_max)");
  }
  // Who tries again and again has them summed once: when there is room.
  if (wait <= Duration()) {
    const std::lock_guard lock(mutex_);
    TAILCAST_RETURN_IF_ERROR(Takes(shard, number, size));
  }
  // Pieces and their check sums, outside of the lock; a message is one piece, without allocation.
  Message first;
  std::vector<Message> more;
  std::string_view rest = payload;
  do {
    const size_t piece = std::min(rest.size(), static_cast<size_t>(options_.message_bytes_max));
    const Message message = MessageOf(headers, rest.substr(0, piece));
    if (rest.size() == payload.size())
      first = message;
    else
      more.push_back(message);
    rest.remove_prefix(piece);
  } while (!rest.empty());

  std::unique_lock lock(mutex_);
  for (std::optional<MonotonicTime> since;;) {
    const Status takes = Takes(shard, number, size);
    if (takes.ok()) break;
    if (closed_ || shard.stopped) return takes;
    const MonotonicTime now = ReadMonotonicClock();
    if (!since) since = now;
    const Duration left = wait - (now - *since);
    if (left <= Duration()) return takes;
    changed_.wait_for(lock, PartOf(left));
  }
  shard.bytes += size;
  ++shard.messages;
  ++totals_.messages;
  totals_.bytes += size;
  // One time per message, under the lock: it never falls within a shard.
  first.time_us = ReadWallClock().micros();
  shard.waiting.bytes.append(headers).append(payload);
  shard.waiting.messages.push_back(first);
  for (Message& message : more) {
    message.time_us = first.time_us;
    shard.waiting.messages.push_back(message);
  }
  const MonotonicTime taken = ReadMonotonicClock();
  shard.waiting.acks.emplace_back(
      static_cast<uint32_t>(shard.waiting.messages.size() - 1),
      [this, number, &shard, size, taken, ack = std::move(ack)](const Ack& result) mutable {
        // Whoever is told that the shard has stopped must not find it open a moment later.
        if (result.outcome != AckOutcome::kDurable) Stop(number, result.error);
        if (ack) ack(result);
        OnAcknowledged(shard, size, taken, result.outcome);
      });
  if (static_cast<int64_t>(shard.waiting.bytes.size()) < shard.tell_from) return false;
  return !std::exchange(shard.told, true);
}

void Intake::OnAcknowledged(Shard& shard, int64_t bytes, MonotonicTime taken, AckOutcome outcome) {
  if (commit_time_ != nullptr && outcome == AckOutcome::kDurable) {
    commit_time_->Observe((ReadMonotonicClock() - taken).micros());
  }
  const std::lock_guard lock(mutex_);
  wakes_ = true;
  shard.bytes -= bytes;
  --shard.messages;
  if (shard.bytes <= options_.buffer_bytes_max / 2 &&
      shard.messages <= options_.buffer_messages_max / 2) {
    shard.full_since.reset();
  }
  if (outcome == AckOutcome::kDurable) totals_.durable_bytes += bytes;
  ++(outcome == AckOutcome::kDurable  ? totals_.durable
     : outcome == AckOutcome::kFailed ? totals_.failed
                                      : totals_.unknown);
}

Batch Intake::Take(int32_t number) {
  const std::lock_guard lock(mutex_);
  Shard& shard = shards_.at(number);
  shard.told = false;
  shard.tell_from = 0;
  return std::exchange(shard.waiting, Batch());
}

void Intake::TellFrom(int32_t number, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  shards_.at(number).tell_from = bytes;
}

void Intake::Stop(int32_t number, const Status& why) {
  const std::lock_guard lock(mutex_);
  Shard& shard = shards_.at(number);
  if (shard.stopped) return;
  wakes_ = true;
  shard.stopped = why.ok() ? FailedPreconditionError("the producer is closed") : why;
}

Status Intake::trouble(int32_t number) const {
  const std::lock_guard lock(mutex_);
  return shards_.at(number).trouble;
}

std::optional<Status> Intake::stopped(int32_t number) const {
  const std::lock_guard lock(mutex_);
  return shards_.at(number).stopped;
}

void Intake::Wake() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(wakes_, false)) changed_.notify_all();
}

Status Intake::Takes(Shard& shard, int32_t number, int64_t bytes) const {
  if (closed_) return FailedPreconditionError("the producer is closed");
  if (shard.stopped) return *shard.stopped;
  Status room = Room(shard, number, bytes);
  if (!room.ok() && !shard.full_since) shard.full_since = ReadMonotonicClock();
  return room;
}

bool Intake::Close() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  return !std::exchange(closed_, true);
}

bool Intake::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

Status Intake::WaitUntilAcknowledged(Duration timeout) {
  const MonotonicTime deadline = ReadMonotonicClock() + timeout;
  std::unique_lock lock(mutex_);
  for (;;) {
    int64_t messages = 0;
    for (const auto& [number, shard] : shards_) {
      messages += shard.messages;
      if (shard.stopped && !closed_) return *shard.stopped;
    }
    if (messages == 0) return OkStatus();
    const Duration left = deadline - ReadMonotonicClock();
    if (left <= Duration()) {
      return DeadlineExceededError(
          std::to_string(messages) +
          (messages == 1 ? " message is not acknowledged" : " messages are not acknowledged"));
    }
    changed_.wait_for(lock, PartOf(left));
  }
}

Intake::Totals Intake::totals() const {
  const std::lock_guard lock(mutex_);
  Totals totals = totals_;
  for (const auto& [number, shard] : shards_) {
    totals.buffered_bytes += shard.bytes;
    if (shard.stopped && !closed_) ++totals.stopped_shards;
    if (!shard.full_since) continue;
    totals.full_since = std::min(*shard.full_since, totals.full_since.value_or(*shard.full_since));
  }
  return totals;
}

}  // namespace tailcast::producer
