// Serves a registry's metrics to Prometheus: GET /metrics in the text format.
#pragma once

#include <memory>
#include <string>

#include "tailcast/base/metrics.h"
#include "tailcast/base/status.h"

namespace tailcast {

class MetricsServer {
 public:
  // Listens on `address`, "host:port"; port 0 picks a free one, see port(). `registry` must outlive
  // the server. It has two threads of its own.
  //   InvalidArgument    not host:port
  //   FailedPrecondition the port is taken or the host is not ours
  static Result<std::unique_ptr<MetricsServer>> Start(MetricRegistry& registry,
                                                      const std::string& address);
  virtual ~MetricsServer() = default;
  virtual int port() const = 0;
};

}  // namespace tailcast
