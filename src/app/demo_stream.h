// The stream of `tailcast demo`: a file's lines go in, and come out in every cell, where each is
// compared with the file.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/app/demo_table.h"
#include "tailcast/base/histogram.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/consumer/consumer.h"
#include "tailcast/copytree/tree.h"
#include "tailcast/producer/producer.h"

namespace tailcast::app {

inline constexpr char kDemoStream[] = "demo";

// The file's lines, each with its newline: what consumers must get.
struct Input {
  std::string bytes;
  std::vector<size_t> ends;  // of each message, behind its newline

  size_t size() const { return ends.size(); }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(bytes).substr(begin, ends[i] - begin);
  }
};

// InvalidArgument: a folder, or an empty file.
Result<Input> ReadInput(const std::string& path);

// How both ends run.
struct DemoPace {
  bool low_latency = true;
  double megabytes_per_second = 2;
  int64_t roll_bytes = 4 << 20;
};

// One consumer and what it saw. Its thread writes, the display reads under `mu`.
struct Watcher {
  std::string cell, scheduler, fabric;
  size_t index = 0;
  // Of the consumer by the same fabric in the cell that feeds this one; -1: there is none.
  std::atomic<int> above{-1};
  std::mutex mu;
  Histogram delay, hop;          // of all messages
  Histogram recent, recent_hop;  // since the display last looked
  int64_t messages = 0, bytes = 0;
  consumer::Counters counters;
  std::string state = "opening";
  std::string error;
  bool done = false;
};

using Watchers = std::vector<std::unique_ptr<Watcher>>;

// Says which consumer is above each: the one by the same fabric of the cell that feeds its cell.
void SetAbove(Watchers& watchers, const copytree::Tree& tree);
// Consumes until all of `input` came, `stop`, or something is wrong (Watcher::error).
void Watch(Watcher& w, const Input& input, const DemoPace& pace, Arrivals& arrivals,
           std::atomic<bool>& stop);

struct Publisher {
  std::atomic<MonotonicTime> started{ReadMonotonicClock()};
  std::atomic<int64_t> published{0}, durable{0};
  std::atomic<bool> done{false};
  std::mutex mu;
  std::string error;
  producer::Stats stats;
};

// Publishes `input` at the scheduler `source`, at its pace, and waits until it is durable.
void PublishAll(Publisher& p, const Input& input, const DemoPace& pace, const std::string& source,
                std::atomic<bool>& stop);

}  // namespace tailcast::app
