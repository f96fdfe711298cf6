// tailcast copytree plan|compare|explain|simulate|diff|import|check: the optimiser on the command
// line.
#pragma once

#include <functional>
#include <iostream>

#include <CLI/CLI.hpp>

namespace tailcast::app {

// Declares the command; the chosen one's work is stored in `action`, which returns the exit code:
// 0 done, 1 failed (no such tree, unreadable file, a check that found something), 2 bad usage or
// bad input. The streams must live as long as the action.
void AddCopytreeCommand(CLI::App& app, std::function<int()>& action, std::ostream& out = std::cout,
                        std::ostream& err = std::cerr);

}  // namespace tailcast::app
