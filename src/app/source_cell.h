// Where a stream is produced.
#pragma once

#include <string>

#include "tailcast/app/command.h"
#include "tailcast/base/status.h"

namespace tailcast::app {

// The cell that `stream` is produced in, of the deployment that --dir names; with --cell that one.
// Errors as FindSource.
Result<CellOptions> AtSource(const CellOptions& options, const std::string& stream);

}  // namespace tailcast::app
