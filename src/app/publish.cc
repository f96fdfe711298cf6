#include "tailcast/app/publish.h"

#include <algorithm>

#include "tailcast/app/command.h"

namespace tailcast::app {
namespace {

// How often it is looked whether there is room, and whether an interrupt came.
constexpr Duration kRoomInterval = Duration::Millis(5);
constexpr Duration kFlushStep = Duration::Millis(100);
// Of the two seconds in which a command ends after Ctrl-C.
constexpr Duration kInterruptedFlush = Duration::Seconds(1);
constexpr Duration kInterruptedSeal = Duration::Millis(200);

}  // namespace

Result<bool> PublishUntilInterrupted(producer::Producer& producer, std::string_view message,
                                     const std::function<void(const producer::Ack&)>& ack,
                                     int32_t shard, producer::Producer::Headers headers) {
  for (;;) {
    const Status taken = producer.TryPublish(message, ack, shard, headers);
    if (taken.ok()) return true;
    if (!IsResourceExhausted(taken)) return taken;
    // A shard may also have stopped with that word.
    if (const Status stopped = producer.status(); !stopped.ok()) return stopped;
    if (Interrupted()) return false;
    Sleep(kRoomInterval);
  }
}

Status CloseUntilInterrupted(producer::Producer& producer, Duration timeout) {
  MonotonicTime deadline = ReadMonotonicClock() + timeout;
  bool interrupted = false;
  Status flushed;
  for (;;) {
    if (!interrupted && Interrupted()) {
      interrupted = true;
      deadline = std::min(deadline, ReadMonotonicClock() + kInterruptedFlush);
    }
    const Duration left = deadline - ReadMonotonicClock();
    flushed = producer.Flush(std::clamp(left, Duration(), kFlushStep));
    if (flushed.code() != StatusCode::kDeadlineExceeded || ReadMonotonicClock() >= deadline) break;
  }
  if (!flushed.ok()) {
    (void)producer.Close(Duration());
    return flushed;
  }
  return producer.Close(interrupted ? kInterruptedSeal : deadline - ReadMonotonicClock());
}

std::string OutcomeText(int64_t durable, int64_t failed, int64_t unknown) {
  std::string text =
      std::to_string(durable) + (durable == 1 ? " message durable" : " messages durable");
  if (failed > 0) text += ", " + std::to_string(failed) + " failed (not in the stream)";
  if (unknown > 0) text += ", " + std::to_string(unknown) + " unknown (may be in it)";
  return text;
}

}  // namespace tailcast::app
