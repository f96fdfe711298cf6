// The command `tailcast tail`.
#pragma once

#include "tailcast/app/command.h"

namespace tailcast::app {

void AddTail(CLI::App& app, Action& action);

}  // namespace tailcast::app
