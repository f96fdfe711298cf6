// CHECKs guard our own invariants and stay on in release builds. Bad input from a peer, a file or a
// user is never a CHECK: it is a Status.
#pragma once

#include <string_view>

namespace tailcast::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message);
}  // namespace tailcast::internal

// TAILCAST_CHECK(position <= end, "delivered past the end");
#define TAILCAST_CHECK(condition, ...)                                    \
  do {                                                                    \
    if (__builtin_expect(!(condition), 0)) {                              \
      ::tailcast::internal::CheckFailed(__FILE__, __LINE__, #condition,   \
                                        ::std::string_view(__VA_ARGS__)); \
    }                                                                     \
  } while (false)
