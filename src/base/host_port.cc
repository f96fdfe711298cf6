#include "tailcast/base/host_port.h"

namespace tailcast {

bool IsHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  for (const char c : text.substr(0, colon)) {
    const bool alphanumeric =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!alphanumeric && std::string_view(".-_:[]%").find(c) == std::string_view::npos) {
      return false;
    }
  }
  const std::string_view port = text.substr(colon + 1);
  if (port.empty() || port.size() > 5) return false;
  int number = 0;
  for (char c : port) {
    if (c < '0' || c > '9') return false;
    number = number * 10 + (c - '0');
  }
  return number > 0 && number <= 65535;
}

}  // namespace tailcast
