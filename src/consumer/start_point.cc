#include <cstdio>
#include <ctime>

#include "tailcast/consumer/start_point.h"

namespace tailcast::consumer {
namespace {

constexpr std::string_view kTimePrefix = "time:";

// Digits only, at most 18 of them.
std::optional<int64_t> ParseMicros(std::string_view text) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  int64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

// "2013-01-31T12:00:00Z"
std::optional<int64_t> ParseUtc(std::string_view text) {
  if (text.size() != 20) return std::nullopt;
  const std::string copy(text);
  std::tm tm = {};
  if (std::sscanf(copy.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
                  &tm.tm_hour, &tm.tm_min, &tm.tm_sec) != 6) {
    return std::nullopt;
  }
  tm.tm_year -= 1900;
  tm.tm_mon -= 1;
  // Days and hours that do not exist become others, and sscanf takes signs and spaces: only what
  // prints as it was written is that time.
  const std::time_t seconds = timegm(&tm);
  char printed[40];
  if (gmtime_r(&seconds, &tm) == nullptr ||
      text != std::string_view(printed,
                               std::strftime(printed, sizeof printed, "%Y-%m-%dT%H:%M:%SZ", &tm))) {
    return std::nullopt;
  }
  return static_cast<int64_t>(seconds) * 1000000;
}

}  // namespace

Result<StartPoint> StartPoint::Parse(std::string_view text) {
  if (text == "beginning") return Beginning();
  if (text == "end") return End();
  if (text.starts_with(kTimePrefix)) {
    const std::string_view time = text.substr(kTimePrefix.size());
    auto micros = ParseMicros(time);
    if (!micros) micros = ParseUtc(time);
    if (micros) return At(WallTime::FromMicros(*micros));
    return InvalidArgumentError("'" + std::string(text.substr(0, 80)) +
                                "': a time is microseconds since 1970, as in "
                                "time:1359633600000000, or UTC, as in time:2013-01-31T12:00:00Z");
  }
  if (text.starts_with("t1.")) {
    TAILCAST_ASSIGN_OR_RETURN(const stream::Position position, stream::Position::Parse(text));
    return At(position);
  }
  return InvalidArgumentError("'" + std::string(text.substr(0, 80)) +
                              "' is no place to start: use beginning, end, time:T or a position "
                              "(t1...., as position() and --from give it)");
}

}  // namespace tailcast::consumer
