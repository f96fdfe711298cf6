// Headers of a message: names and values that go with its payload, for whoever routes or traces
// messages without looking into them. They lie in front of the payload in the data file
// (docs/formats/index.md); a message without any costs nothing.
//
//   for (const auto& [name, value] : message.headers) ...
//   message.headers.Find("trace")
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"

namespace tailcast::stream {

struct Header {
  std::string_view name;   // 1 to 255 bytes of UTF-8 without control characters
  std::string_view value;  // any bytes
  friend bool operator==(const Header&, const Header&) = default;
};

// All headers of a message, encoded.
inline constexpr size_t kHeadersBytesMax = 65535;

// A message's headers in the order in which they were published; a name may come again. A view.
class Headers {
 public:
  Headers() = default;
  // nullopt: not exactly what Encode writes.
  static std::optional<Headers> Decode(std::string_view bytes);
  // "" for none. InvalidArgument: a name that is none, or more than kHeadersBytesMax.
  static Result<std::string> Encode(std::span<const Header> headers);

  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Header;
    using difference_type = std::ptrdiff_t;
    using pointer = const Header*;
    using reference = Header;

    Iterator() = default;
    Header operator*() const;
    Iterator& operator++();
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) {
      return a.rest_.size() == b.rest_.size();
    }

   private:
    friend class Headers;
    explicit Iterator(std::string_view rest) : rest_(rest) {}
    std::string_view rest_;
  };
  Iterator begin() const { return Iterator(bytes_); }
  Iterator end() const { return Iterator(); }

  bool empty() const { return bytes_.empty(); }
  // The value of the first one of this name.
  std::optional<std::string_view> Find(std::string_view name) const;
  // As they are in the data file.
  std::string_view bytes() const { return bytes_; }

 private:
  explicit Headers(std::string_view bytes) : bytes_(bytes) {}
  std::string_view bytes_;
};

}  // namespace tailcast::stream
