// What the subcommands of `tailcast copytree` share: their options, the files they read and write,
// and one function each. copytree_command.cc declares the options.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/cell/topology.h"
#include "tailcast/copytree/plan.h"
#include "tailcast/copytree/render.h"

namespace tailcast::app {

// printf of one number.
std::string FormatNumber(const char* format, double value);
Result<std::string> ReadWholeFile(const std::string& path);
Status WriteWholeFile(const std::string& path, const std::string& text);

// The error with the name of the stream that it is about, if it has one.
Status InStream(const cell::TopologyStream& stream, const Status& status);

// Options that several subcommands share.
struct CopytreeFlags {
  std::string topology;
  std::vector<std::string> streams;
  std::string source;
  std::vector<std::string> destinations;
  std::optional<double> rate_mbps;
  std::optional<int> max_depth, max_fanout;
  std::optional<double> max_delay_ms, hop_delay_ms, churn;
  std::vector<std::string> cluster_limits;
  std::string current;
  std::string effort = "normal";
  double tolerance_percent = 0;
  bool standby = false;
  std::optional<double> robust_percent;
  bool replan = false;
  bool each_source = false;
  bool prim = false;
  bool time = false;
  bool ascii = false;
  std::string format = "text";
  std::string output;
  // explain, simulate, diff
  std::string target;
  std::vector<std::string> fail;
  std::string before, after;
  // import
  std::vector<std::string> tables;
  std::string tier = "PREMIUM";
  bool complete = false;
  std::string table;
  std::vector<std::string> only;
};

// A topology with the flags applied: what to plan.
struct CopytreeTask {
  cell::Topology topology;
  std::optional<copytree::Graph> graph;
  copytree::PlanOptions options;
  std::vector<cell::TopologyStream> streams;
};

// Not thread-safe; one run of one subcommand.
class CopytreeSession {
 public:
  CopytreeSession(std::shared_ptr<CopytreeFlags> flags, std::ostream& out, std::ostream& err)
      : flags_(std::move(flags)), out_(out), err_(err) {}

  // The exit code.
  int Run(Status (CopytreeSession::*what)());

  Status DoPlan();
  Status DoCompare();
  Status DoExplain();
  Status DoSimulate();
  Status DoDiff();
  Status DoImport();
  Status DoCheck();

 private:
  Result<CopytreeTask> Prepare(const std::string& file);
  Result<std::pair<CopytreeTask, cell::TopologyStream>> PrepareOne(const std::string& file);
  Result<copytree::Tree> ReadTree(const std::string& path);
  Result<copytree::Plan> PlanOf(const CopytreeTask& task, const cell::TopologyStream& stream,
                                const copytree::PlanOptions& options);
  Status Write(const std::string& text);
  copytree::RenderOptions Rendering(const copytree::PlanOptions& options) const {
    return {.ascii = flags_->ascii, .pair = nullptr, .limits = options.limits};
  }
  bool Json() const { return flags_->format == "json"; }

  std::shared_ptr<CopytreeFlags> flags_;
  std::ostream& out_;
  std::ostream& err_;
  bool found_trouble_ = false;
};

}  // namespace tailcast::app
