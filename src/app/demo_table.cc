#include "tailcast/app/demo_table.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "tailcast/inspect/text.h"

namespace tailcast::app {
namespace {

std::string MillisText(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, ms < 1000 ? "%.1f" : "%.0f", ms);
  return text;
}

std::string Coloured(const std::string& line, const char* colour) {
  return std::string("\033[") + colour + "m" + line + "\033[0m";
}

}  // namespace

Arrivals::Arrivals(size_t consumers, size_t messages)
    : messages_(messages), at_us_(consumers * messages) {}

void Arrivals::OnArrival(size_t consumer, size_t message, int64_t at_us) {
  at_us_[consumer * messages_ + message].store(at_us, std::memory_order_relaxed);
}

std::optional<int64_t> Arrivals::HopUs(size_t above, size_t message, int64_t at_us) const {
  const int64_t there = at_us_[above * messages_ + message].load(std::memory_order_relaxed);
  if (there == 0 || there > at_us) return std::nullopt;
  return at_us - there;
}

std::vector<std::string> DemoTable(const std::vector<DemoRow>& rows, size_t columns, bool colours) {
  std::vector<std::vector<std::string>> cells = {{"cell", "via", "messages", "behind", "p50 ms",
                                                  "p99 ms", "max ms", "hop ms", "cache", "state"}};
  for (const DemoRow& row : rows) {
    char cache[16];
    std::snprintf(cache, sizeof cache, "%.0f %%", row.cache_percent);
    cells.push_back({row.cell, row.fabric, std::to_string(row.messages),
                     std::to_string(std::max<int64_t>(0, row.behind)), MillisText(row.p50_ms),
                     MillisText(row.p99_ms), MillisText(row.max_ms),
                     row.hop_ms ? MillisText(*row.hop_ms) : "-", cache,
                     row.error.empty() ? row.state : "failed"});
  }
  std::istringstream text(inspect::TableText(0, cells, {1, 9}, columns));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    const size_t at = lines.size();
    if (line.size() > columns) line.resize(columns);
    if (colours && at == 0) line = Coloured(line, "1");
    if (colours && at > 0 && !rows[at - 1].error.empty()) line = Coloured(line, "31");
    if (colours && at > 0 && rows[at - 1].done) line = Coloured(line, "32");
    lines.push_back(line);
  }
  for (const DemoRow& row : rows) {
    std::string what = row.cell + " via " + row.fabric + ": ";
    if (!row.error.empty()) {
      what += row.error;
    } else if (row.fallbacks > 0) {
      what += inspect::Counted(static_cast<uint64_t>(row.fallbacks), "read") +
              " fell back to the primary layer";
    } else {
      continue;
    }
    std::istringstream wrapped(inspect::Wrapped(0, what, columns));
    for (std::string line; std::getline(wrapped, line);) lines.push_back(line.substr(0, columns));
  }
  return lines;
}

std::string ProgressText(const DemoProgress& progress) {
  const double part = progress.total == 0 ? 0
                                          : static_cast<double>(progress.durable) /
                                                static_cast<double>(progress.total);
  char text[160];
  std::snprintf(text, sizeof text, "%3.0f %%  %lld of %lld messages published, %lld durable",
                100 * part, static_cast<long long>(progress.published),
                static_cast<long long>(progress.total), static_cast<long long>(progress.durable));
  std::string line = text;
  constexpr double kPartMin = 0.02;  // before, the rest is a guess
  if (part > kPartMin && part < 1) {
    const double left_s = progress.elapsed.seconds() * (1 - part) / part;
    line +=
        ", about " +
        inspect::SpanText(Duration::Seconds(std::max<int64_t>(1, static_cast<int64_t>(left_s)))) +
        " to go";
  }
  return line;
}

}  // namespace tailcast::app
