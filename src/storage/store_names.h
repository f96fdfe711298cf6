// Which names a store takes; the same for every driver.
#pragma once

#include <string_view>

#include "tailcast/base/status.h"

namespace tailcast::storage {

// Bytes. Leaves room for what a driver adds, within the 255 that file systems allow.
inline constexpr size_t kNameSizeMax = 160;

// InvalidArgument, naming `what` and the reason: empty, longer than kNameSizeMax, starts with '.',
// or has '/' or a byte below 0x20.
Status CheckFileName(std::string_view what, std::string_view name);
// The same for each part of a folder path relative to the store's root, "a/b/c"; "" is the root.
Status CheckFolder(std::string_view path);

}  // namespace tailcast::storage
