// Replaces a small file as a whole.
#pragma once

#include <string>
#include <string_view>

#include "tailcast/base/status.h"

namespace tailcast::app {

// Durably: whenever this process or the machine stops, the file has its old content or `content`.
// Writes PATH.part on the way. Errors name the path.
Status ReplaceFile(const std::string& path, std::string_view content);

}  // namespace tailcast::app
