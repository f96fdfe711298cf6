#include "tailcast/base/metrics_http.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <charconv>
#include <exception>
#include <utility>
#include <vector>

namespace tailcast {
namespace {

class Collector : public prometheus::Collectable {
 public:
  explicit Collector(const MetricRegistry& registry) : registry_(registry) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    for (const MetricSample& sample : registry_.Snapshot()) {  // sorted by name
      const bool counter = sample.kind == MetricKind::kCounter;
      if (families.empty() || families.back().name != sample.name) {
        families.push_back(
            {sample.name,
             sample.help,
             counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge,
             {}});
      }
      prometheus::ClientMetric metric;
      for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
      (counter ? metric.counter.value : metric.gauge.value) = sample.shown();
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
