// Named counters and gauges of a process. Each fallback, retry, short read or rejected input counts
// in one with its cause (design rule "nothing silent").
//
//   Counter& short_reads = metrics.GetCounter("tailcast_short_reads_total",
//                                             "Reads that ended before the published length.",
//                                             {{"layer", "cache"}});
//   short_reads.Add();
//
// Ask once, keep the reference: looking a metric up takes a lock, adding to it does not.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tailcast {

// Sorted by name; part of the metric's identity.
using MetricLabels = std::map<std::string, std::string>;

enum class MetricKind : uint8_t { kCounter, kGauge };

// Any thread, relaxed: a reader may see an increment a moment late, never lose one.
class Counter {
 public:
  void Add(int64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

class Gauge {
 public:
  void Set(int64_t v) { value_.store(v, std::memory_order_relaxed); }
  void Add(int64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

struct MetricSample {
  std::string name;
  std::string help;
  MetricKind kind = MetricKind::kCounter;
  MetricLabels labels;
  int64_t value = 0;
};

// Owns its metrics: references stay good as long as it lives. Any thread.
class MetricRegistry {
 public:
  // The metric of this name and these labels, made at the first call. Names and label names are
  // [a-zA-Z_][a-zA-Z0-9_]*; counters end in _total, times are in seconds or say their unit. A name
  // has one kind and one help text; asking for it as another kind is a bug (CHECK).
  Counter& GetCounter(std::string_view name, std::string_view help,
                      const MetricLabels& labels = {});
  Gauge& GetGauge(std::string_view name, std::string_view help, const MetricLabels& labels = {});

  // All metrics now, sorted by name, then labels.
  std::vector<MetricSample> Snapshot() const;
  // The value, or 0 if there is no such metric. For tests and status.
  int64_t Value(std::string_view name, const MetricLabels& labels = {}) const;
  // Sum over all labels of a name.
  int64_t Total(std::string_view name) const;

 private:
  struct Family {
    MetricKind kind;
    std::string help;
    std::map<MetricLabels, std::unique_ptr<Counter>> counters;
    std::map<MetricLabels, std::unique_ptr<Gauge>> gauges;
  };
  Family& FamilyOf(std::string_view name, std::string_view help, MetricKind kind);

  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
};

// The registry of this process, for real processes. Simulated processes have one each.
MetricRegistry& ProcessMetrics();

}  // namespace tailcast
