#include "tailcast/base/utf8.h"

#include <cstddef>
#include <cstdint>

namespace tailcast {
namespace {

// Bytes of the character that begins with this one; 0: none does.
size_t LengthOf(uint8_t first) {
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;  // in the middle of one, or overlong
  if (first < 0xe0) return 2;
  if (first < 0xf0) return 3;
  return first < 0xf5 ? 4 : 0;
}

// The least second byte that is not overlong, and the greatest that is no surrogate and in range.
bool SecondFits(uint8_t first, uint8_t second) {
  const uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  return second >= least && second <= most;
}

}  // namespace

bool IsUtf8(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[at + i]); };
    const size_t length = LengthOf(byte(0));
    if (length == 0 || at + length > bytes.size()) return false;
    if (length > 1 && !SecondFits(byte(0), byte(1))) return false;
    for (size_t i = 2; i < length; ++i) {
      if (byte(i) < 0x80 || byte(i) > 0xbf) return false;
    }
    at += length;
  }
  return true;
}

}  // namespace tailcast
