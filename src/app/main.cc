// The tailcast binary: flags and wiring only.
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tailcast/app/command.h"
#include "tailcast/app/copytree_command.h"
#include "tailcast/app/help_text.h"
#include "tailcast/app/repair_command.h"
#include "tailcast/app/tail_command.h"
#include "tailcast/base/free_memory.h"
#include "tailcast/base/nearest.h"

namespace tailcast::app {
namespace {
// A standard stream that the caller closed must not become the number of a socket of ours. What
// takes its place fails every use: it is open the wrong way round.
void OccupyStandardStreams(int, char**, char**) {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) return;  // takes the lowest number
  }
}
// Before the initialisers of libraries, some of which open descriptors (librados).
[[gnu::section(".preinit_array"), gnu::used]] void (*const g_first)(int, char**,
                                                                    char**) = OccupyStandardStreams;

// Whether standard output is a pipe or socket that nobody reads any more.
bool ReaderIsGone() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

// What is wrong with the command line, as a person would put it. CLI11 complains of missing options
// before unknown ones, but a mistyped name is both.
std::string UsageError(const CLI::App& command, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = command.remaining();
  if (unknown.empty()) {
    return error.get_name() == "RequiredError" &&
                   !command.get_subcommands([](const CLI::App*) { return true; }).empty()
               ? "a command is missing"
               : error.what();
  }
  const std::string word = unknown.front().substr(0, unknown.front().find('='));
  std::vector<std::string> names;
  if (word.starts_with("-")) {
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::string name = command.get_name();
    std::string why;
    if (word == "--cluster" && (name == "produce" || name == "tail")) {
      why = ": a stream is published where its source is, which is found";
    } else if (word == "--cluster" && name == "verify") {
      why = ": all cells of the stream are compared";
    }
    return "unknown option " + word + (why.empty() ? DidYouMean(word, names) : why);
  }
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names.empty() ? "'" + word + "' was not expected"
                       : "no command '" + word + "'" + DidYouMean(word, names);
}

int FailUsage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string words = "tailcast";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    words += " " + command->get_name();
  }
  std::fprintf(stderr, "%s: %s\n`%s --help` lists what there is\n", words.c_str(),
               UsageError(*command, error).c_str(), words.c_str());
  return kExitUsage;
}
}  // namespace

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  KeepFreedMemory();
  CLI::App app("Ordered messages to very many consumers, in every cluster of the world");
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(1);
  app.set_version_flag("--version", TAILCAST_VERSION);
  Action action;
  AddUp(app, action);
  AddRun(app, action);
  AddKey(app, action);
  AddStream(app, action);
  AddProduce(app, action);
  AddTail(app, action);
  AddConsume(app, action);
  AddStatus(app, action);
  AddWorkers(app, action);
  AddVerify(app, action);
  AddMonitor(app, action);
  AddRepair(app, action);
  AddCache(app, action);
  AddContext(app, action);
  AddCopytreeCommand(app, action);
  AddDemo(app, action);
  AddLoad(app, action);
  AddReference(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return FailUsage(app, error);
    app.exit(error);
    return kExitDone;
  }
  const int code = action();
  errno = 0;
  // Who reads no further wants no more: that is no error.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && !ReaderIsGone() &&
      code == kExitDone) {
    return Fail(UnavailableError(std::string("can't write standard output") +
                                 (errno != 0 ? std::string(": ") + std::strerror(errno) : "")));
  }
  return code;
}

}  // namespace tailcast::app

int main(int argc, char** argv) { return tailcast::app::Main(argc, argv); }
