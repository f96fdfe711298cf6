// Open-loop load and what is seen of it: for `tailcast load`, and for load generators of other
// systems (bench/e2e), so that all of them are paced and measured by the same code.
//
// Open loop: message i is due at start + i * interval, whether or not the system keeps up, and a
// delay counts from then. So a stall costs what it would cost users, and is not hidden by a
// producer that politely waits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tailcast/base/histogram.h"

namespace tailcast::app {

double CpuSecondsOfProcess();

struct LoadPace {
  double megabytes_per_second = 4;  // 10^6 bytes; 0: as fast as possible
  int64_t message_bytes = 1024;     // at least kLoadHeaderBytes
  double seconds = 10;
};
struct LoadSent {
  uint64_t messages = 0;
  int64_t start_us = 0, end_us = 0;  // wall time
  int64_t late_max_us = 0;           // that a message was given to `publish` after it was due
};
// Calls `publish` with each message when it is due, on the caller's thread, until the time is over,
// `publish` says false, or `interrupted` says true.
LoadSent SendLoad(const LoadPace& pace, const std::function<bool()>& interrupted,
                  const std::function<bool(const std::string& message, int64_t due_us)>& publish);

// What one consumer saw. Its messages may come in several lanes, each in order (partitions); in one
// lane none may be missing either.
class LoadSeen {
 public:
  // Messages that were due within `warmup_s` of the first one are not measured.
  explicit LoadSeen(double warmup_s, size_t lanes = 1)
      : warmup_us_(static_cast<int64_t>(warmup_s * 1e6)), next_(lanes) {}

  // Returns its delay in microseconds, if it is measured.
  std::optional<int64_t> OnMessage(std::string_view payload, int64_t now_us, size_t lane = 0);
  // After the messages that were taken at once.
  void OnBatch();
  bool started() const { return messages_ > 0; }

 private:
  friend struct LoadTotal;

  const int64_t warmup_us_;
  Histogram delay_;
  int64_t messages_ = 0, bytes_ = 0;    // all
  int64_t measured_bytes_ = 0;          // after the warm-up
  int64_t first_us_ = 0, last_us_ = 0;  // wall time of the first and last measured message
  int64_t gaps_ = 0, repeats_ = 0, foreign_ = 0;
  int64_t first_intended_us_ = 0;
  // At the first and after the last message: wall time, and CPU time of the process, which at the
  // last is 20 ms old at most (to ask for it costs as much as a tenth of a batch of messages does).
  int64_t began_us_ = 0, ended_us_ = 0, cpu_read_us_ = 0;
  double began_cpu_s_ = 0, ended_cpu_s_ = 0;
  std::vector<uint64_t> next_;  // number, by lane
};

// What several consumers saw.
struct LoadTotal {
  void Add(const LoadSeen& seen);
  // Messages in order, each of them ours.
  bool intact() const { return gaps + repeats + foreign == 0; }
  // As `tailcast load consume` prints it.
  nlohmann::json ToJson() const;

  Histogram delay;
  int64_t consumers = 0;
  int64_t messages = 0, messages_min = INT64_MAX, messages_max = 0, next_number_min = INT64_MAX;
  int64_t bytes = 0, measured_bytes = 0;
  int64_t gaps = 0, repeats = 0, foreign = 0;
  // From the first message that one of them took to the last, without who waits for none: wall
  // time, and CPU time of the process, which is that of all.
  int64_t began_us = INT64_MAX, ended_us = 0;
  double began_cpu_s = 0, ended_cpu_s = 0;
  struct Each {
    int64_t messages = 0;
    double mb_per_s = 0;
    int64_t p99_us = 0;
  };
  std::vector<Each> each;
};

// [microseconds, records at most that late], 2 % apart, so that processes' results can be added up.
nlohmann::json DelayCdf(const Histogram& histogram);

}  // namespace tailcast::app
