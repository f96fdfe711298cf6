// Where to end, as a person types it.
#include "tailcast/consumer/end_point.h"

#include "tailcast/base/check.h"
#include "tailcast/consumer/start_point.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::consumer {
namespace {

void Try(std::string_view text) {
  const WallTime now = WallTime::FromMicros(1'700'000'000'000'000);
  const Result<EndPoint> end = EndPoint::Parse(text, now);
  const Result<StartPoint> start = StartPoint::Parse(text, now);
  if (!end.ok()) {
    TAILCAST_CHECK(IsInvalidArgument(end.status()), "bad input, and nothing else");
    TAILCAST_CHECK(!start.ok() || start->kind == StartPoint::Kind::kBeginning ||
                       start->kind == StartPoint::Kind::kEnd,
                   "whatever is one place of a shard");
    return;
  }
  TAILCAST_CHECK(start.ok() && end->kind != EndPoint::Kind::kNever);
  // The message that it names is behind the end, and so are all that follow.
  Message message;
  message.time_us = end->time.micros();
  message.number = end->kind == EndPoint::Kind::kPosition ? end->position.number : end->number;
  TAILCAST_CHECK(end->IsBefore(message));
  message.time_us = INT64_MAX;
  message.number = INT64_MAX;
  TAILCAST_CHECK(end->IsBefore(message));
  TAILCAST_CHECK(end->IsReached(INT64_MAX, WallTime::FromMicros(INT64_MAX)));
}

}  // namespace
}  // namespace tailcast::consumer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tailcast::consumer::Try({reinterpret_cast<const char*>(data), size});
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  return {"beginning",
          "end",
          "time:1359633600000000",
          "time:2024-02-29T23:59:59.123456Z",
          "time:-5m",
          "number:17",
          "t1.9f3a00c2d1e4b576.3.16842.17251200"};
}
