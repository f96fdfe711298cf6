// The commands as a reader or a shell wants them, made of the tree of options that --help prints:
// manual pages, and completion for bash and zsh.
//
// A core: no I/O.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tailcast::app {

struct OptionReference {
  std::vector<std::string> names;  // "--output", "-o"; empty: `positional` is its place
  std::string positional;          // "FILE"
  bool takes_value = false;
  bool required = false;
  std::vector<std::string> values;    // all there are; empty: others
  std::string description, fallback;  // the default
};

struct CommandReference {
  std::string name;  // "tailcast stream create"
  std::string description;
  std::vector<OptionReference> options;
  std::vector<std::pair<std::string, std::string>> commands;  // below it: word, description
};

// The program and each command below it, in the order of --help. `program`: what the root is
// called.
std::vector<CommandReference> ReferenceOf(const CLI::App& root, const std::string& program);

// man(7), for section 1.
std::string ManualPage(const CommandReference& command, const std::string& version);
// "tailcast-stream-create.1"
std::string ManualPageName(const CommandReference& command);

std::string BashCompletion(const std::vector<CommandReference>& commands);
std::string ZshCompletion(const std::vector<CommandReference>& commands);

}  // namespace tailcast::app
