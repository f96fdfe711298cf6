#include "tailcast/app/publish.h"

#include <optional>

#include "tailcast/app/command.h"
#include "tailcast/app/interrupt.h"

namespace tailcast::app {
namespace {

// How often it is looked whether there is room, and whether an interrupt came.
constexpr Duration kRoomInterval = Duration::Millis(5);
// Of the two seconds in which a command ends after Ctrl-C.
constexpr Duration kInterruptedClose = Duration::Seconds(1);
// Of the ten that containers leave to what they end by SIGTERM.
constexpr Duration kTerminatedClose = Duration::Seconds(8);
// Nothing became durable for so long.
constexpr Duration kCloseWithoutProgress = Duration::Seconds(60);
constexpr Duration kAnyTime = Duration::Seconds(int64_t{365} * 86400);

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

Status CloseUntilInterrupted(producer::Producer& producer, const std::atomic<int64_t>& durable) {
  std::optional<MonotonicTime> since;
  int64_t last = durable;
  MonotonicTime last_at = ReadMonotonicClock();
  return producer.Close(kAnyTime, [&] {
    const MonotonicTime now = ReadMonotonicClock();
    if (const int64_t count = durable; count != last) {
      last = count;
      last_at = now;
    }
    if (!Interrupted()) return now - last_at >= kCloseWithoutProgress;
    if (!since) since = now;
    return now - *since >= (InterruptedAtTheKeyboard() ? kInterruptedClose : kTerminatedClose);
  });
}

std::string OutcomeText(int64_t durable, int64_t failed, int64_t unknown) {
  std::string text =
      std::to_string(durable) + (durable == 1 ? " message durable" : " messages durable");
  if (failed > 0) text += ", " + std::to_string(failed) + " failed (not in the stream)";
  if (unknown > 0) text += ", " + std::to_string(unknown) + " unknown (may be in it)";
  return text;
}

}  // namespace tailcast::app
