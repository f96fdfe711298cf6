// What the benchmark's rows are asked to reach, and how near they came: a table behind the rows.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"

namespace tailcast::cache {

// Shows rows as `shown` does, and behind the last one the table of what is asked. Of rows that came
// several times it has the medians; of those that did not run, nothing.
class AskedTable final : public benchmark::BenchmarkReporter {
 public:
  explicit AskedTable(std::unique_ptr<benchmark::BenchmarkReporter> shown)
      : shown_(std::move(shown)) {}

  bool ReportContext(const Context& context) override { return shown_->ReportContext(context); }
  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override;

 private:
  // By row and counter.
  std::map<std::string, std::map<std::string, std::vector<double>>> values_;
  const std::unique_ptr<benchmark::BenchmarkReporter> shown_;
};

}  // namespace tailcast::cache
