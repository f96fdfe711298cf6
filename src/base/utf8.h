// Whether bytes are text.
#pragma once

#include <string_view>

namespace tailcast {

// Well-formed UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
bool IsUtf8(std::string_view bytes);

}  // namespace tailcast
