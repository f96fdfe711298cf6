// The terminal that a command writes to.
#pragma once

#include <cstddef>
#include <string>

namespace tailcast::app {

struct TerminalSize {
  size_t columns = 80, lines = 24;
};
// Of standard output as it is now; 80 x 24 if it does not say.
TerminalSize SizeOfTerminal();
bool IsTerminal(int fd);

// `text` as a screen of its own from the upper left corner on, over what was shown before: lines
// that do not fit are cut, and said to be left out. With escape sequences (ECMA-48).
std::string ScreenText(const std::string& text, const TerminalSize& size);

}  // namespace tailcast::app
