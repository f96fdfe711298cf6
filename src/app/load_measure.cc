#include "tailcast/app/load_measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <nlohmann/json.hpp>

#include "tailcast/app/load_pattern.h"
#include "tailcast/base/time.h"

namespace tailcast::app {
namespace {

constexpr int64_t kCpuIntervalUs = 20'000;

}  // namespace

double CpuSecondsOfProcess() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

LoadSent SendLoad(const LoadPace& pace, const std::function<bool()>& interrupted,
                  const std::function<bool(const std::string& message, int64_t due_us)>& publish) {
  const double interval_us =
      pace.megabytes_per_second > 0
          ? static_cast<double>(pace.message_bytes) / pace.megabytes_per_second
          : 0;
  std::string message(static_cast<size_t>(pace.message_bytes), '\0');
  LoadSent sent;
  sent.start_us = ReadWallClock().micros() + 1000;
  const int64_t end_us = sent.start_us + static_cast<int64_t>(pace.seconds * 1e6);
  int64_t now = ReadWallClock().micros();
  while (!interrupted()) {
    const int64_t due =
        interval_us > 0
            ? sent.start_us + static_cast<int64_t>(static_cast<double>(sent.messages) * interval_us)
            : std::max(now, sent.start_us);
    if (due >= end_us) break;
    now = ReadWallClock().micros();
    if (due > now) {
      // Pacing is what this is for; half a millisecond keeps bursts below one flush.
      std::this_thread::sleep_for(std::chrono::microseconds(std::min<int64_t>(due - now, 500)));
      continue;
    }
    sent.late_max_us = std::max(sent.late_max_us, now - due);
    FillLoadMessage(message, due, sent.messages++);
    if (!publish(message, due)) break;
  }
  sent.end_us = ReadWallClock().micros();
  return sent;
}

std::optional<int64_t> LoadSeen::OnMessage(std::string_view payload, int64_t now_us, size_t lane) {
  const LoadMessage m = ReadLoadMessage(payload);
  if (!m.intact) ++foreign_;
  if (messages_ == 0) {
    began_us_ = now_us;
    began_cpu_s_ = CpuSecondsOfProcess();
    first_intended_us_ = m.intended_us;
    // Who starts late starts anywhere.
    if (next_.size() == 1) next_[0] = m.number;
  }
  uint64_t& next = next_[lane];
  if (next_.size() == 1 && m.number > next) ++gaps_;
  if (m.number < next) ++repeats_;
  next = m.number + 1;
  ++messages_;
  bytes_ += static_cast<int64_t>(payload.size());
  if (m.intended_us - first_intended_us_ < warmup_us_) return std::nullopt;
  if (first_us_ == 0) first_us_ = now_us;
  last_us_ = now_us;
  measured_bytes_ += static_cast<int64_t>(payload.size());
  delay_.Record(now_us - m.intended_us);
  return now_us - m.intended_us;
}

void LoadSeen::OnBatch() {
  ended_us_ = ReadWallClock().micros();
  if (ended_us_ - cpu_read_us_ < kCpuIntervalUs) return;
  cpu_read_us_ = ended_us_;
  ended_cpu_s_ = CpuSecondsOfProcess();
}

void LoadTotal::Add(const LoadSeen& seen) {
  ++consumers;
  if (seen.started()) {
    if (seen.began_us_ < began_us) {
      began_us = seen.began_us_;
      began_cpu_s = seen.began_cpu_s_;
    }
    if (seen.ended_us_ > ended_us) {
      ended_us = seen.ended_us_;
      ended_cpu_s = seen.ended_cpu_s_;
    }
  }
  delay.Merge(seen.delay_);
  messages += seen.messages_;
  messages_min = std::min(messages_min, seen.messages_);
  messages_max = std::max(messages_max, seen.messages_);
  next_number_min =
      std::min(next_number_min,
               static_cast<int64_t>(*std::max_element(seen.next_.begin(), seen.next_.end())));
  bytes += seen.bytes_;
  measured_bytes += seen.measured_bytes_;
  gaps += seen.gaps_;
  repeats += seen.repeats_;
  foreign += seen.foreign_;
  const double span = static_cast<double>(seen.last_us_ - seen.first_us_) / 1e6;
  each.push_back({seen.messages_,
                  span > 0 ? static_cast<double>(seen.measured_bytes_) / span / 1e6 : 0,
                  seen.delay_.Percentile(99)});
}

nlohmann::json LoadTotal::ToJson() const {
  nlohmann::json all = nlohmann::json::array();
  for (const Each& e : each) {
    all.push_back({{"messages", e.messages}, {"mb_per_s", e.mb_per_s}, {"p99_us", e.p99_us}});
  }
  return {{"kind", "consume"},
          {"consumers", consumers},
          {"messages", messages},
          {"messages_min", messages_min},
          {"messages_max", messages_max},
          {"next_number_min", next_number_min},
          {"bytes", bytes},
          {"measured_bytes", measured_bytes},
          {"gaps", gaps},
          {"repeats", repeats},
          {"foreign", foreign},
          {"began_us", messages > 0 ? began_us : 0},
          {"ended_us", ended_us},
          {"cpu_s", ended_cpu_s - began_cpu_s},
          {"delay_us", nlohmann::json::parse(delay.ToJson())},
          {"delay_cdf", DelayCdf(delay)},
          {"each", all}};
}

nlohmann::json DelayCdf(const Histogram& histogram) {
  nlohmann::json cdf = nlohmann::json::array();
  uint64_t before = 0;
  for (double us = 10; before < histogram.Count(); us *= 1.02) {
    const uint64_t count = histogram.CountAtMost(static_cast<int64_t>(us));
    if (count != before) cdf.push_back({static_cast<int64_t>(us), count});
    before = count;
  }
  return cdf;
}

}  // namespace tailcast::app
