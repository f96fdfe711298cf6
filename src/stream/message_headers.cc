#include "tailcast/stream/message_headers.h"

#include <algorithm>

#include "tailcast/base/utf8.h"

namespace tailcast::stream {
namespace {

constexpr size_t kNameLengthBytes = 1, kValueLengthBytes = 2;

// Of the first header of `bytes`; all at the latest where they end.
struct Extent {
  std::string_view name, value;
  size_t size = 0;  // 0: it is cut off
};
Extent First(std::string_view bytes) {
  const auto byte = [&](size_t at) -> size_t { return static_cast<unsigned char>(bytes[at]); };
  if (bytes.size() < kNameLengthBytes) return {};
  const size_t name_at = kNameLengthBytes, name_size = byte(0);
  const size_t value_at = name_at + name_size + kValueLengthBytes;
  if (bytes.size() < value_at) return {};
  const size_t value_size = byte(value_at - 2) | byte(value_at - 1) << 8;
  if (bytes.size() - value_at < value_size) return {};
  return {.name = bytes.substr(name_at, name_size),
          .value = bytes.substr(value_at, value_size),
          .size = value_at + value_size};
}

bool IsName(std::string_view name) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  return !name.empty() && name.size() <= 255 && IsUtf8(name) &&
         std::none_of(name.begin(), name.end(), control);
}

}  // namespace

Result<std::string> Headers::Encode(std::span<const Header> headers) {
  size_t size = 0;
  for (const Header& header : headers) {
    if (!IsName(header.name)) {
      return InvalidArgumentError(
          "the name of header " + std::to_string(&header - headers.data() + 1) + " (" +
          std::to_string(header.name.size()) +
          " bytes) is not 1 to 255 bytes of UTF-8 without control characters");
    }
    size += kNameLengthBytes + header.name.size() + kValueLengthBytes;
    // No sum that may be too large for its type: lengths come from foreign programs, too.
    if (size > kHeadersBytesMax || header.value.size() > kHeadersBytesMax - size) {
      return InvalidArgumentError("a message's headers take at most " +
                                  std::to_string(kHeadersBytesMax) + " bytes; header " +
                                  std::to_string(&header - headers.data() + 1) + " is beyond that");
    }
    size += header.value.size();
  }
  std::string bytes;
  bytes.reserve(size);
  for (const Header& header : headers) {
    bytes.push_back(static_cast<char>(header.name.size()));
    bytes.append(header.name);
    bytes.push_back(static_cast<char>(header.value.size() & 0xff));
    bytes.push_back(static_cast<char>(header.value.size() >> 8));
    bytes.append(header.value);
  }
  return bytes;
}

std::optional<Headers> Headers::Decode(std::string_view bytes) {
  if (bytes.size() > kHeadersBytesMax) return std::nullopt;
  for (std::string_view rest = bytes; !rest.empty();) {
    const Extent header = First(rest);
    if (header.size == 0 || !IsName(header.name)) return std::nullopt;
    rest.remove_prefix(header.size);
  }
  return Headers(bytes);
}

Header Headers::Iterator::operator*() const {
  const Extent header = First(rest_);
  return {.name = header.name, .value = header.value};
}

Headers::Iterator& Headers::Iterator::operator++() {
  rest_.remove_prefix(First(rest_).size);
  return *this;
}

std::optional<std::string_view> Headers::Find(std::string_view name) const {
  for (const auto& [each, value] : *this) {
    if (each == name) return value;
  }
  return std::nullopt;
}

}  // namespace tailcast::stream
