#include "tailcast/app/reference.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace tailcast::app {
namespace {

// Of "TEXT:{a,b,c}", the members.
std::vector<std::string> ValuesOf(const std::string& type) {
  std::vector<std::string> values;
  const size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return values;
  for (size_t at = open + 1; at < close;) {
    const size_t end = std::min(type.find(',', at), close);
    values.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return values;
}

OptionReference ReferenceOf(const CLI::Option& option) {
  OptionReference out;
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  if (out.names.empty()) out.positional = option.get_name(true);
  out.takes_value = option.get_items_expected_max() > 0;
  out.required = option.get_required();
  out.description = option.get_description();
  if (out.takes_value) {
    out.values = ValuesOf(option.get_type_name());
    out.fallback = option.get_default_str();
  }
  return out;
}

void AddCommand(const CLI::App& app, const std::string& name, std::vector<CommandReference>& all) {
  const size_t at = all.size();
  all.push_back(
      {.name = name, .description = app.get_description(), .options = {}, .commands = {}});
  for (const CLI::Option* option : app.get_options()) {
    all[at].options.push_back(ReferenceOf(*option));
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    all[at].commands.emplace_back(sub->get_name(), sub->get_description());
    AddCommand(*sub, name + " " + sub->get_name(), all);
  }
}

std::string Dashed(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

// As text that troff prints as it is.
std::string Roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

// In single quotes of a shell.
std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string Joined(const std::vector<std::string>& words, const std::string& between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

// "'tailcast up'|'tailcast run'", of all commands below the program.
std::string Patterns(const std::vector<CommandReference>& commands) {
  std::vector<std::string> patterns;
  for (size_t i = 1; i < commands.size(); ++i) patterns.push_back(Quoted(commands[i].name));
  return Joined(patterns, "|");
}

// "'tailcast up --dir'|...": of the command, what takes a value and has (or has not) given ones.
std::string ValuePatterns(const CommandReference& command, const OptionReference& option) {
  std::vector<std::string> patterns;
  for (const std::string& name : option.names)
    patterns.push_back(Quoted(command.name + " " + name));
  return Joined(patterns, "|");
}

}  // namespace

std::vector<CommandReference> ReferenceOf(const CLI::App& root, const std::string& program) {
  std::vector<CommandReference> all;
  AddCommand(root, program, all);
  return all;
}

std::string ManualPageName(const CommandReference& command) { return Dashed(command.name) + ".1"; }

std::string ManualPage(const CommandReference& command, const std::string& version) {
  std::string title = Dashed(command.name);
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string text = ".TH " + Roff(title) + " 1 \"\" \"tailcast " + Roff(version) + "\"\n";
  text += ".SH NAME\n" + Roff(Dashed(command.name)) + " \\- " + Roff(command.description) + "\n";
  text += ".SH SYNOPSIS\n.B " + Roff(command.name) + "\n";
  if (!command.commands.empty()) text += "\\fICOMMAND\\fR\n";
  for (const OptionReference& option : command.options) {
    if (option.positional.empty() && option.required) {
      text += Roff(option.names.front()) + " \\fIVALUE\\fR\n";
    }
  }
  text += "[\\fIOPTIONS\\fR]\n";
  for (const OptionReference& option : command.options) {
    if (option.positional.empty()) continue;
    text += option.required ? "\\fI" + Roff(option.positional) + "\\fR\n"
                            : "[\\fI" + Roff(option.positional) + "\\fR]\n";
  }
  if (!command.commands.empty()) {
    text += ".SH COMMANDS\n";
    for (const auto& [word, description] : command.commands) {
      text += ".TP\n\\fB" + Roff(word) + "\\fR\n" + Roff(description) + "; see \\fB" +
              Roff(Dashed(command.name) + "-" + word) + "\\fR(1)\n";
    }
  }
  text += ".SH OPTIONS\n";
  for (const OptionReference& option : command.options) {
    text += ".TP\n";
    if (option.positional.empty()) {
      text += "\\fB" + Roff(Joined(option.names, ", ")) + "\\fR";
      if (option.takes_value) {
        text += " \\fI" +
                Roff(option.values.empty() ? "VALUE" : "{" + Joined(option.values, "|") + "}") +
                "\\fR";
      }
    } else {
      text += "\\fI" + Roff(option.positional) + "\\fR";
    }
    text += "\n" + Roff(option.description);
    if (!option.fallback.empty()) text += ". Default: " + Roff(option.fallback);
    if (option.required) text += " (required)";
    text += "\n";
  }
  text +=
      ".SH ENVIRONMENT\n.TP\nTAILCAST_DIR, TAILCAST_CELL\nWhat \\fB\\-\\-dir\\fR and "
      "\\fB\\-\\-cell\\fR are where they are not given\n.TP\nTAILCAST_CONTEXT\nThe context of "
      "\\fBtailcast\\-context\\fR(1) that is used in their place\n";
  text += ".SH EXIT STATUS\n0 done, 1 failed, 2 bad usage\n";
  return text;
}

std::string BashCompletion(const std::vector<CommandReference>& commands) {
  const std::string& program = commands.front().name;
  const std::string function = "_" + program;
  std::string text = "# bash completion of " + program + ", made by `" + program +
                     " completion bash`\n" + function + "() {\n" +
                     "  local current=${COMP_WORDS[COMP_CWORD]} "
                     "previous=${COMP_WORDS[COMP_CWORD-1]} at=" +
                     program + " word candidates\n" +
                     "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
                     "    case \"$at $word\" in\n      " +
                     Patterns(commands) + ") at=\"$at $word\" ;;\n    esac\n  done\n" +
                     "  case \"$at $previous\" in\n";
  for (const CommandReference& command : commands) {
    for (const OptionReference& option : command.options) {
      if (option.names.empty() || !option.takes_value) continue;
      text += "    " + ValuePatterns(command, option) + ") COMPREPLY=(";
      if (!option.values.empty()) {
        text += "$(compgen -W " + Quoted(Joined(option.values, " ")) + " -- \"$current\")";
      }
      text += "); return ;;\n";
    }
  }
  text += "  esac\n  case $at in\n";
  for (const CommandReference& command : commands) {
    std::vector<std::string> words;
    for (const auto& [word, description] : command.commands) words.push_back(word);
    for (const OptionReference& option : command.options) {
      words.insert(words.end(), option.names.begin(), option.names.end());
    }
    text += "    " + Quoted(command.name) + ") candidates=" + Quoted(Joined(words, " ")) + " ;;\n";
  }
  return text + "  esac\n  COMPREPLY=($(compgen -W \"$candidates\" -- \"$current\"))\n}\n" +
         "complete -o default -F " + function + " " + program + "\n";
}

std::string ZshCompletion(const std::vector<CommandReference>& commands) {
  const std::string& program = commands.front().name;
  const std::string function = "_" + program;
  std::string text = "#compdef " + program + "\n# made by `" + program + " completion zsh`\n" +
                     function + "() {\n  local at=" + program +
                     " word\n  local -a candidates\n"
                     "  for word in ${words[2,CURRENT-1]}; do\n    case \"$at $word\" in\n      (" +
                     Patterns(commands) + ") at=\"$at $word\" ;;\n    esac\n  done\n" +
                     "  case \"$at ${words[CURRENT-1]}\" in\n";
  for (const CommandReference& command : commands) {
    for (const OptionReference& option : command.options) {
      if (option.names.empty() || !option.takes_value) continue;
      text += "    (" + ValuePatterns(command, option) + ") " +
              (option.values.empty() ? "_files" : "compadd " + Joined(option.values, " ")) +
              "; return ;;\n";
    }
  }
  text += "  esac\n  case $at in\n";
  for (const CommandReference& command : commands) {
    std::vector<std::string> candidates;
    for (const auto& [word, description] : command.commands) {
      candidates.push_back(Quoted(word + ":" + description));
    }
    for (const OptionReference& option : command.options) {
      for (const std::string& name : option.names) {
        candidates.push_back(Quoted(name + ":" + option.description));
      }
    }
    text += "    (" + Quoted(command.name) + ") candidates=(" + Joined(candidates, " ") + ") ;;\n";
  }
  return text + "  esac\n  _describe -o 'command or option' candidates || _files\n}\n" +
         "compdef " + function + " " + program + " 2>/dev/null\n" +
         "[[ $funcstack[1] == " + function + " ]] && " + function + " \"$@\"\n";
}

}  // namespace tailcast::app
