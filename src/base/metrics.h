// Named counters, gauges and histograms of a process. Each fallback, retry, short read or rejected
// input counts in one with its cause (design rule "nothing silent").
//
//   Counter& short_reads = metrics.GetCounter("tailcast_short_reads_total",
//                                             "Reads that ended before the published length.",
//                                             {{"layer", "cache"}});
//   short_reads.Add();
//
// Ask once, keep the reference: looking a metric up takes a lock, adding to it does not.
//
// What is counted where each nanosecond counts is an OwnedCounter of its owner, which a registry
// shows through a MetricSource.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tailcast {

// Sorted by name; part of the metric's identity.
using MetricLabels = std::map<std::string, std::string>;

enum class MetricKind : uint8_t { kCounter, kGauge, kHistogram };

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

// How values are distributed: how many lie at or below each of a few bounds, and what they come to.
// Prometheus makes quantiles of it, over any time and any number of processes. (What is exact to 1
// % within one process is histogram.h's.)
class HistogramMetric {
 public:
  enum class Of : uint8_t {
    kMicroseconds,  // 0.5 ms to 5 minutes; shown in seconds
    kPerMillion,    // a share, 0 to 1'000'000; shown as 0 to 1
  };
  static constexpr size_t kBoundsMax = 18;
  // Ascending. What lies above the last one is counted as well.
  static std::span<const int64_t> Bounds(Of of);

  explicit HistogramMetric(Of of) : of_(of) {}
  HistogramMetric(const HistogramMetric&) = delete;
  HistogramMetric& operator=(const HistogramMetric&) = delete;

  // `n` values of this size. What is negative is 0. Any thread.
  void Observe(int64_t value, int64_t n = 1);

  Of of() const { return of_; }
  // How many lie within the bound of that index and above the one before; the last: above all.
  int64_t count(size_t bucket) const { return counts_[bucket].load(std::memory_order_relaxed); }
  int64_t sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  const Of of_;
  std::array<std::atomic<int64_t>, kBoundsMax + 1> counts_{};
  std::atomic<int64_t> sum_{0};
};

// A number that one thread changes and any thread reads. Costs that thread what a plain integer
// does.
class OwnedCounter {
 public:
  OwnedCounter() = default;
  OwnedCounter(const OwnedCounter& other) : value_(other.value()) {}
  OwnedCounter& operator=(const OwnedCounter& other) {
    value_.store(other.value(), std::memory_order_relaxed);
    return *this;
  }
  OwnedCounter& operator+=(uint64_t n) {
    value_.store(value() + n, std::memory_order_relaxed);
    return *this;
  }
  OwnedCounter& operator-=(uint64_t n) { return *this += ~n + 1; }
  OwnedCounter& operator++() { return *this += 1; }
  OwnedCounter& operator--() { return *this -= 1; }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }
  operator uint64_t() const { return value(); }  // NOLINT(google-explicit-constructor)

 private:
  std::atomic<uint64_t> value_{0};
};

// What a metric counts in, and so what is shown: Prometheus wants seconds.
enum class MetricUnit : uint8_t {
  kOne,           // as the name says: bytes, calls
  kMicroseconds,  // shown in seconds
  kPerMillion,    // shown as a share, 0 to 1
};

struct MetricSample {
  std::string name;
  std::string help;
  MetricKind kind = MetricKind::kCounter;
  MetricLabels labels;
  int64_t value = 0;  // of a histogram: what its values come to
  MetricUnit unit = MetricUnit::kOne;
  // Of a histogram: how many lie within each of `bounds` and above the one before, and above all.
  std::vector<int64_t> counts = {};
  std::span<const int64_t> bounds = {};

  // `value` in the unit of the name.
  double shown() const { return Shown(value); }
  double Shown(int64_t number) const {
    return static_cast<double>(number) / (unit == MetricUnit::kOne ? 1 : 1e6);
  }
};

class MetricRegistry;

// Metrics that an object counts for itself, shown by a registry as long as this lives. What its
// counters came to stays in the registry afterwards; its gauges go. Objects that count under the
// same name and labels (two clients of one process) are summed.
class MetricSource {
 public:
  // Adds the samples as of now. Any thread, at any time until the source has ended, under the lock
  // of the registry. Names, labels and help texts are always the same; rules as in MetricRegistry.
  using Collect = std::function<void(std::vector<MetricSample>&)>;

  MetricSource() = default;
  // The registry outlives the source.
  MetricSource(MetricRegistry& registry, Collect collect);
  MetricSource(MetricSource&& other) noexcept;
  MetricSource& operator=(MetricSource&& other) noexcept;
  ~MetricSource() { End(); }

 private:
  void End();
  MetricRegistry* registry_ = nullptr;  // null: of none
  uint64_t id_ = 0;
};

// Owns its metrics: references stay good as long as it lives. Any thread.
class MetricRegistry {
 public:
  // The metric of this name and these labels, made at the first call. Names and label names are
  // [a-zA-Z_][a-zA-Z0-9_]*; counters end in _total, and no gauge does; what is measured is shown in
  // seconds or bytes, and the name says so (..._seconds_total, ..._bytes). A name has one kind and
  // one help text; asking for it as another kind is a bug (CHECK).
  Counter& GetCounter(std::string_view name, std::string_view help, const MetricLabels& labels = {},
                      MetricUnit unit = MetricUnit::kOne);
  Gauge& GetGauge(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  // Its name ends in _seconds or _ratio.
  HistogramMetric& GetHistogram(std::string_view name, std::string_view help,
                                HistogramMetric::Of of, const MetricLabels& labels = {});

  // All metrics now, sorted by name, then labels.
  std::vector<MetricSample> Snapshot() const;
  // The value, or 0 if there is no such metric. For tests and status.
  int64_t Value(std::string_view name, const MetricLabels& labels = {}) const;
  // Sum over all labels of a name.
  int64_t Total(std::string_view name) const;

 private:
  friend class MetricSource;
  struct Family {
    MetricKind kind;
    std::string help;
    MetricUnit unit;
    std::map<MetricLabels, std::unique_ptr<Counter>> counters;
    std::map<MetricLabels, std::unique_ptr<Gauge>> gauges;
    std::map<MetricLabels, std::unique_ptr<HistogramMetric>> histograms;
  };
  Family& FamilyOf(std::string_view name, std::string_view help, MetricKind kind, MetricUnit unit);
  uint64_t Add(MetricSource::Collect collect);
  void Remove(uint64_t source);

  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
  std::map<uint64_t, MetricSource::Collect> sources_;
  uint64_t next_source_ = 1;
};

// The registry of this process, for real processes. Simulated processes have one each.
MetricRegistry& ProcessMetrics();

}  // namespace tailcast
