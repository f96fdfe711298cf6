// The key of a message, found in its payload: `--key FIELD`.
//
// A core: no I/O.
#pragma once

#include <string>
#include <string_view>

#include "tailcast/base/status.h"

namespace tailcast::app {

class MessageKey {
 public:
  // "3": the third field of a line, fields being separated by `delimiter` (quotes mean nothing);
  // "user": the member of that name of a JSON object; "/user/id": a JSON pointer (RFC 6901).
  // InvalidArgument: "0", or an empty field.
  static Result<MessageKey> Parse(const std::string& field, char delimiter);

  // A JSON string without its quotes; other values as JSON. The newline at a line's end belongs to
  // no field. InvalidArgument if the message has no such field; it quotes its beginning.
  Result<std::string> Of(std::string_view payload) const;

 private:
  std::string field_;    // as it was given
  size_t column_ = 0;    // from 1; 0: JSON
  std::string pointer_;  // of JSON
  char delimiter_ = ',';
};

}  // namespace tailcast::app
