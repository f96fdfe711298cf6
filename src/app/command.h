// What the commands of the binary share. Each command is a file with an Add function that declares
// its options and stores what is to be run.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "tailcast/base/metrics_http.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"

namespace tailcast::app {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// Set by the chosen command while options are parsed; run by main afterwards.
using Action = std::function<int()>;

void AddUp(CLI::App& app, Action& action);
void AddRun(CLI::App& app, Action& action);
void AddKey(CLI::App& app, Action& action);
void AddStream(CLI::App& app, Action& action);
void AddProduce(CLI::App& app, Action& action);
void AddConsume(CLI::App& app, Action& action);
void AddStatus(CLI::App& app, Action& action);
void AddWorkers(CLI::App& app, Action& action);
void AddVerify(CLI::App& app, Action& action);
void AddMonitor(CLI::App& app, Action& action);
void AddCache(CLI::App& app, Action& action);
void AddContext(CLI::App& app, Action& action);
void AddReference(CLI::App& app, Action& action);    // completion, man
void AddCacheRing(CLI::App* cache, Action& action);  // subcommands of `cache`
void AddDemo(CLI::App& app, Action& action);
void AddLoad(CLI::App& app, Action& action);

// Prints "tailcast: <message>" on stderr. InvalidArgument is bad usage, all else has failed.
int Fail(const Status& status);

// For options, with messages that say what is allowed.
CLI::Validator AboveZero();
CLI::Validator NotNegative();
CLI::Validator CountAboveZero();  // whole ones
CLI::Validator CountOrZero();
CLI::Validator ShardNumber();
CLI::Validator OneCharacter();
CLI::Validator UserName();

// The options that say which cell: --cell, or --dir with --cluster. Where neither --dir nor --cell
// is given, the environment or a context says (context.h).
struct CellOptions {
  std::string cell, dir, cluster;
  // Nobody typed the cluster: of a stream that is elsewhere another one is meant.
  bool cluster_is_default = false;
  void Add(CLI::App* command, bool with_cluster);
  Result<std::string> Find() const;

 private:
  void Settle(bool with_cluster);  // throws CLI::ValidationError
};

// --metrics HOST:PORT: this process' metrics for Prometheus, as long as it runs. Off by default.
class MetricsOption {
 public:
  void Add(CLI::App* command);
  // Says on standard error where they are. As MetricsServer::Start.
  Status Start();

 private:
  std::string address_;
  std::unique_ptr<MetricsServer> server_;
};

// --trace-dir DIR: this process and its children log their steps there (base/step_log.h). Sets
// TAILCAST_TRACE_DIR, which does the same for a program that links the libraries.
void AddTraceDir(CLI::App* command);

// Ctrl-C and SIGTERM set this instead of ending the process; commands look at it between steps.
void CatchInterrupts();
bool Interrupted();
// Less than a second; a signal ends it.
void Sleep(Duration time);

}  // namespace tailcast::app
