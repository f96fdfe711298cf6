// tailcast key: makes the key of a cell.
#include <cstdio>
#include <memory>
#include <string>

#include "tailcast/app/command.h"
#include "tailcast/fabric/cell_key.h"

namespace tailcast::app {

void AddKey(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "key", "Make the key of a new cell: a file for all of its processes and clients, `cell_key`");
  auto path = std::make_shared<std::string>();
  command->add_option("FILE", *path, "Where; only its owner will be able to read it")->required();
  command->callback([&action, path] {
    action = [path] {
      if (const Status made = fabric::CellKey::Make(*path); !made.ok()) return Fail(made);
      if (const auto key = fabric::CellKey::Load(*path); !key.ok()) return Fail(key.status());
      std::printf(
          "%s holds a cell's key; copy it to the cell's hosts, and name it as cell_key in "
          "the configuration of each process\n",
          path->c_str());
      return kExitDone;
    };
  });
}

}  // namespace tailcast::app
