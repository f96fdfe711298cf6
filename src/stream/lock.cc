#include "tailcast/stream/lock.h"

namespace tailcast::stream {
namespace {
void PutWord(std::string& out, uint64_t word) {
  for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(word >> shift));
}
uint64_t GetWord(std::string_view bytes, size_t at) {
  uint64_t word = 0;
  for (size_t i = 0; i < 8; ++i) word = word << 8 | static_cast<uint8_t>(bytes[at + i]);
  return word;
}
}  // namespace

std::string EncodeLock(const LockValue& value) {
  std::string out;
  PutWord(out, value.term.Pack());
  PutWord(out, value.owner);
  PutWord(out, static_cast<uint64_t>(value.state));
  return out;
}

std::optional<LockValue> DecodeLock(std::string_view bytes) {
  if (bytes.size() != 24) return std::nullopt;
  const uint64_t state = GetWord(bytes, 16);
  if (state < 1 || state > 3) return std::nullopt;
  return LockValue{Term::Unpack(GetWord(bytes, 0)), GetWord(bytes, 8),
                   static_cast<LockState>(state)};
}

}  // namespace tailcast::stream
