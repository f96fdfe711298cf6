// The messages of a Copy stream (proto/copy.proto) as inputs and effects of an operation's core.
// Internal to the module.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "tailcast/base/status.h"
#include "tailcast/stream/names.h"
#include "tailcast/writer/effects.h"

namespace tailcast::writer {

struct BytesMessage {
  stream::Part part = stream::Part::kData;
  int64_t position = 0;
  std::string bytes;  // 1 byte to 1 MiB
};
struct JumpMessage {
  stream::Part part = stream::Part::kData;
  int64_t position = 0;  // the beginning of a chunk
};
struct SealMessage {
  Lengths lengths = {};
};
struct HeartbeatMessage {
  int64_t as_of_us = 0;
  Lengths lengths = {};
};
using ReaderMessage = std::variant<BytesMessage, JumpMessage, SealMessage, HeartbeatMessage>;

// What a reader sends after `open`. InvalidArgument names the bad field; a seal's lengths are for
// the core to judge.
Result<ReaderMessage> ParseReaderMessage(const std::string& bytes, int64_t chunk_size);

std::string Serialize(const SendOpened& opened);
std::string Serialize(const SendProgress& progress);
std::string Serialize(const SendSuperseded& superseded);

}  // namespace tailcast::writer
