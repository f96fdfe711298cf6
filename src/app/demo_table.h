// What `tailcast demo` shows: a row for each consumer, how far the stream is, and how long a hop
// takes.
//
// Cores: no I/O, no clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/time.h"

namespace tailcast::app {

// When each consumer had each message. The hop to a cell takes from when a message was with a
// consumer of the cell above to when it was with the one of the cell itself, message by message.
// (The difference of the two delays' medians is no such time: they are of different messages while
// the consumers stand at different places.)
//
// Threads: any; OnArrival of one consumer from one at a time.
class Arrivals {
 public:
  Arrivals(size_t consumers, size_t messages);
  // Microseconds of one host's clock, above 0.
  void OnArrival(size_t consumer, size_t message, int64_t at_us);
  // nullopt: the message was not with `above` before, so it took no such hop.
  std::optional<int64_t> HopUs(size_t above, size_t message, int64_t at_us) const;

 private:
  const size_t messages_;
  std::vector<std::atomic<int64_t>> at_us_;  // by consumer, then message; 0: not yet
};

struct DemoRow {
  std::string cell, fabric;
  int64_t messages = 0;
  int64_t behind = 0;  // messages that are durable and not here
  double p50_ms = 0, p99_ms = 0, max_ms = 0;
  std::optional<double> hop_ms;  // the middle one; of no message: nullopt
  double cache_percent = 0;      // of the bytes
  int64_t fallbacks = 0;         // reads that fell back to the primary layer
  std::string state, error;
  bool done = false;
};

// A line for the heading and each row, errors on lines of their own. Not longer than `columns`,
// escape sequences for colours (ECMA-48) aside.
std::vector<std::string> DemoTable(const std::vector<DemoRow>& rows, size_t columns, bool colours);

struct DemoProgress {
  int64_t published = 0, durable = 0, total = 0;
  Duration elapsed;
};
// "42 %  141000 of 336776 messages published, 140213 durable, about 12 s to go"
std::string ProgressText(const DemoProgress& progress);

}  // namespace tailcast::app
