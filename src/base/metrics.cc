#include "tailcast/base/metrics.h"

#include <cctype>

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

MetricRegistry::Family& MetricRegistry::FamilyOf(std::string_view name, std::string_view help,
                                                 MetricKind kind) {
  auto it = families_.find(name);
  if (it == families_.end()) {
    TAILCAST_CHECK(IsMetricName(name), name);
    it = families_.emplace(std::string(name), Family{kind, std::string(help), {}, {}}).first;
  }
  TAILCAST_CHECK(it->second.kind == kind, "one metric name is used as a counter and as a gauge");
  return it->second;
}

Counter& MetricRegistry::GetCounter(std::string_view name, std::string_view help,
                                    const MetricLabels& labels) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Counter>& counter = FamilyOf(name, help, MetricKind::kCounter).counters[labels];
  if (counter == nullptr) counter = std::make_unique<Counter>();
  return *counter;
}

Gauge& MetricRegistry::GetGauge(std::string_view name, std::string_view help,
                                const MetricLabels& labels) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Gauge>& gauge = FamilyOf(name, help, MetricKind::kGauge).gauges[labels];
  if (gauge == nullptr) gauge = std::make_unique<Gauge>();
  return *gauge;
}

std::vector<MetricSample> MetricRegistry::Snapshot() const {
  std::lock_guard lock(mutex_);
  std::vector<MetricSample> samples;
  for (const auto& [name, family] : families_) {
    for (const auto& [labels, counter] : family.counters) {
      samples.push_back({name, family.help, family.kind, labels, counter->value()});
    }
    for (const auto& [labels, gauge] : family.gauges) {
      samples.push_back({name, family.help, family.kind, labels, gauge->value()});
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
