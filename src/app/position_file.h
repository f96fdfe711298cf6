// The file of `tailcast consume --position-file`: where the next run goes on, a line with a
// position for each shard.
#pragma once

#include <string>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/stream/position.h"

namespace tailcast::app {

// None if there is no such file. DataLoss names the line that is no position; PermissionDenied and
// others: it can't be read.
Result<std::vector<stream::Position>> ReadPositionFile(const std::string& path);

// Replaces the file as a whole, durably: whenever this process or the machine stops, the file has
// the old positions or the new ones. Writes PATH.part on the way.
Status WritePositionFile(const std::string& path, const std::vector<stream::Position>& positions);

}  // namespace tailcast::app
