// How the command line cuts a byte stream into messages and joins them again.
//
//   lines   each line with its newline is a message; a last line without one is a message too
//   length  4-byte big-endian length, then the payload
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"

namespace tailcast::stream {

enum class Framing : uint8_t { kLines, kLength };

// "lines" or "length"; InvalidArgument names both.
Result<Framing> ParseFraming(std::string_view text);

// Cuts what arrives in pieces. Next gives messages as views that are valid until the next Push.
//   FrameSplitter splitter(Framing::kLines, 16 << 20);
//   while (read(...)) { splitter.Push(bytes); while (auto m = splitter.Next()) use(*m); }
//   Status s = splitter.Finish(); while (auto m = splitter.Next()) use(*m);
class FrameSplitter {
 public:
  FrameSplitter(Framing framing, int64_t message_bytes_max)
      : framing_(framing), message_bytes_max_(message_bytes_max) {}
  void Push(std::string_view bytes);
  // nullopt: more bytes are needed, or status() is an error.
  std::optional<std::string_view> Next();
  // The input is over. DataLoss if it ends inside a length-framed message (the message says at
  // which input byte it began). With lines, a last line without newline becomes the next Next.
  Status Finish();
  // ResourceExhausted once a message over the limit was met: it names its number, its first input
  // byte, its size if known, and the limit. No message after it is given.
  const Status& status() const { return status_; }
  int64_t messages() const { return messages_; }
  // Bytes of the input before the next message.
  int64_t taken_bytes() const { return input_byte_ + static_cast<int64_t>(at_); }

 private:
  Framing framing_;
  int64_t message_bytes_max_;
  std::string buffer_;
  size_t at_ = 0;           // of the next message in buffer_
  size_t searched_ = 0;     // no newline in buffer_[at_, searched_)
  int64_t input_byte_ = 0;  // of buffer_[0] in the input
  int64_t messages_ = 0;
  bool finished_ = false;
  Status status_;
};

// Appends a message to an output. Lines: the payload as it is. InvalidArgument for a payload over
// 4 GiB - 1 with `length`.
Status AppendFrame(Framing framing, std::string_view payload, std::string& out);

}  // namespace tailcast::stream
