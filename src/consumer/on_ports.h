// A Consumer over ports of the caller, for tests.
#pragma once

#include <cstdint>
#include <memory>

#include "tailcast/base/status.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/consumer/consumer.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/ports.h"

namespace tailcast::consumer {

struct OnPorts {
  // As Consumer::Open, of a stream with so many shards. `loop` is the ports' loop; Poll turns it.
  // `options.cell` is not used.
  static Result<std::unique_ptr<Consumer>> Open(const stream::CellPorts& ports, ThreadLoop* loop,
                                                const stream::StreamId& stream, int32_t shards,
                                                const Options& options);
};

}  // namespace tailcast::consumer
