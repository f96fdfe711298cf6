#include "tailcast/base/metrics_http.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <charconv>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

namespace tailcast {
namespace {

prometheus::MetricType TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return prometheus::MetricType::Counter;
    case MetricKind::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricKind::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

// Prometheus counts what lies at or below each bound.
prometheus::ClientMetric::Histogram HistogramOf(const MetricSample& sample) {
  prometheus::ClientMetric::Histogram out;
  uint64_t below = 0;
  for (size_t i = 0; i < sample.counts.size(); ++i) {
    below += static_cast<uint64_t>(sample.counts[i]);
    const double bound = i < sample.bounds.size() ? sample.Shown(sample.bounds[i])
                                                  : std::numeric_limits<double>::infinity();
    out.bucket.push_back({.cumulative_count = below, .upper_bound = bound});
  }
  out.sample_count = below;
  out.sample_sum = sample.shown();
  return out;
}

class Collector : public prometheus::Collectable {
 public:
  explicit Collector(const MetricRegistry& registry) : registry_(registry) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    for (const MetricSample& sample : registry_.Snapshot()) {  // sorted by name
      if (families.empty() || families.back().name != sample.name) {
        families.push_back({sample.name, sample.help, TypeOf(sample.kind), {}});
      }
      prometheus::ClientMetric metric;
      for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
      switch (sample.kind) {
        case MetricKind::kCounter:
          metric.counter.value = sample.shown();
          break;
        case MetricKind::kGauge:
          metric.gauge.value = sample.shown();
          break;
        case MetricKind::kHistogram:
          metric.histogram = HistogramOf(sample);
          break;
      }
      families.back().metric.push_back(std::move(metric));
    }
    return families;
  }

 private:
  const MetricRegistry& registry_;
};

class Server : public MetricsServer {
 public:
  Server(MetricRegistry& registry, const std::string& address)
      : exposer_(address), collector_(std::make_shared<Collector>(registry)) {
    exposer_.RegisterCollectable(collector_);
  }
  int port() const override { return exposer_.GetListeningPorts().front(); }

 private:
  prometheus::Exposer exposer_;
  std::shared_ptr<Collector> collector_;
};

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::Start(MetricRegistry& registry,
                                                            const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon != std::string::npos && colon > 0) {
    const char* end = address.data() + address.size();
    const auto parsed = std::from_chars(address.data() + colon + 1, end, port);
    if (parsed.ec != std::errc() || parsed.ptr != end) port = -1;
  }
  if (port < 0 || port > 65535) {
    return InvalidArgumentError("metrics address '" + address +
                                "' is not host:port; use for example 127.0.0.1:0");
  }
  try {
    return std::unique_ptr<MetricsServer>(std::make_unique<Server>(registry, address));
  } catch (const std::exception& e) {
    return FailedPreconditionError("metrics address " + address + ": " + e.what() +
                                   "; is the port taken? port 0 picks a free one");
  }
}

}  // namespace tailcast
