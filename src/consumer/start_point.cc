#include "tailcast/consumer/start_point.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string>

namespace tailcast::consumer {
namespace {

constexpr std::string_view kTimePrefix = "time:";
constexpr std::string_view kNumberPrefix = "number:";

// Digits only, at most 18 of them.
std::optional<int64_t> ParseNumber(std::string_view text) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  int64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

// "2013-01-31T12:00:00Z", "2013-01-31T12:00:00.25Z"
std::optional<int64_t> ParseUtc(std::string_view text) {
  constexpr size_t kWhole = 19, kDigitsMax = 6;  // without the fraction and Z; of the fraction
  int64_t fraction_us = 0;
  std::string copy(text);
  if (text.size() > kWhole + 2 && text[kWhole] == '.' && text.ends_with('Z')) {
    std::string digits(text.substr(kWhole + 1, text.size() - kWhole - 2));
    if (digits.size() > kDigitsMax) return std::nullopt;
    digits.resize(kDigitsMax, '0');
    const auto fraction = ParseNumber(digits);
    if (!fraction) return std::nullopt;
    fraction_us = *fraction;
    copy = std::string(text.substr(0, kWhole)) + "Z";
    text = copy;
  }
  if (text.size() != kWhole + 1) return std::nullopt;
  std::tm tm = {};
  if (std::sscanf(copy.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
                  &tm.tm_hour, &tm.tm_min, &tm.tm_sec) != 6) {
    return std::nullopt;
  }
  tm.tm_year -= 1900;
  tm.tm_mon -= 1;
  // Days and hours that do not exist become others, and sscanf takes signs and spaces: only what
  // prints as it was written is that time. Nothing was written before 1970.
  const std::time_t seconds = timegm(&tm);
  char printed[40];
  if (seconds < 0 || gmtime_r(&seconds, &tm) == nullptr ||
      text != std::string_view(printed,
                               std::strftime(printed, sizeof printed, "%Y-%m-%dT%H:%M:%SZ", &tm))) {
    return std::nullopt;
  }
  return static_cast<int64_t>(seconds) * 1000000 + fraction_us;
}

// "-5m": so long before `now`.
std::optional<int64_t> ParseAgo(std::string_view text, WallTime now) {
  if (text.size() < 3 || text.front() != '-') return std::nullopt;
  const std::string_view units = "smhd";
  constexpr int64_t kSeconds[] = {1, 60, 3600, 86400};
  const size_t unit = units.find(text.back());
  const auto count = ParseNumber(text.substr(1, text.size() - 2));
  constexpr int64_t kCountMax = 1'000'000;
  if (unit == std::string_view::npos || !count || *count > kCountMax) return std::nullopt;
  return std::max<int64_t>(0, now.micros() - *count * kSeconds[unit] * 1'000'000);
}

}  // namespace

Result<StartPoint> StartPoint::Parse(std::string_view text) { return Parse(text, ReadWallClock()); }

Result<StartPoint> StartPoint::Parse(std::string_view text, WallTime now) {
  const std::string quoted = "'" + std::string(text.substr(0, 80)) + "'";
  if (text == "beginning") return Beginning();
  if (text == "end") return End();
  if (text.starts_with(kTimePrefix)) {
    const std::string_view time = text.substr(kTimePrefix.size());
    auto micros = ParseNumber(time);
    if (!micros) micros = ParseUtc(time);
    if (!micros) micros = ParseAgo(time, now);
    if (micros) return At(WallTime::FromMicros(*micros));
    return InvalidArgumentError(
        quoted +
        ": a time is microseconds since 1970, as in time:1359633600000000, UTC, as in "
        "time:2013-01-31T12:00:00Z, or a while ago, as in time:-5m (s, m, h or d)");
  }
  if (text.starts_with(kNumberPrefix)) {
    if (const auto number = ParseNumber(text.substr(kNumberPrefix.size()))) {
      return AtNumber(*number);
    }
    return InvalidArgumentError(quoted +
                                ": messages of a shard are numbered from 0, as in number:0");
  }
  if (text.starts_with("t1.")) {
    TAILCAST_ASSIGN_OR_RETURN(const stream::Position position, stream::Position::Parse(text));
    return At(position);
  }
  return InvalidArgumentError(quoted +
                              " is no place in a stream: use beginning, end, time:T, number:N or a "
                              "position (t1...., as position() and --positions give it)");
}

}  // namespace tailcast::consumer
