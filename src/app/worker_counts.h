// How many readers and writers the cells of a deployment shall have, as `tailcast workers` last
// said: DIR/workers.json. `up` looks at it all the time, and when it begins.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"

namespace tailcast::app {

inline constexpr int kWorkersMax = 100;  // of a role in a cell

// nullopt: as `up` was told.
struct WorkerCounts {
  std::optional<int> readers, writers;
  bool operator==(const WorkerCounts&) const = default;
};
using CellWorkerCounts = std::map<std::string, WorkerCounts>;  // by cell

// None if there is no such file. DataLoss: it is damaged; the message says what to do.
Result<CellWorkerCounts> ReadWorkerCounts(const std::string& dir);
// Durably changes what `counts` gives for the cell; nobody else's change is lost.
Status ChangeWorkerCounts(const std::string& dir, const std::string& cell,
                          const WorkerCounts& counts);

// "reader-1", ..., "reader-COUNT".
std::vector<std::string> WorkerNames(std::string_view role, int count);

}  // namespace tailcast::app
