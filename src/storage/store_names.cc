#include "tailcast/storage/store_names.h"

#include <string>

namespace tailcast::storage {

Status CheckFileName(std::string_view what, std::string_view name) {
  const auto bad = [&](std::string_view why) {
    return InvalidArgumentError(std::string(what) + " '" + std::string(name) + "' " +
                                std::string(why));
  };
  if (name.empty()) return bad("is empty");
  if (name.size() > kNameSizeMax) {
    return bad("has " + std::to_string(name.size()) + " bytes; at most " +
               std::to_string(kNameSizeMax) + " are allowed");
  }
  if (name[0] == '.') return bad("starts with '.', which is kept for the store's own files");
  for (const char c : name) {
    if (c == '/') return bad("has a '/'");
    if (static_cast<unsigned char>(c) < 0x20) return bad("has a control character");
  }
  return OkStatus();
}

Status CheckFolder(std::string_view path) {
  if (path.empty()) return OkStatus();
  for (;;) {
    const size_t slash = path.find('/');
    TAILCAST_RETURN_IF_ERROR(CheckFileName("folder", path.substr(0, slash)));
    if (slash == std::string_view::npos) return OkStatus();
    path = path.substr(slash + 1);
  }
}

}  // namespace tailcast::storage
