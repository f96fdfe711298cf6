#include "tailcast/world/scenario_words.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace tailcast::world {

Words SplitWords(std::string_view line) {
  Words words;
  std::string word;
  for (const char c : line.substr(0, line.find('#'))) {
    if (c != ' ' && c != '\t' && c != '\r') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::string ListOf(const Words& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  }
  return text;
}

Status CheckCell(const Words& cells, const std::string& name) {
  if (std::find(cells.begin(), cells.end(), name) != cells.end()) return OkStatus();
  return InvalidArgumentError("there is no cell '" + name + "'; there are " + ListOf(cells));
}

Result<int64_t> ParseNumber(const std::string& word, const std::string& what, int64_t least,
                            int64_t most) {
  int64_t value = 0;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, value);
  if (error == std::errc() && rest == end && value >= least && value <= most) return value;
  return InvalidArgumentError(what + " is a number from " + std::to_string(least) + " to " +
                              std::to_string(most) + ", not '" + word + "'");
}

Result<Duration> ParseDuration(const std::string& word, const std::string& what) {
  constexpr int64_t kMost_us = 600'000'000;
  int64_t whole = 0, fraction = 0, unit = 0;
  const char* const end = word.data() + word.size();
  auto [rest, error] = std::from_chars(word.data(), end, whole);
  int digits = 0;
  bool good = error == std::errc() && whole >= 0 && whole <= kMost_us;
  if (good && rest != end && *rest == '.') {
    for (++rest; rest != end && *rest >= '0' && *rest <= '9'; ++rest, ++digits) {
      good &= digits < 6;
      if (good) fraction = fraction * 10 + (*rest - '0');
    }
    good &= digits > 0;
  }
  const std::string_view suffix(rest, static_cast<size_t>(end - rest));
  unit = suffix == "s" ? 1'000'000 : suffix == "ms" ? 1000 : suffix == "us" ? 1 : 0;
  if (good && unit > 0 && whole <= kMost_us / unit) {
    int64_t micros = whole * unit;
    int64_t part = fraction * unit;
    for (int i = 0; i < digits; ++i) part /= 10;
    if ((micros += part) <= kMost_us) return Duration::Micros(micros);
  }
  return InvalidArgumentError(
      what + " is a time like 2s, 1.5s, 250ms or 80us, at most 600s, not '" + word + "'");
}

std::string DurationText(Duration d) {
  char text[32];
  const bool seconds = d.micros() >= 1'000'000;
  std::snprintf(text, sizeof text, "%g %s", static_cast<double>(d.micros()) / (seconds ? 1e6 : 1e3),
                seconds ? "s" : "ms");
  return text;
}

}  // namespace tailcast::world
