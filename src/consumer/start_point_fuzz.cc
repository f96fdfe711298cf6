// Where to start, as a person types it.
#include "tailcast/consumer/start_point.h"

#include <ctime>

#include "tailcast/base/check.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::consumer {
namespace {

std::string UtcOf(WallTime time) {
  const std::time_t seconds = time.micros() / 1'000'000;
  std::tm tm = {};
  char text[40];
  gmtime_r(&seconds, &tm);
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm)};
}

void Try(std::string_view text) {
  const WallTime now = WallTime::FromMicros(1'700'000'000'000'000);
  const Result<StartPoint> start = StartPoint::Parse(text, now);
  if (!start.ok()) {
    TAILCAST_CHECK(IsInvalidArgument(start.status()), "bad input, and nothing else");
    return;
  }
  switch (start->kind) {
    case StartPoint::Kind::kBeginning:
      TAILCAST_CHECK(text == "beginning");
      break;
    case StartPoint::Kind::kEnd:
      TAILCAST_CHECK(text == "end");
      break;
    case StartPoint::Kind::kPosition:
      TAILCAST_CHECK(start->position.ToString() == text);
      break;
    case StartPoint::Kind::kNumber:
      TAILCAST_CHECK(start->number >= 0);
      TAILCAST_CHECK(std::stoll(std::string(text.substr(7))) == start->number);
      break;
    case StartPoint::Kind::kTime: {
      const std::string_view time = text.substr(5);
      if (time.starts_with('-')) {
        TAILCAST_CHECK(start->time <= now && start->time.micros() >= 0, "a while ago");
      } else if (time.ends_with('Z')) {
        TAILCAST_CHECK(UtcOf(start->time).substr(0, 19) == time.substr(0, 19),
                       "the time that was written, and no other");
        TAILCAST_CHECK((start->time.micros() % 1'000'000 == 0) ==
                           (time.substr(19).find_first_of("123456789") == std::string_view::npos),
                       "and its fraction");
      } else {
        TAILCAST_CHECK(time.find_first_not_of("0123456789") == std::string_view::npos);
        TAILCAST_CHECK(std::stoll(std::string(time)) == start->time.micros());
      }
      break;
    }
  }
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
          "time:2013-01-31T12:00:00Z",
          "time:2024-02-29T23:59:59Z",
          "time:2024-02-29T23:59:59.123456Z",
          "time:-5m",
          "number:17",
          "t1.9f3a00c2d1e4b576.3.16842.17251200"};
}
