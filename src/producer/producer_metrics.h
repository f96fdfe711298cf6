// What a Producer shows to Prometheus (docs/metrics.md).
#pragma once

#include <string>

#include "tailcast/base/metrics.h"
#include "tailcast/producer/intake.h"

namespace tailcast::producer {

// From taking a message to its acknowledgement as durable.
HistogramMetric& CommitTime(MetricRegistry& registry, const std::string& stream);
// What the intake has taken and what came of it, until the source ends, before the intake does.
MetricSource ShowIntake(MetricRegistry& registry, const std::string& stream, const Intake& intake);

}  // namespace tailcast::producer
