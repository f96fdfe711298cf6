// What `--help` prints, no wider than who reads it has room for.
#pragma once

#include <cstddef>
#include <string>

#include <CLI/CLI.hpp>

namespace tailcast::app {

// Lines of more than `columns` are broken between words. What follows of an option begins below its
// text, which begins at column `text_at`.
std::string WrapHelp(const std::string& help, size_t columns, size_t text_at);

// CLI11's text, as wide as the terminal; 80 columns where there is none.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

}  // namespace tailcast::app
