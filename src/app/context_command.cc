// tailcast context: which deployment commands mean that name none.
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>

#include "tailcast/app/command.h"
#include "tailcast/app/context.h"

namespace tailcast::app {
namespace {

struct ContextOptions {
  std::string name, dir, cell, cluster;
};

std::string TextOf(const Place& place) {
  if (!place.cell.empty()) return "--cell " + place.cell;
  return "--dir " + place.dir + (place.cluster.empty() ? "" : " --cluster " + place.cluster);
}

// Loads, changes, saves.
int Change(const std::function<Status(Contexts&)>& change) {
  const auto path = Contexts::PathIn(ProcessEnvironment);
  if (!path.ok()) return Fail(path.status());
  auto contexts = Contexts::Load(*path);
  if (!contexts.ok()) return Fail(contexts.status());
  if (Status changed = change(*contexts); !changed.ok()) return Fail(changed);
  if (Status saved = contexts->Save(*path); !saved.ok()) return Fail(saved);
  return kExitDone;
}

int Set(const ContextOptions& options) {
  if (options.dir.empty() == options.cell.empty()) {
    return Fail(InvalidArgumentError("give --dir DIR, or --cell HOST:PORT"));
  }
  Place place{.cell = options.cell, .cluster = options.cluster};
  if (!options.cell.empty()) {
    if (!options.cluster.empty()) return Fail(InvalidArgumentError("--cluster is for --dir"));
    CellOptions address;
    address.cell = options.cell;
    if (const auto found = address.Find(); !found.ok()) return Fail(found.status());
  } else {
    std::error_code error;
    place.dir = std::filesystem::absolute(options.dir, error).lexically_normal();
    if (error) return Fail(ErrnoStatus(error.value(), "--dir " + options.dir));
  }
  return Change([&](Contexts& contexts) { return contexts.Set(options.name, place); });
}

int List() {
  const auto path = Contexts::PathIn(ProcessEnvironment);
  const auto contexts = path.ok() ? Contexts::Load(*path) : Result<Contexts>(path.status());
  if (!contexts.ok()) return Fail(contexts.status());
  for (const auto& [name, place] : contexts->all()) {
    std::printf("%c %-20s %s\n", name == contexts->current() ? '*' : ' ', name.c_str(),
                TextOf(place).c_str());
  }
  if (contexts->all().empty()) std::printf("no contexts; make one with `tailcast context set`\n");
  return kExitDone;
}

int Show() {
  const auto place = DefaultPlace(ProcessEnvironment);
  if (!place.ok()) return Fail(place.status());
  if (place->origin.empty()) {
    std::printf("none: commands want --dir or --cell\n");
  } else {
    std::printf("%s, of %s\n", TextOf(*place).c_str(), place->origin.c_str());
  }
  return kExitDone;
}

}  // namespace

void AddContext(CLI::App& app, Action& action) {
  CLI::App* context = app.add_subcommand(
      "context", "Which deployment is meant where --dir and --cell are not given");
  context->require_subcommand(1);
  auto options = std::make_shared<ContextOptions>();
  const auto add = [&](const char* name, const char* about, bool named,
                       const std::function<int()>& run) {
    CLI::App* command = context->add_subcommand(name, about);
    if (named) command->add_option("NAME", options->name, "Of the context")->required();
    command->callback([&action, run] { action = run; });
    return command;
  };
  CLI::App* set = add("set", "Make a context, or change it; the first one is the current one", true,
                      [options] { return Set(*options); });
  set->add_option("--dir", options->dir, "Folder of a deployment made by `tailcast up`");
  set->add_option("--cell", options->cell, "HOST:PORT of a cell's scheduler");
  set->add_option("--cluster", options->cluster, "The cluster that consumers read in, with --dir");
  add("use", "Make a context the current one", true, [options] {
    return Change([&](Contexts& contexts) { return contexts.Use(options->name); });
  });
  add("remove", "Forget a context", true, [options] {
    return Change([&](Contexts& contexts) { return contexts.Remove(options->name); });
  });
  add("list", "All contexts; * is the current one", false, List);
  add("show", "What the environment and the contexts come to, now", false, Show);
}

}  // namespace tailcast::app
