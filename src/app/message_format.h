// How `tailcast consume --format` prints a message.
//
// A core: no I/O.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/app/message_key.h"
#include "tailcast/base/status.h"
#include "tailcast/consumer/tail_core.h"
#include "tailcast/stream/position.h"

namespace tailcast::app {

class MessageFormat {
 public:
  // "json", or a template: text with {payload}, {key}, {stream}, {shard}, {number}, {position},
  // {time} (UTC), {time_us}, {bytes} (of the payload), {headers} and {header.NAME} in it; {{ and }}
  // are braces, and \n, \t and a double backslash what they are in C. InvalidArgument says what is
  // wrong, and where.
  static Result<MessageFormat> Parse(const std::string& text);

  // Whether {key} is asked for.
  bool wants_key() const;
  // The key that messages have; JSON then has it, too.
  void set_key(MessageKey key) { key_ = std::move(key); }

  // Adds a line: with a newline at its end, which the message may have brought.
  //
  // JSON: {"stream", "shard", "number", "position", "time", "payload"}, "key" if there is one, and
  // "headers", an array of {"name", "value"}, if there are any; "payload_base64", "key_base64" and
  // "value_base64" in place of what is no UTF-8. {headers} is NAME=VALUE of all, a comma and a
  // space between two; {header.NAME} the value of the first of that name, or nothing.
  // InvalidArgument: the message has no such key.
  Status AppendTo(const std::string& stream, const consumer::Message& message,
                  const stream::Position& position, std::string& out) const;

 private:
  struct Piece {
    std::string text;   // if field is empty
    std::string field;  // its name
  };
  std::vector<Piece> pieces_;  // none: JSON
  std::optional<MessageKey> key_;
};

// "2013-01-31T12:00:00.250000Z"
std::string UtcText(int64_t time_us);

}  // namespace tailcast::app
