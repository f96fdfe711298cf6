// What became of a message.
#pragma once

#include <cstdint>

#include "tailcast/base/callback.h"
#include "tailcast/base/status.h"
#include "tailcast/stream/position.h"

namespace tailcast::producer {

enum class AckOutcome : uint8_t {
  kDurable,  // flushed to the primary layer: every consumer will get it, whatever crashes
  kFailed,   // it is not in the stream and never will be; publishing it again makes no duplicate
  kUnknown,  // it may or may not be in the stream: the producer stopped before it could find out
};

struct Ack {
  AckOutcome outcome = AckOutcome::kUnknown;
  // kDurable: where the message begins. A consumer that starts here gets it first.
  stream::Position position;
  Status error;  // for the other two: what happened and what to do
};

using AckCallback = UniqueFunction<void(const Ack&)>;

}  // namespace tailcast::producer
