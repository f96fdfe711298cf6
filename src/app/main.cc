// The tailcast binary: flags and wiring only.
#include <csignal>
#include <cstdio>

#include "command.h"
#include "copytree_command.h"
#include "deployment.h"

namespace tailcast::app {
namespace {
volatile std::sig_atomic_t interrupted = 0;
}  // namespace

int Fail(const Status& status) {
  std::fprintf(stderr, "tailcast: %s\n", status.message().c_str());
  return IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

void CellOptions::Add(CLI::App* command, bool with_cluster) {
  command->add_option("--dir", dir, "Folder of a deployment made by `tailcast up`");
  command->add_option("--cell", cell, "HOST:PORT of the cell's scheduler, instead of --dir");
  if (with_cluster) command->add_option("--cluster", cluster, "Name of the cluster, with --dir");
}

Result<std::string> CellOptions::Find() const { return FindCell(cell, dir, cluster); }

void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}
bool Interrupted() { return interrupted != 0; }

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app("Ordered messages to very many consumers, in every cluster of the world");
  app.require_subcommand(1);
  app.set_version_flag("--version", TAILCAST_VERSION);
  Action action;
  AddUp(app, action);
  AddRun(app, action);
  AddStream(app, action);
  AddProduce(app, action);
  AddConsume(app, action);
  AddStatus(app, action);
  AddCopytreeCommand(app, action);
  AddDemo(app, action);
  AddLoad(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitUsage;
  }
  return action();
}

}  // namespace tailcast::app

int main(int argc, char** argv) { return tailcast::app::Main(argc, argv); }
