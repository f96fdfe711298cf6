#include "tailcast/app/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace tailcast::app {

TerminalSize SizeOfTerminal() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {.columns = size.ws_col, .lines = size.ws_row};
}

bool IsTerminal(int fd) { return isatty(fd) != 0; }

std::string ScreenText(const std::string& text, const TerminalSize& size) {
  std::vector<std::string_view> lines;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    lines.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::string left_out;
  if (lines.size() > size.lines) {
    left_out = "... " + std::to_string(lines.size() - size.lines + 1) + " more lines";
    lines.resize(size.lines - 1);
    lines.push_back(left_out);
  }
  constexpr char kHome[] = "\033[H", kRestOfLine[] = "\033[K", kRestOfScreen[] = "\033[J";
  std::string screen = kHome;
  for (size_t i = 0; i < lines.size(); ++i) {
    // No newline at the end: the last line would scroll the first one away.
    screen += std::string(i == 0 ? "" : "\r\n") + std::string(lines[i].substr(0, size.columns)) +
              kRestOfLine;
  }
  return screen + kRestOfScreen;
}

}  // namespace tailcast::app
