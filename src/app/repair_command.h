// tailcast repair.
#pragma once

#include "tailcast/app/command.h"

namespace tailcast::app {

void AddRepair(CLI::App& app, Action& action);

}  // namespace tailcast::app
