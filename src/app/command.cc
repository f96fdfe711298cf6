#include "tailcast/app/command.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tailcast/app/context.h"
#include "tailcast/app/deployment.h"
#include "tailcast/app/interrupt.h"
#include "tailcast/base/host_port.h"
#include "tailcast/cell/user_table.h"
#include "tailcast/stream/names.h"

namespace tailcast::app {
namespace {
volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t at_the_keyboard = 0;
}  // namespace

namespace {

// A number for which `good` holds; `whole` ones have 18 digits at most.
CLI::Validator Number(const char* name, bool whole, const std::string& what,
                      const std::function<bool(double)>& good) {
  return CLI::Validator(
      [=](const std::string& text) {
        double number = 0;
        const bool is_number =
            whole ? !text.empty() && text.size() <= 18 &&
                        text.find_first_not_of("0123456789") == std::string::npos
                  : text.find_first_of("xXnN") == std::string::npos;  // 0x10, nan, inf
        if (is_number && CLI::detail::lexical_cast(text, number) && good(number)) {
          return std::string();
        }
        return "'" + text.substr(0, 40) + "' is not " + what;
      },
      name);
}

}  // namespace

CLI::Validator AboveZero() {
  return Number("ABOVE 0", false, "a number above 0", [](double number) { return number > 0; });
}

CLI::Validator NotNegative() {
  return Number("0 OR MORE", false, "a number, 0 or more",
                [](double number) { return number >= 0; });
}

CLI::Validator CountAboveZero() {
  return Number("ABOVE 0", true, "a whole number above 0",
                [](double number) { return number > 0; });
}

CLI::Validator CountOrZero() {
  return Number("0 OR MORE", true, "a whole number, 0 or more", [](double) { return true; });
}

CLI::Validator ShardNumber() {
  return Number("SHARD", true, "the number of a shard: 0, 1, ...",
                [](double number) { return number < stream::kShardsMax; });
}

CLI::Validator OneCharacter() {
  return CLI::Validator(
      [](std::string& text) {
        if (text == "\\t") text = "\t";
        return text.size() == 1 ? std::string() : "must be one character, or \\t";
      },
      "CHARACTER");
}

CLI::Validator UserName() {
  return CLI::Validator(
      [](const std::string& text) { return cell::ValidateUserName(text).message(); }, "NAME");
}

int Fail(const Status& status) {
  std::fprintf(stderr, "tailcast: %s\n", status.message().c_str());
  return IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

void CellOptions::Add(CLI::App* command, bool with_cluster) {
  command->add_option("--dir", dir,
                      "Folder of a deployment made by `tailcast up`; default: TAILCAST_DIR, or "
                      "that of the context");
  command->add_option(
      "--cell", cell,
      "HOST:PORT of the cell's scheduler, instead of --dir; default: TAILCAST_CELL, "
      "or that of the context. With --dir the name of a cell, as --cluster");
  if (with_cluster) command->add_option("--cluster", cluster, "Name of the cluster, with --dir");
  command->parse_complete_callback([this, with_cluster] { Settle(with_cluster); });
}

void CellOptions::Settle(bool with_cluster) {
  const bool named =
      !cell.empty() && cell.find(':') == std::string::npos;  // rather than an address
  if (dir.empty() && (cell.empty() || named)) {
    const auto place = DefaultPlace(ProcessEnvironment);
    if (!place.ok()) throw CLI::ValidationError(place.status().message());
    dir = place->dir;
    if (!named) cell = place->cell;
    if (with_cluster && !named && cluster.empty() && !place->cluster.empty()) {
      cluster = place->cluster;
      cluster_is_default = true;
    }
  }
  if (dir.empty() || !named) return;
  if (!with_cluster || !cluster.empty()) {
    throw CLI::ValidationError("--cell " + cell + " is no HOST:PORT");
  }
  cluster = std::exchange(cell, std::string());
}

Result<std::string> CellOptions::Find() const {
  if (!cell.empty()) {
    if (!IsHostPort(cell)) {
      return InvalidArgumentError("--cell: '" + cell + "' is not HOST:PORT of a cell's scheduler");
    }
  }
  return FindCell(cell, dir, cluster);
}

void MetricsOption::Add(CLI::App* command) {
  command->add_option("--metrics", address_,
                      "HOST:PORT where Prometheus finds this process' metrics (/metrics); port 0 "
                      "picks a free one. Default: nowhere");
}

Status MetricsOption::Start() {
  if (address_.empty()) return OkStatus();
  auto server = MetricsServer::Start(ProcessMetrics(), address_);
  if (!server.ok()) return server.status().WithContext("--metrics");
  server_ = std::move(*server);
  std::fprintf(stderr, "tailcast: metrics at http://%s:%d/metrics\n",
               address_.substr(0, address_.rfind(':')).c_str(), server_->port());
  return OkStatus();
}

void AddTraceDir(CLI::App* command) {
  const auto set = [](const std::string& text) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::absolute(text, error);
    if (!error) std::filesystem::create_directories(folder, error);
    if (error) throw CLI::ValidationError("--trace-dir", text + ": " + error.message());
    setenv("TAILCAST_TRACE_DIR", folder.c_str(), 1);
  };
  command->add_option_function<std::string>(
      "--trace-dir", set,
      "Log every step to this folder, to be checked against the models (tla/README.md)");
}

void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = [](int signal) {
    interrupted = 1;
    if (signal == SIGINT) at_the_keyboard = 1;
  };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}
bool Interrupted() { return interrupted != 0; }
bool InterruptedAtTheKeyboard() { return at_the_keyboard != 0; }

void Sleep(Duration time) {
  const timespec left{0, time.micros() * 1000};
  nanosleep(&left, nullptr);
}

}  // namespace tailcast::app
