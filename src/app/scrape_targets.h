// Where Prometheus finds the processes of a deployment, in the form of its file_sd_configs:
//
//   [{"targets": ["10.3.0.7:9101"], "labels": {"cell": "asia-east", "role": "reader", "process": "reader-1"}}]
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "tailcast/base/status.h"

namespace tailcast::app {

// Of what `tailcast status --json` says of cells. A cell that does not answer keeps those that it
// has in `before`, which is this function's own result or anything else: that it is away is to be
// seen, not forgotten. A process that shows no metrics is left out.
nlohmann::json ScrapeTargets(const nlohmann::json& cells, const nlohmann::json& before);

// Replaces the file as a whole; it is its own `before`.
Status WriteScrapeTargets(const std::string& path, const nlohmann::json& cells);

}  // namespace tailcast::app
