#include "tailcast/app/demo_display.h"

#include <algorithm>
#include <cstdio>
#include <mutex>

#include <nlohmann/json.hpp>

#include "tailcast/app/terminal.h"
#include "tailcast/inspect/text.h"

namespace tailcast::app {
namespace {

constexpr Duration kPrintInterval = Duration::Seconds(5);

DemoRow RowOf(Watcher& w, int64_t durable, bool last, nlohmann::json& json) {
  std::lock_guard lock(w.mu);
  const Histogram& delay = last ? w.delay : w.recent;
  const Histogram& hop = last ? w.hop : w.recent_hop;
  const auto ms = [](int64_t us) { return static_cast<double>(us) / 1e3; };
  const auto bytes = static_cast<double>(w.counters.cache_bytes + w.counters.primary_bytes);
  DemoRow row{
      .cell = w.cell,
      .fabric = w.fabric,
      .messages = w.messages,
      .behind = durable - w.messages,
      .p50_ms = ms(delay.Percentile(50)),
      .p99_ms = ms(delay.Percentile(99)),
      .max_ms = ms(delay.Max()),
      .cache_percent = bytes > 0 ? 100 * static_cast<double>(w.counters.cache_bytes) / bytes : 0,
      .fallbacks = w.counters.fallback_missing_chunk + w.counters.fallback_delayed +
                   w.counters.fallback_no_metadata + w.counters.fallback_corrupt,
      .state = w.state,
      .error = w.error,
      .done = w.done};
  if (hop.Count() > 0) row.hop_ms = ms(hop.Percentile(50));
  json.push_back({{"cell", w.cell},
                  {"fabric", w.fabric},
                  {"messages", w.messages},
                  {"bytes", w.bytes},
                  {"behind_messages", row.behind},
                  {"delay_us", nlohmann::json::parse(delay.ToJson())},
                  {"hop_us", nlohmann::json::parse(hop.ToJson())},
                  {"cache_percent", row.cache_percent},
                  {"fallbacks", row.fallbacks},
                  {"roll_overs", w.counters.roll_overs},
                  {"state", w.state},
                  {"error", w.error}});
  w.recent.Clear();
  w.recent_hop.Clear();
  return row;
}

}  // namespace

void DemoDisplay::Say(const std::string& text) {
  if (json_) {
    std::printf("%s\n", nlohmann::json({{"event", text}}).dump().c_str());
  } else {
    const std::string lines =
        terminal_ ? "\033[33m" + inspect::Wrapped(0, text, SizeOfTerminal().columns) + "\033[0m"
                  : text + "\n";
    std::printf("%s", lines.c_str());
    lines_ = 0;  // what was said stays above the table
  }
  std::fflush(stdout);
}

void DemoDisplay::Show(const Publisher& publisher, Watchers& watchers, int64_t total, bool last) {
  const DemoProgress progress{.published = publisher.published,
                              .durable = publisher.durable,
                              .total = total,
                              .elapsed = ReadMonotonicClock() - publisher.started.load()};
  nlohmann::json json = nlohmann::json::array();
  std::vector<DemoRow> rows;
  for (auto& w : watchers) rows.push_back(RowOf(*w, progress.durable, last, json));
  if (json_) {
    std::printf("%s\n", nlohmann::json({{last ? "result" : "progress", json},
                                        {"published", progress.published},
                                        {"durable", progress.durable},
                                        {"total", total}})
                            .dump()
                            .c_str());
  } else if (terminal_) {
    Draw(rows, progress, last);
  } else {
    Print(rows, progress, last);
  }
  std::fflush(stdout);
}

// Over what was drawn before.
void DemoDisplay::Draw(const std::vector<DemoRow>& rows, const DemoProgress& progress, bool last) {
  const TerminalSize size = SizeOfTerminal();
  std::vector<std::string> lines = DemoTable(rows, size.columns, true);
  lines.insert(lines.begin(), ProgressText(progress).substr(0, size.columns));
  // What has scrolled out of the screen can't be drawn over.
  if (!last && lines.size() + 1 > size.lines) lines.resize(size.lines - 1);
  if (lines_ > 0) std::printf("\033[%zuA", lines_);
  for (const std::string& line : lines) std::printf("\033[2K%s\n", line.c_str());
  std::printf("\033[J");  // it had more lines before
  lines_ = lines.size();
}
// A line now and then, and the table at the end.
void DemoDisplay::Print(const std::vector<DemoRow>& rows, const DemoProgress& progress, bool last) {
  const MonotonicTime now = ReadMonotonicClock();
  if (!last && now - printed_ < kPrintInterval) return;
  printed_ = now;
  std::string line = ProgressText(progress);
  const auto behind =
      std::max_element(rows.begin(), rows.end(),
                       [](const DemoRow& a, const DemoRow& b) { return a.behind < b.behind; });
  if (!last && behind != rows.end() && behind->behind > 0) {
    line += "; " + behind->cell + " is " + std::to_string(behind->behind) + " behind";
  }
  std::printf("%s\n", line.c_str());
  if (!last) return;
  for (const std::string& row : DemoTable(rows, inspect::kColumns, false)) {
    std::printf("%s\n", row.c_str());
  }
}

}  // namespace tailcast::app
