// tailcast workers: the readers and writers of a cell, and another number of them while it runs.
//
// `up` starts and ends the processes (worker_counts.h is how it is told); one that shall end is
// asked to, hands over what it runs, and ends (node/leaving.h). This command waits until the cell's
// view shows it.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/command.h"
#include "tailcast/app/deployment.h"
#include "tailcast/app/worker_counts.h"
#include "tailcast/cell/cell_client.h"

namespace tailcast::app {
namespace {

struct WorkersOptions {
  CellOptions cell;
  WorkerCounts counts;
  bool no_wait = false;
  double timeout_s = 60;
};

struct Pool {
  v1::Role role;
  const char* name;
};
constexpr Pool kPools[] = {{v1::ROLE_READER, "reader"}, {v1::ROLE_WRITER, "writer"}};

void Show(const v1::CellView& view) {
  for (const Pool& pool : kPools) {
    for (const v1::ProcessInfo& process : view.processes()) {
      if (process.role() != pool.role) continue;
      std::printf("%-12s %-8s pid %-8" PRId64 " %s\n", process.name().c_str(), pool.name,
                  process.pid(), process.leaving() ? "leaving" : "up");
    }
  }
}

// Whom the change waits for: "reader-2 to start, writer-3 to hand over what it runs". Empty:
// nobody.
std::string Waiting(const v1::CellView& view, const Pool& pool, int count) {
  std::string text;
  const auto wait = [&](const std::string& name, const char* what) {
    text += (text.empty() ? "" : ", ") + name + what;
  };
  const std::vector<std::string> wanted = WorkerNames(pool.name, count);
  std::set<std::string> missing(wanted.begin(), wanted.end());
  for (const v1::ProcessInfo& process : view.processes()) {
    if (process.role() != pool.role) continue;
    const bool stays = std::find(wanted.begin(), wanted.end(), process.name()) != wanted.end();
    if (stays && !process.leaving()) missing.erase(process.name());
    if (!stays) {
      wait(process.name(),
           process.leaving() ? " to hand over what it runs" : " to be asked to end");
    }
  }
  for (const std::string& name : missing) wait(name, " to start");
  return text;
}

// Aborted: somebody else has asked for another number since.
Status CheckStillWanted(const WorkersOptions& options, const std::string& cell) {
  const auto counts = ReadWorkerCounts(options.cell.dir);
  if (!counts.ok()) return counts.status();
  const auto now = counts->find(cell);
  for (const auto& [pool, ask, count] :
       {std::tuple(kPools[0].name, options.counts.readers, &WorkerCounts::readers),
        std::tuple(kPools[1].name, options.counts.writers, &WorkerCounts::writers)}) {
    if (!ask || (now != counts->end() && now->second.*count == ask)) continue;
    return AbortedError(std::string("another `tailcast workers` has asked for ") +
                        (now != counts->end() && now->second.*count
                             ? std::to_string(*(now->second.*count)) + " "
                             : "another number of ") +
                        pool + "s since; that counts");
  }
  return OkStatus();
}

Status Follow(CellSession& session, const WorkersOptions& options, const std::string& cell) {
  const MonotonicTime end =
      session.loop().Now() + Duration::Micros(static_cast<int64_t>(options.timeout_s * 1e6));
  std::string waits, said;
  const auto done = [&] {
    const v1::CellView& view = session.client().view();
    waits.clear();
    if (options.counts.readers) waits = Waiting(view, kPools[0], *options.counts.readers);
    if (options.counts.writers) {
      const std::string writers = Waiting(view, kPools[1], *options.counts.writers);
      waits += (waits.empty() || writers.empty() ? "" : ", ") + writers;
    }
    return waits.empty() || waits != said;
  };
  for (;;) {
    session.loop().RunUntil(done, std::min(end, session.loop().Now() + Duration::Millis(100)));
    if (waits.empty()) return OkStatus();
    TAILCAST_RETURN_IF_ERROR(CheckStillWanted(options, cell));
    if (Interrupted()) {
      return CancelledError("interrupted; the change goes on by itself: tailcast workers shows it");
    }
    if (session.loop().Now() >= end)
      return DeadlineExceededError("not done in time; waits for " + waits);
    if (waits != said) std::fprintf(stderr, "tailcast workers: waits for %s\n", waits.c_str());
    said = waits;
  }
}

int RunWorkers(const WorkersOptions& options) {
  const bool change = options.counts != WorkerCounts();
  if (change && options.cell.dir.empty()) {
    return Fail(
        InvalidArgumentError("--readers and --writers are for a deployment of `tailcast up` "
                             "(--dir), which starts and ends "
                             "processes of this host. Elsewhere start one with `tailcast run`, and "
                             "end one with SIGTERM: it "
                             "hands over what it runs first"));
  }
  std::string cell;
  if (change) {
    const auto deployment = Deployment::Read(options.cell.dir);
    if (!deployment.ok()) return Fail(deployment.status());
    const auto found = deployment->Find(options.cell.cluster);
    if (!found.ok()) return Fail(found.status());
    cell = found->name;
  }
  auto session = CellSession::Open(options.cell);
  if (!session.ok()) return Fail(session.status());
  if (change) {
    CatchInterrupts();
    if (Status s = ChangeWorkerCounts(options.cell.dir, cell, options.counts); !s.ok())
      return Fail(s);
    if (options.no_wait) return kExitDone;
    if (Status s = Follow(**session, options, cell); !s.ok()) return Fail(s);
  }
  Show((*session)->client().view());
  return kExitDone;
}

}  // namespace

void AddWorkers(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("workers", "Show a cell's readers and writers; change how many there are");
  auto options = std::make_shared<WorkersOptions>();
  options->cell.Add(command, true);
  command->add_option("--readers", options->counts.readers, "As many readers from now on, 1 to 100")
      ->check(CLI::Range(1, kWorkersMax));
  command->add_option("--writers", options->counts.writers, "As many writers from now on, 1 to 100")
      ->check(CLI::Range(1, kWorkersMax));
  command->add_flag("--no-wait", options->no_wait, "Return when it is durable");
  command->add_option("--timeout", options->timeout_s, "Seconds to wait at most")
      ->check(AboveZero())
      ->capture_default_str();
  command->footer(
      "Nobody else is restarted, and messages flow on. Those that shall end hand over what they "
      "run\n"
      "first. `up` keeps to it when it is started again.");
  command->callback([&action, options] { action = [options] { return RunWorkers(*options); }; });
}

}  // namespace tailcast::app
