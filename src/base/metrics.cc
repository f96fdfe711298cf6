#include "tailcast/base/metrics.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <tuple>
#include <utility>

#include "tailcast/base/check.h"

namespace tailcast {
namespace {
bool IsMetricName(std::string_view name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return false;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') return false;
  }
  return true;
}
}  // namespace

std::span<const int64_t> HistogramMetric::Bounds(Of of) {
  static constexpr int64_t kMicroseconds[] = {
      500,       1'000,      2'500,      5'000,      10'000,     25'000,
      50'000,    100'000,    250'000,    500'000,    1'000'000,  2'500'000,
      5'000'000, 10'000'000, 30'000'000, 60'000'000, 300'000'000};
  static constexpr int64_t kPerMillion[] = {0,       250'000, 500'000, 750'000,
                                            900'000, 990'000, 999'999};
  static_assert(std::size(kMicroseconds) <= kBoundsMax && std::size(kPerMillion) <= kBoundsMax);
  if (of == Of::kMicroseconds) return kMicroseconds;
  return kPerMillion;
}

void HistogramMetric::Observe(int64_t value, int64_t n) {
  value = std::max<int64_t>(value, 0);
  const auto bounds = Bounds(of_);
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  counts_[static_cast<size_t>(bucket)].fetch_add(n, std::memory_order_relaxed);
  sum_.fetch_add(value * n, std::memory_order_relaxed);
}

MetricSource::MetricSource(MetricRegistry& registry, Collect collect)
    : registry_(&registry), id_(registry.Add(std::move(collect))) {}

MetricSource::MetricSource(MetricSource&& other) noexcept
    : registry_(std::exchange(other.registry_, nullptr)), id_(other.id_) {}

MetricSource& MetricSource::operator=(MetricSource&& other) noexcept {
  if (this == &other) return *this;
  End();
  registry_ = std::exchange(other.registry_, nullptr);
  id_ = other.id_;
  return *this;
}

void MetricSource::End() {
  if (registry_ != nullptr) std::exchange(registry_, nullptr)->Remove(id_);
}

MetricRegistry::Family& MetricRegistry::FamilyOf(std::string_view name, std::string_view help,
                                                 MetricKind kind, MetricUnit unit) {
  auto it = families_.find(name);
  if (it == families_.end()) {
    TAILCAST_CHECK(IsMetricName(name), name);
    TAILCAST_CHECK(name.ends_with("_total") == (kind == MetricKind::kCounter), name);
    it = families_.emplace(std::string(name), Family{kind, std::string(help), unit, {}, {}, {}})
             .first;
  }
  TAILCAST_CHECK(it->second.kind == kind,
                 "one metric name is used as a counter and as a gauge, or as a histogram, too");
  return it->second;
}

Counter& MetricRegistry::GetCounter(std::string_view name, std::string_view help,
                                    const MetricLabels& labels, MetricUnit unit) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Counter>& counter =
      FamilyOf(name, help, MetricKind::kCounter, unit).counters[labels];
  if (counter == nullptr) counter = std::make_unique<Counter>();
  return *counter;
}

Gauge& MetricRegistry::GetGauge(std::string_view name, std::string_view help,
                                const MetricLabels& labels) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Gauge>& gauge =
      FamilyOf(name, help, MetricKind::kGauge, MetricUnit::kOne).gauges[labels];
  if (gauge == nullptr) gauge = std::make_unique<Gauge>();
  return *gauge;
}

HistogramMetric& MetricRegistry::GetHistogram(std::string_view name, std::string_view help,
                                              HistogramMetric::Of of, const MetricLabels& labels) {
  const bool time = of == HistogramMetric::Of::kMicroseconds;
  TAILCAST_CHECK(name.ends_with(time ? "_seconds" : "_ratio"), name);
  std::lock_guard lock(mutex_);
  std::unique_ptr<HistogramMetric>& histogram =
      FamilyOf(name, help, MetricKind::kHistogram,
               time ? MetricUnit::kMicroseconds : MetricUnit::kPerMillion)
          .histograms[labels];
  if (histogram == nullptr) histogram = std::make_unique<HistogramMetric>(of);
  return *histogram;
}

uint64_t MetricRegistry::Add(MetricSource::Collect collect) {
  std::lock_guard lock(mutex_);
  std::vector<MetricSample> samples;
  collect(samples);
  for (const MetricSample& sample : samples) {
    FamilyOf(sample.name, sample.help, sample.kind, sample.unit);
  }
  sources_.emplace(next_source_, std::move(collect));
  return next_source_++;
}

void MetricRegistry::Remove(uint64_t source) {
  std::lock_guard lock(mutex_);
  const auto found = sources_.find(source);
  std::vector<MetricSample> last;
  found->second(last);
  sources_.erase(found);
  for (const MetricSample& sample : last) {
    if (sample.kind != MetricKind::kCounter) continue;
    Family& family = FamilyOf(sample.name, sample.help, sample.kind, sample.unit);
    std::unique_ptr<Counter>& kept = family.counters[sample.labels];
    if (kept == nullptr) kept = std::make_unique<Counter>();
    kept->Add(sample.value);
  }
}

std::vector<MetricSample> MetricRegistry::Snapshot() const {
  std::lock_guard lock(mutex_);
  std::vector<MetricSample> all;
  for (const auto& [name, family] : families_) {
    for (const auto& [labels, counter] : family.counters) {
      all.push_back({name, family.help, family.kind, labels, counter->value(), family.unit});
    }
    for (const auto& [labels, gauge] : family.gauges) {
      all.push_back({name, family.help, family.kind, labels, gauge->value(), family.unit});
    }
    for (const auto& [labels, histogram] : family.histograms) {
      MetricSample sample{name, family.help, family.kind, labels, histogram->sum(), family.unit};
      sample.bounds = HistogramMetric::Bounds(histogram->of());
      for (size_t i = 0; i <= sample.bounds.size(); ++i) {
        sample.counts.push_back(histogram->count(i));
      }
      all.push_back(std::move(sample));
    }
  }
  for (const auto& [id, collect] : sources_) collect(all);
  std::stable_sort(all.begin(), all.end(), [](const MetricSample& a, const MetricSample& b) {
    return std::tie(a.name, a.labels) < std::tie(b.name, b.labels);
  });
  std::vector<MetricSample> samples;
  for (MetricSample& sample : all) {
    if (!samples.empty() && samples.back().name == sample.name &&
        samples.back().labels == sample.labels) {
      samples.back().value += sample.value;
    } else {
      samples.push_back(std::move(sample));
    }
  }
  return samples;
}

int64_t MetricRegistry::Value(std::string_view name, const MetricLabels& labels) const {
  for (const MetricSample& sample : Snapshot()) {
    if (sample.name == name && sample.labels == labels) return sample.value;
  }
  return 0;
}

int64_t MetricRegistry::Total(std::string_view name) const {
  int64_t total = 0;
  for (const MetricSample& sample : Snapshot()) {
    if (sample.name == name) total += sample.value;
  }
  return total;
}

MetricRegistry& ProcessMetrics() {
  // Never destroyed: threads may count until the very end.
  static MetricRegistry* registry = new MetricRegistry;
  return *registry;
}

}  // namespace tailcast
