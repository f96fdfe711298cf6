#include "tailcast/app/help_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "tailcast/app/terminal.h"

namespace tailcast::app {

std::string WrapHelp(const std::string& help, size_t columns, size_t text_at) {
  std::string out;
  for (std::string_view rest = help; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    size_t indent = line.starts_with(' ') && text_at + 20 < columns ? text_at : 0;
    size_t used = 0;  // of this line, by the indent
    while (line.size() + used > columns) {
      // Not inside what stands before the text.
      const size_t first = used == 0 ? indent : 0;
      size_t at = line.rfind(' ', columns - used);
      if (at == line.npos || at <= first) at = line.find(' ', columns - used);
      if (at == line.npos) break;
      out.append(line.substr(0, at)).append("\n").append(indent, ' ');
      line.remove_prefix(std::min(line.find_first_not_of(' ', at), line.size()));
      used = indent;
    }
    out.append(line).append("\n");
  }
  return out;
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  return WrapHelp(CLI::Formatter::make_help(app, std::move(name), mode), SizeOfTerminal().columns,
                  get_column_width());
}

}  // namespace tailcast::app
