// "host:port" in text, where a process is called.
#pragma once

#include <string_view>

namespace tailcast {

// Whether it is a name, a number of version 4 or a [number of version 6], and a port from 1 on.
// Does not ask whether the host exists.
bool IsHostPort(std::string_view text);

}  // namespace tailcast
