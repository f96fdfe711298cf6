// tailcast completion and tailcast man: made of the tree of options.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>

#include "tailcast/app/command.h"
#include "tailcast/app/reference.h"

namespace tailcast::app {
namespace {

constexpr char kProgram[] = "tailcast";

int WriteManual(const CLI::App& root, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Fail(ErrnoStatus(error.value(), "make the folder " + folder));
  for (const CommandReference& command : ReferenceOf(root, kProgram)) {
    const std::string path = folder + "/" + ManualPageName(command);
    std::ofstream out(path);
    out << ManualPage(command, root.version());
    out.close();
    if (!out) return Fail(UnavailableError("can't write " + path));
  }
  return kExitDone;
}

}  // namespace

void AddReference(CLI::App& app, Action& action) {
  CLI::App* completion =
      app.add_subcommand("completion", "Print what completes commands in a shell");
  auto shell = std::make_shared<std::string>();
  completion->add_option("SHELL", *shell, "Which one")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  completion->callback([&app, &action, shell] {
    action = [&app, shell] {
      const auto commands = ReferenceOf(app, kProgram);
      std::fputs((*shell == "bash" ? BashCompletion(commands) : ZshCompletion(commands)).c_str(),
                 stdout);
      return kExitDone;
    };
  });
  CLI::App* man = app.add_subcommand("man", "Write a manual page for each command");
  auto folder = std::make_shared<std::string>();
  man->add_option("DIR", *folder, "Where to; made if needed")->required();
  man->callback(
      [&app, &action, folder] { action = [&app, folder] { return WriteManual(app, *folder); }; });
}

}  // namespace tailcast::app
