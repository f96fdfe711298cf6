// Which of the topology's streams `up` has made in a deployment's folder, in this run or an earlier
// one: one that was deleted since is not made again.
#pragma once

#include <set>
#include <string>

#include "tailcast/base/status.h"

namespace tailcast::app {

// None if there is no such file. Errors name it.
Result<std::set<std::string>> ReadMadeStreams(const std::string& dir);
Status WriteMadeStreams(const std::string& dir, const std::set<std::string>& names);

}  // namespace tailcast::app
