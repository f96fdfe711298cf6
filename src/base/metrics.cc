#include "tailcast/base/metrics.h"

#include <algorithm>
#include <cctype>
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
    it = families_.emplace(std::string(name), Family{kind, std::string(help), unit, {}, {}}).first;
  }
  TAILCAST_CHECK(it->second.kind == kind, "one metric name is used as a counter and as a gauge");
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
