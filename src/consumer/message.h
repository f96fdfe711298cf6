// A message, as consumers get it.
#pragma once

#include <cstdint>
#include <string_view>

#include "tailcast/stream/message_headers.h"

namespace tailcast::consumer {

struct Message {
  std::string_view payload;
  int64_t number = 0;   // of the message in its shard, from 0
  int64_t byte = 0;     // data bytes of the shard before it
  int64_t time_us = 0;  // producer's wall time
  int32_t shard = 0;
  stream::Headers headers;

  // Data bytes of the shard up to its end.
  int64_t end_byte() const {
    return byte + static_cast<int64_t>(headers.bytes().size() + payload.size());
  }
};

}  // namespace tailcast::consumer
