// tailcast status: how the cells are, what is not well, and how far their streams are; once, or
// again and again. What does not answer is said to be silent; the rest is shown all the same.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "tailcast/app/command.h"
#include "tailcast/app/deployment.h"
#include "tailcast/app/scrape_targets.h"
#include "tailcast/app/status_gather.h"
#include "tailcast/app/terminal.h"
#include "tailcast/base/nearest.h"
#include "tailcast/inspect/status_facts.h"
#include "tailcast/inspect/status_text.h"
#include "tailcast/inspect/text.h"

namespace tailcast::app {
namespace {

using nlohmann::json;

// Cells that are asked at once.
constexpr size_t kLooksMax = 16;
// Of lines that nobody looks at on a screen.
constexpr size_t kColumnsOfFile = 4096;

struct StatusOptions {
  CellOptions cell;
  std::string stream;
  bool json = false, all = false;
  std::string targets;
  double watch_s = 0;
};

Result<std::vector<DeploymentCell>> CellsOf(const CellOptions& options) {
  if (options.dir.empty()) {
    TAILCAST_ASSIGN_OR_RETURN(const std::string scheduler, options.Find());
    return std::vector<DeploymentCell>{{"", scheduler}};
  }
  if (!options.cell.empty()) return options.Find().status();  // it says that both is one too many
  TAILCAST_ASSIGN_OR_RETURN(const Deployment deployment, Deployment::Read(options.dir));
  if (!options.cluster.empty()) TAILCAST_RETURN_IF_ERROR(deployment.Find(options.cluster).status());
  return deployment.cells;  // all: how far one is behind, others say
}

// Of all cells if `cluster` is empty.
json LookAtAll(std::vector<std::unique_ptr<CellLook>>& looks, const std::string& cluster) {
  std::vector<json> found(looks.size());
  for (size_t begin = 0; begin < looks.size(); begin += kLooksMax) {
    std::vector<std::thread> threads;
    for (size_t i = begin; i < std::min(begin + kLooksMax, looks.size()); ++i) {
      threads.emplace_back([&, i] { found[i] = looks[i]->Look(); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  json all = json::array();
  for (json& cell : found) all.push_back(std::move(cell));
  inspect::CompareHeads(all);
  if (cluster.empty()) return all;
  json one = json::array();
  for (json& cell : all) {
    if (cell["name"] == cluster) one.push_back(std::move(cell));
  }
  return one;
}

// NotFound if every cell answered and none knows the stream.
Status CheckStream(const json& cells, const std::string& stream,
                   const std::vector<std::string>& names) {
  if (stream.empty()) return OkStatus();
  for (const json& cell : cells) {
    if (cell.contains("error")) return OkStatus();
    for (const json& one : cell["streams"]) {
      if (one["stream"] == stream) return OkStatus();
    }
  }
  return NotFoundError("no stream '" + stream + "'" + DidYouMean(stream, names));
}

class StatusScreen {
 public:
  explicit StatusScreen(const StatusOptions& options)
      : options_(options), terminal_(IsTerminal(STDOUT_FILENO)) {}

  void Show(const json& cells) const {
    if (options_.json) {
      std::printf("%s\n", json({{"cells", cells}}).dump(options_.watch_s > 0 ? -1 : 2).c_str());
      std::fflush(stdout);
      return;
    }
    const TerminalSize size = SizeOfTerminal();
    inspect::StatusView view{
        .stream = options_.stream,
        .details = !options_.cell.cluster.empty() || !options_.cell.cell.empty(),
        .all = options_.all,
        .columns = terminal_ ? size.columns : kColumnsOfFile};
    std::string text = inspect::StatusText(cells, view);
    if (options_.watch_s > 0) text = inspect::TimeText(ReadWallClock()) + "\n" + text;
    if (options_.watch_s > 0 && terminal_) text = ScreenText(text, size);
    if (options_.watch_s > 0 && !terminal_) text += "\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  // What comes before the first and after the last look.
  void Begin() const { Switch("\033[?1049h\033[?25l"); }  // another screen, without a cursor
  void End() const { Switch("\033[?25h\033[?1049l"); }

 private:
  void Switch(const char* sequence) const {
    if (options_.watch_s <= 0 || !terminal_ || options_.json || !options_.targets.empty()) return;
    std::fputs(sequence, stdout);
    std::fflush(stdout);
  }
  const StatusOptions& options_;
  const bool terminal_;
};

int ShowStatus(const StatusOptions& options) {
  const auto cells = CellsOf(options.cell);
  if (!cells.ok()) return Fail(cells.status());
  std::vector<std::unique_ptr<CellLook>> looks;
  for (const DeploymentCell& cell : *cells) {
    looks.push_back(std::make_unique<CellLook>(cell, options.stream));
  }
  const bool watch = options.watch_s > 0;
  if (watch) CatchInterrupts();
  const StatusScreen screen(options);
  Status silent;  // the first cell that did not answer
  for (bool first = true;; first = false) {
    const MonotonicTime next =
        ReadMonotonicClock() + Duration::Micros(static_cast<int64_t>(options.watch_s * 1e6));
    const json all = LookAtAll(looks, options.cell.cluster);
    if (watch && Interrupted()) break;
    if (first) {
      std::set<std::string> names;  // which several cells have
      for (const auto& look : looks) {
        names.insert(look->stream_names().begin(), look->stream_names().end());
      }
      const Status known = CheckStream(all, options.stream, {names.begin(), names.end()});
      if (!known.ok()) return Fail(known);
      screen.Begin();
    }
    if (options.targets.empty()) {
      screen.Show(all);
    } else if (Status s = WriteScrapeTargets(options.targets, all); !s.ok()) {
      return Fail(s.WithContext("--targets"));
    }
    for (const json& cell : all) {
      if (!cell.contains("error") || !silent.ok()) continue;
      silent = UnavailableError("cell " + cell["name"].get<std::string>() + ": " +
                                cell["error"].get<std::string>());
    }
    if (!watch || std::ferror(stdout) != 0) break;
    // The reader of a pipe may go away meanwhile.
    pollfd out{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
    const Duration wait = std::max(Duration(), next - ReadMonotonicClock());
    if (poll(&out, 1, static_cast<int>(wait.millis())) > 0) break;
    if (Interrupted()) break;
  }
  screen.End();
  return silent.ok() || watch ? kExitDone : Fail(silent);
}

}  // namespace

void AddStatus(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "status", "How the cells are, what is not well, and how far their streams are");
  auto options = std::make_shared<StatusOptions>();
  options->cell.Add(command, true);
  command->add_option("--stream", options->stream,
                      "Each shard of this stream in each cell, and its operations");
  command->add_flag("--all", options->all, "Idle streams and operations, too");
  command
      ->add_option("--watch", options->watch_s,
                   "Again every so many seconds (2 if no number is given), until Ctrl-C")
      ->expected(0, 1)
      ->default_str("2")
      ->check(AboveZero());
  command->add_flag("--json", options->json, "Everything, as JSON; with --watch a line each time");
  command
      ->add_option("--targets", options->targets,
                   "Instead of showing anything, write where Prometheus finds the metrics of each "
                   "process to this file, for file_sd_configs; with --watch again each time")
      ->excludes("--json")
      ->excludes("--stream")
      ->excludes("--all");
  command->callback([&action, options] {
    action = [options] {
      // The cell of a context is where consumers read, not all that one looks at.
      if (options->cell.cluster_is_default) options->cell.cluster.clear();
      return ShowStatus(*options);
    };
  });
}

}  // namespace tailcast::app
